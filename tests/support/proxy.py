"""A network that can be cut: a TCP proxy between the engine and its database."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Looks at what is to be cut so often, in seconds.
_LOOK = 0.02

# What becomes of something that a client sends: it is passed on; the connection breaks before that; or after that, when
# the server has answered, so that the answer is lost; or right after that, while the server is busy with it; or the
# client is cut off and the server not told.
PASS, BEFORE, AFTER, MEANWHILE, SILENTLY = "pass", "before", "after", "meanwhile", "silently"


class Proxy:
    """Passes connections on to a port of this machine, until it is told not to. ``fate`` is asked about every piece of
    data that a client sends."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener: socket.socket | None = None
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._left_open: list[socket.socket] = []
        self._lock = threading.Lock()
        self.fate: Callable[[bytes], str] = lambda data: PASS
        self.port = self.restore()

    def restore(self) -> int:
        """Accept connections, on the port of before."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", getattr(self, "port", 0)))
        listener.listen(64)
        self._listener = listener
        self._accepting = threading.Thread(target=self._accept, args=(listener,), daemon=True)
        self._accepting.start()
        port: int = listener.getsockname()[1]
        return port

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        if self._listener is not None:
            self._listener.close()
            self._accepting.join()
            self._listener = None
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            _close(*pair)
        _close(*self._left_open)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while listener.fileno() >= 0:
                if not select.select([listener], [], [], _LOOK)[0]:
                    continue
                client, _ = listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    _close(client)
                    continue
                with self._lock:
                    self._pairs.add((client, server))
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if server in ready:
                    data = server.recv(65536)
                    if not data:
                        break
                    client.sendall(data)
                if client in ready and not self._pass_on(client.recv(65536), client, server):
                    break
        _close(client, *(() if server in self._left_open else (server,)))

    def _pass_on(self, data: bytes, client: socket.socket, server: socket.socket) -> bool:
        fate = self.fate(data) if data else BEFORE
        if fate == SILENTLY:
            self._left_open.append(server)
        if fate in (BEFORE, SILENTLY):
            return False
        server.sendall(data)
        if fate == AFTER:
            server.recv(65536)
        return fate == PASS


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.cut()
