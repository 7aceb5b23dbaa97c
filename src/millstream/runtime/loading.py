"""Group versions that a process keeps for the next batch: they are immutable, and take long to read."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

from millstream.kernels.group import Group
from millstream.runtime.home import Home
from millstream.runtime.versions import read_version

# Every create leaves a version behind. Of versions that were not used for so many seconds, a process keeps those of so
# many members in all (ten times a thousand queries, at some kilobytes each).
UNUSED_SECONDS = 60.0
KEPT_MEMBERS = 10_000


class KeptGroups:
    """Group versions of a process, by home and path; readers on the driver share them among threads. Those that were
    used least recently go first."""

    def __init__(self) -> None:
        self._groups: OrderedDict[tuple[str, str], tuple[Group, float]] = OrderedDict()
        self._members = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, home: Home, path: str) -> Group:
        key, now = (home.root, path), time.monotonic()
        with self._lock:
            known = self._groups.pop(key, None)
            if known is not None:
                self._groups[key] = (known[0], now)
                return known[0]
        group = Group(read_version(home, path))
        with self._lock:
            if key not in self._groups:
                self._members += len(group.version.members)
            self._groups[key] = (group, now)
            self._shrink(now)
        return group

    def clear(self) -> None:
        """Read all of them again: files may have changed, which only happens to those that are damaged."""
        with self._lock:
            self._groups.clear()
            self._members = 0

    def _shrink(self, now: float) -> None:
        while self._members > KEPT_MEMBERS:
            key, (group, used) = next(iter(self._groups.items()))
            if used > now - UNUSED_SECONDS:
                return
            del self._groups[key]
            self._members -= len(group.version.members)


kept_groups = KeptGroups()


def load_group(home: Home, path: str) -> Group:
    return kept_groups.get(home, path)
