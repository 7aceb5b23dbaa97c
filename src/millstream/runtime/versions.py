"""Group versions as files: one small JSON text each, whose checksum is part of its name."""

from __future__ import annotations

from millstream.errors import DamagedFile
from millstream.kernels.checksum import checksum
from millstream.model import codec
from millstream.model.group import GroupVersion, Member
from millstream.runtime.home import GROUPS, Home


def write_version(home: Home, group: str, version: int, text: str) -> str:
    """Write a version's text; the folder is synced by the caller, after the last."""
    data = text.encode()
    return home.write(GROUPS, f"{group}-{version}", "json", [data], sync_folder=False, checksum=checksum(data))


# Members that a process knows by their texts: a version differs from the one before in few of them.
_KNOWN = 10_000
_known: dict[str, Member] = {}


def read_version(home: Home, path: str) -> GroupVersion:
    """DamagedFile when it is not what was written."""
    text = home.open(path).whole()
    try:
        if len(_known) > _KNOWN:
            _known.clear()
        version = codec.loads_joined(text.decode(), "members", _known)
    except ValueError as error:
        # Only files without a checksum come so far.
        raise DamagedFile(path, f"is altered: {error}") from None
    if not isinstance(version, GroupVersion):
        raise DamagedFile(path, "is altered: it holds no group version")
    return version
