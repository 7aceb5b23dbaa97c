"""What a Python worker of Spark does before a task of ours: it gives way, ends with Spark, and spares itself work."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from functools import lru_cache
from itertools import count

# Spark keeps a pool of Python workers for each set of environment variables; this one names ours. It is not set where
# tests run a task in a process of theirs, which stays as it is.
POOL_VARIABLE = "MILLSTREAM_POOL"
# Fires have a pool of Python workers of their own, so that the matrices a worker keeps are there when the next fire
# comes, and are not made again in the workers of ingest; so have those that run aside, since workers of a pool take
# turns.
INGEST_POOL, FIRE_POOL, ASIDE_POOL = "ingest", "fire", "aside"
# A third of the processor's time beside a process that does not give way, and a tenth of that for heavy fires, which
# nobody else waits for; all of it where nobody else wants it.
GIVE_WAY = {INGEST_POOL: 5, FIRE_POOL: 5, ASIDE_POOL: 15}
# Linux's name for the signal that a process gets when the one that forked it ends.
_PDEATHSIG = 1
# Of so many collections of a worker one looks at everything.
WHOLE_COLLECTION = 100

_tasks = count(1)


def enter() -> None:
    """Called by each task before it does anything else."""
    if POOL_VARIABLE in os.environ:
        _give_way()
        _end_with_spark()
        _spare_collections()


@lru_cache(maxsize=1)
def _give_way() -> None:
    """Workers let the driver and the JVM go first: on a machine that data keep busy, creates and deletes are answered
    by these."""
    os.nice(GIVE_WAY[os.environ[POOL_VARIABLE]])


@lru_cache(maxsize=1)
def _end_with_spark() -> None:
    """Have a worker end with the daemon that has forked it, and so with Spark. One that was forked while Spark died
    misses the daemon's signal; it would go on with its task, and write files behind the back of the next engine."""
    library = ctypes.CDLL(None)
    if hasattr(library, "prctl"):
        library.prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def _spare_collections() -> None:
    """PySpark has a worker collect garbage after each task, whole, which means to look at every object of every module
    loaded: 100 ms, half of what a worker does on a stream of small batches. What is alive when a task begins has just
    been looked at, so it is left out of the next collection. It is freed all the same when nobody refers to it, unless
    in a circle: for the sake of those everything is looked at now and then."""
    if next(_tasks) % WHOLE_COLLECTION:
        gc.freeze()
    else:
        gc.unfreeze()
