"""Ingest jobs that find group versions damaged: these are restored, and the job runs again."""

from __future__ import annotations

from collections.abc import Callable

from millstream.engine.registry import Registry
from millstream.errors import DamagedFile, EngineError
from millstream.model.plan import BatchResult, Damage
from millstream.runtime.damage import version_damage
from millstream.runtime.home import Home
from millstream.runtime.worker import IngestTask

Ingest = Callable[[IngestTask], BatchResult]

# A disk that damages what was just restored will do so again.
MOST_RUNS = 5


def run_mending(registry: Registry, home: Home, ingest: Ingest, task: IngestTask) -> BatchResult:
    """The result of a job that could read all its group versions; DamagedFile if one cannot be restored."""
    for _ in range(MOST_RUNS):
        result = _run(ingest, task)
        if not result.damaged:
            return result
        # What those tasks wrote that could read them.
        home.remove([*(f.path for f in result.files), *(a.path for a in result.answers), *result.rejects])
        found = [damage for one in result.damaged if (damage := version_damage(home, one.path)) is not None]
        for damage in found:
            if not registry.restore(damage.path):
                raise _beyond_repair(damage, "it cannot be made again from the definitions of its queries")
    if not found:
        # It is whole for the driver, each time: a worker has lost its mount. The batch is repeated until it has not.
        hint = "look after the disks and mounts of the workers; the batch is repeated"
        raise EngineError("DISK_ERROR", f"a worker cannot read {result.damaged[0].path}, which is whole", hint=hint)
    raise _beyond_repair(result.damaged[0], f"it was restored {MOST_RUNS} times and is damaged again")


def _run(ingest: Ingest, task: IngestTask) -> BatchResult:
    try:
        return ingest(task)
    except DamagedFile as error:
        return BatchResult(0, 0, None, 0, 0, damaged=(Damage(error.path, None, error.reason),))


def _beyond_repair(damage: Damage, detail: str) -> DamagedFile:
    hint = "restore it from a backup of the home; the batch is repeated when the engine starts again"
    return DamagedFile(damage.path, damage.reason, detail=detail, hint=hint)
