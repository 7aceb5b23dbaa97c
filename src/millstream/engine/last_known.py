"""What the metastore says of streams and epoch, or said last: a status is given at once, also when it is away."""

from __future__ import annotations

import time
from dataclasses import dataclass

from millstream.catalog.metastore import Metastore, StreamState
from millstream.catalog.outage import Away, waiting

# Seconds between two looks at the metastore that nobody asked for.
RECENT = 1.0


@dataclass(frozen=True, slots=True)
class Sight:
    """``away`` is why the metastore does not answer; the rest is then as it was before."""

    streams: tuple[StreamState, ...]
    epoch: int
    away: str | None = None


class LastKnown:
    def __init__(self, metastore: Metastore) -> None:
        self._metastore = metastore
        self._streams: tuple[StreamState, ...] = ()
        self._epoch = 0
        self._looked = -RECENT

    def refresh(self) -> None:
        """Called now and then, so that a status in an outage is not of long ago."""
        if time.monotonic() - self._looked > RECENT:
            self._looked = time.monotonic()
            self.look()

    def look(self) -> Sight:
        """Ask once; where others wait already, not even that."""
        away = self._metastore.outage.reason
        if away is None:
            try:
                with waiting(0):
                    self._streams, self._epoch = tuple(self._metastore.streams()), self._metastore.current_epoch()
            except Away as error:
                away = error.detail or error.message
        return Sight(self._streams, self._epoch, away)
