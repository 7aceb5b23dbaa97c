"""One stream's way through ingest: plan, run, commit. The same for live streams and for replay."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from millstream.catalog.metastore import Metastore
from millstream.config import Limits
from millstream.crashpoints import crash_point
from millstream.engine.aside import Aside
from millstream.engine.buckets import BucketIndex
from millstream.engine.leftovers import no_leftovers_of_batch, remove_leftovers_of_batch
from millstream.engine.mending import Ingest, run_mending
from millstream.engine.quarantine import Quarantine
from millstream.engine.registry import Registry
from millstream.kernels.bucket import FORMAT
from millstream.model.plan import BatchResult, Recipe
from millstream.model.statistics import Figures, faded
from millstream.model.stream import Stream
from millstream.runtime.home import Home
from millstream.runtime.worker import IngestTask
from millstream.version import VERSION

# Batches over which rates are averaged.
RECENT = 20
# Batches after which what was measured is kept over a restart.
SAVE_FIGURES = 32

# What writes the bytes of buckets.
WRITER = f"millstream {VERSION}, buckets {FORMAT}, pyarrow {pa.__version__}"


@dataclass
class Metrics:
    """How a stream's batches have gone; seconds by phase are summed over tasks."""

    recent: deque[tuple[float, int, float]] = field(default_factory=lambda: deque(maxlen=RECENT))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    batches: int = 0

    def add(self, rows: int, seconds: float, result: BatchResult) -> None:
        self.recent.append((time.monotonic(), rows, seconds))
        for phase, spent in result.seconds_by_phase.items():
            self.seconds[phase] += spent
        self.seconds["batch"] += seconds
        self.batches += 1

    @property
    def rows_per_second(self) -> float:
        if len(self.recent) < 2:
            return sum(rows / max(seconds, 1e-9) for _, rows, seconds in self.recent)
        span = time.monotonic() - self.recent[0][0]
        return sum(rows for _, rows, _ in list(self.recent)[1:]) / max(span, 1e-9)

    @property
    def last_batch_seconds(self) -> float:
        return self.recent[-1][2] if self.recent else 0.0


class Pipeline:
    """``on_commit`` is called after every commit, on the thread that ran the batch."""

    def __init__(
        self,
        stream: Stream,
        metastore: Metastore,
        registry: Registry,
        home: Home,
        clock: Callable[[], int],
        on_commit: Callable[[Pipeline], None],
        limits: Limits | None = None,
    ) -> None:
        self.stream = stream
        self.buckets = BucketIndex(metastore.buckets(stream.name))
        self.metrics = Metrics()
        self.firing = threading.Lock()
        self.aside = Aside()
        # Bytes that the last fire of each group had to read.
        self.weights: Mapping[str, int] = {}
        self._metastore = metastore
        self._registry = registry
        self._home = home
        self._clock = clock
        self._on_commit = on_commit
        self._limits = limits or Limits()
        self._quarantine = Quarantine(metastore, registry, home)
        state = next(s for s in metastore.streams() if s.stream.name == stream.name)
        self.watermark = state.watermark
        self.figures: Figures = metastore.figures(stream.name)
        # When the stream last brought rows, or was started.
        self.last_rows = clock()

    def process(self, batch: int, offsets: str, ingest: Ingest, splits: str | None = None) -> None:
        """Run one micro-batch exactly once, however often it is asked for. ``splits`` says what its tasks read, where
        they can read it again."""
        plan, committed = self._metastore.plan_batch(self.stream.name, batch, offsets, self._clock())
        if committed:
            return
        started = time.monotonic()
        versions = self._registry.versions(plan.epoch, self.stream.name)
        task = IngestTask(self._home, self.stream, batch, plan.watermark, plan.clock, versions, limits=self._limits)
        with no_leftovers_of_batch(self._metastore, self._home, self.stream.name, batch):
            mending = partial(run_mending, self._registry, self._home, ingest)
            task, result = self._quarantine.run(plan, task, mending)
            crash_point("ingest.job-done")
            watermark = self._metastore.commit_batch(plan, result, _recipe(task, result, splits))
        # First what must not be missed if a later step fails: the batch is committed and will not come again.
        self.buckets.add(result.files)
        self.watermark = watermark
        if result.broken:
            self._registry.remove(list(result.broken))
        if result.rows:
            self.last_rows = self._clock()
        self.metrics.add(result.rows, time.monotonic() - started, result)
        if result.rows:
            self.figures = faded(self.figures, result.figures)
        if batch % SAVE_FIGURES == 0:
            self._metastore.save_figures(self.stream.name, self.figures)
        if task.apart:
            # Trials that failed may have written files before they did.
            remove_leftovers_of_batch(self._metastore, self._home, self.stream.name, batch)
        self._on_commit(self)
        crash_point("ingest.done")

    def flush(self) -> None:
        """Finite input has ended: all time is closed."""
        self._metastore.flush_stream(self.stream.name)
        self.watermark = next(s for s in self._metastore.streams() if s.stream.name == self.stream.name).watermark


def _recipe(task: IngestTask, result: BatchResult, splits: str | None) -> Recipe | None:
    """How to make the batch's bucket files again; None where there are none, or the source cannot be read again."""
    if splits is None or not result.files:
        return None
    plan = (task.stream.name, task.batch, task.watermark, task.clock, task.versions)
    return Recipe(*plan, splits, result.rows, WRITER, task.apart)
