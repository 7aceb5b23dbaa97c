"""Processes below one of ours, as Linux tells of them: Spark, its executors, and its Python workers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    command: str
    environment: str

    @property
    def is_java(self) -> bool:
        return self.command.partition("\0")[0].endswith("java")

    def in_pool(self, pool: str) -> bool:
        """Whether it is a Python process of one of the engine's two pools, ``ingest`` or ``fire``."""
        return f"MILLSTREAM_POOL={pool}\0" in self.environment


def below(pid: int) -> list[Process]:
    """All processes that descend from one."""
    everybody = _everybody()
    found: list[Process] = []
    parents = {pid}
    while parents:
        children = [one for one in everybody if one.parent in parents]
        found += children
        parents = {one.pid for one in children}
    return found


def spark_of(pid: int) -> int:
    """The Spark that a Python process has started."""
    return next(one.pid for one in below(pid) if one.is_java and one.parent == pid)


def workers_of(pid: int, pool: str) -> list[int]:
    """The Python workers of a pool: a daemon forks them and runs nothing itself."""
    members = {one.pid: one for one in below(pid) if one.in_pool(pool)}
    return [one.pid for one in members.values() if one.parent in members]


def daemons_of(pid: int, pool: str) -> list[int]:
    """The processes that fork the workers of a pool."""
    members = {one.pid: one for one in below(pid) if one.in_pool(pool)}
    return [one.pid for one in members.values() if one.parent not in members]


def memory_of(pid: int) -> int:
    """Bytes of a process that are in memory and not shared with others; 0 if it has ended."""
    lines = _read(Path("/proc", str(pid), "smaps_rollup")).splitlines()
    private = [line.split()[1] for line in lines if line.startswith(("Private_Clean:", "Private_Dirty:"))]
    return 1024 * sum(map(int, private))


def _everybody() -> list[Process]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            state = _read(folder / "stat").rpartition(")")[2].split()
            if state and state[0] != "Z":
                command, environment = _read(folder / "cmdline"), _read(folder / "environ")
                found.append(Process(int(folder.name), int(state[1]), command, environment))
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
