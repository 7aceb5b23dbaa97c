"""The changelog: requests of many callers, sealed together.

Whoever asks while an epoch is being sealed goes into the next one, so under load the batches grow by themselves and
each caller still waits for one or two seals at most.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from millstream.catalog.metastore import Epoch
from millstream.catalog.outage import Outage, away, unknown
from millstream.crashpoints import crash_point
from millstream.engine.registry import NewRequest, Registry
from millstream.errors import CatalogError, EngineError, MillstreamError
from millstream.runtime.disk import disk_fault

# Seconds: a caller with a limit of 0 still waits for a seal that is under way.
_LEAST_WAIT = 1.0


@dataclass(frozen=True)
class Sealed:
    """The query that a create made, or had made before, and the epoch it is part of."""

    id: str
    epoch: Epoch


@dataclass
class _Request:
    create: NewRequest | None = None
    delete: str | None = None
    done: Future[Sealed] = field(default_factory=Future)


class Changelog:
    """One thread seals; ``delay`` seconds after the first request, it takes all that have come."""

    def __init__(self, registry: Registry, delay: float, most: int, outage: Outage) -> None:
        self._registry = registry
        self._outage = outage
        self._delay = delay
        self._most = most
        self._waiting: list[_Request] = []
        self._wake = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="millstream-changelog", daemon=True)
        self._thread.start()

    def submit(self, creates: Sequence[NewRequest] = (), deletes: Sequence[str] = ()) -> list[Future[Sealed]]:
        """Requests to be sealed in one epoch; the futures end when it is."""
        requests = [_Request(create=c) for c in creates] + [_Request(delete=d) for d in deletes]
        with self._wake:
            if self._stopping:
                raise EngineError("NOT_RUNNING", "the engine is stopping")
            self._waiting += requests
            self._wake.notify()
        return [request.done for request in requests]

    def sealed(self, done: Future[Sealed]) -> Sealed:
        """Wait for a request. While the metastore is away, no longer than its limit: one that has not been taken up by
        then is withdrawn, and of one that has it is told what is known."""
        limit = max(self._outage.limit, _LEAST_WAIT)
        waits = 0
        while True:
            try:
                return done.result(limit)
            except TimeoutError:
                reason = self._outage.reason
            if reason is None:
                continue
            if done.cancel():
                raise away(reason)
            # Sealing has a limit of its own, after which the future ends; beyond that it finds out about a commit.
            waits += 1
            if waits > 1:
                raise unknown(reason)

    def stop(self, timeout: float | None = None) -> None:
        """Seal what is waiting, then end; not waited for longer than the timeout, in seconds."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._waiting or self._stopping)
                if not self._waiting:
                    return
                if len(self._waiting) < self._most and not self._stopping:
                    self._wake.wait(self._delay)
                batch, self._waiting = self._waiting, []
            batch = [request for request in batch if request.done.set_running_or_notify_cancel()]
            try:
                self._seal(batch)
            except Exception as error:
                for request in batch:
                    if not request.done.done():
                        request.done.set_exception(self._told(error))

    def _told(self, error: Exception) -> Exception:
        return disk_fault(error, self._registry.place) or error

    def _seal(self, batch: list[_Request]) -> None:
        """One epoch for all; when it is refused, one for each, so that nobody pays for another's mistake."""
        good = self._screened(batch)
        if not good:
            return
        try:
            epoch = self._seal_together(good)
        except MillstreamError as error:
            if len(good) == 1 or error.code == "METASTORE_AWAY":
                for request in good:
                    request.done.set_exception(self._told(error))
                return
            for request in good:
                self._seal([request])
            return
        for request in good:
            id = request.create.id if request.create else request.delete
            assert id is not None
            _acknowledge(request.done, Sealed(id, epoch))

    def _seal_together(self, requests: list[_Request]) -> Epoch:
        creates = [r.create for r in requests if r.create is not None]
        return self._registry.seal(creates, [r.delete for r in requests if r.delete is not None])

    def _screened(self, batch: list[_Request]) -> list[_Request]:
        """Answer at once what needs no epoch: ids in use, and creates that a client repeats."""
        good: list[_Request] = []
        ids: set[str] = set()
        keys: dict[tuple[str, str], _Request] = {}
        for request in batch:
            if request.create is None:
                good.append(request)
            elif not self._repeated(request, keys):
                if request.create.id in ids or self._registry.known(request.create.id):
                    request.done.set_exception(_duplicate(request.create.id))
                    continue
                ids.add(request.create.id)
                good.append(request)
        return good

    def _repeated(self, request: _Request, keys: dict[tuple[str, str], _Request]) -> bool:
        create = request.create
        assert create is not None
        if create.key is None:
            return False
        same = keys.setdefault((create.owner, create.key), request)
        if same is not request:
            same.done.add_done_callback(lambda done: _follow(done, request.done))
            return True
        known = self._registry.by_key(create.owner, create.key)
        if known is not None:
            _acknowledge(request.done, Sealed(*known))
        return known is not None


def _follow(done: Future[Sealed], follower: Future[Sealed]) -> None:
    error = done.exception()
    if error is not None:
        follower.set_exception(error)
    else:
        _acknowledge(follower, done.result())


def _acknowledge(request: Future[Sealed], sealed: Sealed) -> None:
    """Tell the caller: from now on it relies on what was sealed."""
    crash_point("changelog.acknowledging", sealed.id)
    request.set_result(sealed)
    crash_point("changelog.acknowledged", sealed.id)


def _duplicate(id: str) -> CatalogError:
    hint = "choose another id, or leave it out to be given one"
    return CatalogError("DUPLICATE_QUERY", f"a query {id!r} exists already", hint=hint)
