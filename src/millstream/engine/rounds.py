"""What the engine does by itself: one thread fires what is due, and does what else is due by the clock, in rounds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from millstream.catalog.outage import waiting
from millstream.config import Settings
from millstream.engine.core import Core
from millstream.engine.last_known import LastKnown
from millstream.runtime.disk import disk_fault
from millstream.runtime.spark import Running

# How long a round waits for a commit before it looks for itself, in seconds.
LOOK_INTERVAL = 1.0
# How often old answers, queries and group versions are forgotten, in seconds.
HOUSEKEEPING_INTERVAL = 30.0
# How often it is looked whether queries hold too much state, in seconds.
LIMITS_INTERVAL = 2.0


class Rounds:
    """``wake`` begins a round at once; after ``stopping`` nothing is begun. ``lost`` tells whether Spark is gone, maybe
    from an error: no round follows then."""

    def __init__(
        self,
        core: Core,
        settings: Settings,
        running: Mapping[str, Running],
        known: LastKnown,
        wake: threading.Event,
        stopping: threading.Event,
        lost: Callable[[Exception | None], bool],
    ) -> None:
        self._core = core
        self._settings = settings
        self._running = running
        self._known = known
        self._wake = wake
        self._stopping = stopping
        self._lost = lost
        self._error: str | None = None
        self._thread = threading.Thread(target=self.run, name="millstream-fire", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ended(self, seconds: float) -> bool:
        """Whether the thread has ended, at the latest after some time."""
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    @property
    def error(self) -> str | None:
        """What failed in the last round, or aside of it: heavy fires fail while others pass, so their error stays until
        they pass too."""
        asides = [pipeline.aside.error for pipeline in self._core.pipelines.values()]
        return self._error or next((self._told(error) for error in asides if error is not None), None)

    def run(self) -> None:
        steps = (
            self._keep_alive,
            self._fire_once,
            self.follow,
            _every(LIMITS_INTERVAL, self._core.enforce_limits),
            _every(HOUSEKEEPING_INTERVAL, self._tidy),
            self._known.refresh,
        )
        while not self._stopping.is_set():
            self._wake.wait(LOOK_INTERVAL)
            self._wake.clear()
            if self._lost(None):
                return
            errors = []
            for step in steps:
                # A step that fails holds up no other: fires that find no space must not keep tidying from making some.
                try:
                    with waiting(None):
                        step()
                except Exception as error:
                    if self._lost(error):
                        return
                    errors.append(error)
            self._error = self._told(errors[0]) if errors else None
            if errors:
                self._stopping.wait(LOOK_INTERVAL)

    def follow(self) -> None:
        """Let the watermark of idle streams follow the others."""
        for name in self._core.idle_streams():
            if not self._stopping.is_set() and self._core.follow(name):
                self._wake.set()

    def _fire_once(self) -> None:
        """Fire what is due of every stream, then of the joins over them. What fails holds up nothing else; its error
        comes at the end."""
        core = self._core
        errors: list[Exception] = []

        def attempt(fire: Callable[[], bool]) -> None:
            try:
                if not self._stopping.is_set():
                    fire()
            except Exception as error:
                errors.append(error)

        for pipeline in list(core.pipelines.values()):
            attempt(partial(core.firing.fire, pipeline, aside=True))
        for name in core.metastore.joins() if core.registry.joins else ():
            attempt(partial(core.joining.fire, name))
        if errors:
            raise errors[0]

    def _told(self, error: Exception) -> str:
        fault = disk_fault(error, self._core.home.root)
        return fault.message if fault else f"{type(error).__name__}: {error}"

    def _keep_alive(self) -> None:
        for running in list(self._running.values()):
            running.keep_alive()

    def _tidy(self) -> None:
        self._core.tidy(self._settings.answer_retention, self._settings.dead_letter_retention)


def _every(seconds: float, step: Callable[[], None]) -> Callable[[], None]:
    """A step that is due so often; one that has failed is due at once."""
    last = time.monotonic()

    def run() -> None:
        nonlocal last
        if time.monotonic() - last > seconds:
            step()
            last = time.monotonic()

    return run
