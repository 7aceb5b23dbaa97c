"""Settings, durations, and the two kinds of YAML file: the stream file of ``millstream start`` and the replay spec.

Every key of a file is checked. An error names the path (``queries[3].create_at_batch``), the place in the text and,
for a name that does not exist, the nearest one that does.
"""

from millstream.config.cores import available_cores
from millstream.config.documents import nearest
from millstream.config.durations import format_duration, parse_duration
from millstream.config.limits import Limits
from millstream.config.replay_spec import RefusedQuery, ReplayQuery, ReplaySpec, ReplayStream, load_replay_spec
from millstream.config.settings import Settings
from millstream.config.stream_file import StreamDefinition, StreamFile, load_stream_file

__all__ = [
    "Limits",
    "RefusedQuery",
    "ReplayQuery",
    "ReplaySpec",
    "ReplayStream",
    "Settings",
    "StreamDefinition",
    "StreamFile",
    "available_cores",
    "format_duration",
    "load_replay_spec",
    "load_stream_file",
    "nearest",
    "parse_duration",
]
