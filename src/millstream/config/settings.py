"""How an engine runs: every setting with the reason for its default."""

from __future__ import annotations

from dataclasses import dataclass, fields

from millstream.config.limits import Limits
from millstream.errors import SpecError

_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Settings:
    """How an engine runs. Durations are microseconds here and words (``5 seconds``) in files."""

    home: str = "~/.millstream"
    # None: SQLite inside the home, which needs no server; an SQLAlchemy URL for PostgreSQL.
    metastore_url: str | None = None
    # How long creates, deletes and reads wait for a metastore that is away; streams and fires wait as long as it takes.
    # Twice the outage of half a minute that a restart or a failover of the database takes.
    metastore_wait: int = 60_000_000
    # 0: the next micro-batch is planned as soon as the last one is committed, which keeps latency lowest.
    trigger_interval: int = 0
    # Tasks of an ingest or fire job; None: as many as the Spark session runs at once.
    parallelism: int | None = None
    # A changelog batch is sealed after this many requests or this long, whichever comes first. AStream waits
    # a second; an acknowledgement within 0.3 s leaves no room for that.
    seal_requests: int = 100
    seal_delay: int = 20_000
    # Answers older than this may be removed; a reader that resumes later gets BAD_CURSOR.
    answer_retention: int = 24 * 3_600_000_000
    dead_letter_retention: int = 28 * 24 * 3_600_000_000
    # What queries and owners may take; the reasons for the defaults are with ``Limits``.
    evaluation_memory: int = _LIMITS.evaluation_memory
    evaluation_time: int = _LIMITS.evaluation_time
    worker_memory: int = _LIMITS.worker_memory
    query_predicates: int = _LIMITS.query_predicates
    query_groups: int = _LIMITS.query_groups
    query_answer_rows: int = _LIMITS.query_answer_rows
    query_state_bytes: int = _LIMITS.query_state_bytes
    owner_queries: int = _LIMITS.owner_queries
    owner_predicates: int = _LIMITS.owner_predicates
    owner_groups: int = _LIMITS.owner_groups
    owner_answer_rows: int = _LIMITS.owner_answer_rows
    owner_state_bytes: int = _LIMITS.owner_state_bytes
    # At a stop, a running micro-batch or fire gets so long to finish; then it is abandoned, and repeated later.
    stop_grace: int = 10_000_000
    # Loopback only: whoever can connect can create queries.
    http_host: str = "127.0.0.1"
    # 0: any free port; the running engine writes the one it got into its home.
    http_port: int = 0

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise SpecError("BAD_SPEC", f"setting {name} is {value}, but must be at least {least}")
        if self.http_port > _MAX_PORT:
            raise SpecError("BAD_SPEC", f"setting http_port is {self.http_port}, but must be at most {_MAX_PORT}")

    @property
    def limits(self) -> Limits:
        return Limits(**{name: getattr(self, name) for name in LIMIT_SETTINGS})


LIMIT_SETTINGS = tuple(field.name for field in fields(Limits))
_MAX_PORT = 65_535
LEAST = {
    "metastore_wait": 0,
    "trigger_interval": 0,
    "parallelism": 1,
    "seal_requests": 1,
    "seal_delay": 0,
    "answer_retention": 0,
    "dead_letter_retention": 0,
    "stop_grace": 0,
    "http_port": 0,
    **dict.fromkeys(LIMIT_SETTINGS, 1),
}
DURATION_SETTINGS = (
    "metastore_wait",
    "trigger_interval",
    "seal_delay",
    "answer_retention",
    "dead_letter_retention",
    "evaluation_time",
    "stop_grace",
)
TEXT_SETTINGS = ("metastore_url",)
