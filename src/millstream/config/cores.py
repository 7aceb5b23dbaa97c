"""The cores that there are to work with."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Those that this process may run on: in a container, or under ``taskset``, fewer than the machine has."""
    # Not on every system.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
