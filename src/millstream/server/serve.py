"""The thread that serves an engine over HTTP, and the announcement by which clients find it."""

from __future__ import annotations

import socket
import threading
import time
from datetime import UTC, datetime
from os import getpid
from types import TracebackType

import uvicorn

from millstream.errors import EngineError
from millstream.server.app import create_app
from millstream.server.discovery import Endpoint, announce, withdraw
from millstream.server.hosts import LOOPBACK_NAMES
from millstream.server.protocol import EnginePort

# Starting takes some ten milliseconds; more than this means that the thread died.
START_SECONDS = 10.0
# Open connections get this long to end; waiting readers notice the stop within half a second.
STOP_SECONDS = 2


class Server:
    """Serves one engine on loopback, or on ``host``; port 0 takes a free one. A context manager."""

    def __init__(self, engine: EnginePort, host: str = "127.0.0.1", port: int = 0) -> None:
        version = engine.status().version
        hosts = LOOPBACK_NAMES if host in LOOPBACK_NAMES else None
        self._app = create_app(engine, version=version, hosts=hosts)
        self._socket = _listen(host, port)
        bound = self._socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        started = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self.endpoint = Endpoint(f"http://{shown}:{bound}", str(engine.home), getpid(), started, version)
        config = uvicorn.Config(
            self._app, log_level="warning", lifespan="off", access_log=False, timeout_graceful_shutdown=STOP_SECONDS
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, name="millstream-http", daemon=True)

    @property
    def url(self) -> str:
        return self.endpoint.url

    def start(self) -> Server:
        """Serve; returns when requests are answered and clients can find the engine."""
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise EngineError("INTERNAL", "the HTTP server did not start")
            time.sleep(0.005)
        announce(self.endpoint)
        return self

    def stop(self) -> None:
        """Withdraw the announcement, let requests end, close the port. May be called twice."""
        withdraw(self.endpoint)
        self._app.state.calls.stopping.set()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS + START_SECONDS)
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise EngineError(
            "BAD_SESSION",
            f"cannot listen on {host}:{port}: {error.strerror}",
            hint="take another port, or 0 for a free one",
        ) from error
