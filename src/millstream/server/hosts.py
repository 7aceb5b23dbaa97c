"""A guard against foreign web pages: a loopback server answers only requests that name it by its own name.

Without it a page in the user's browser could point a host name of its own at 127.0.0.1 and read the answers.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.errors import SpecError
from millstream.server.wire import error_to_json

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


class HostCheck:
    """Refuses requests whose Host header is none of ``hosts``."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and host_name(Headers(scope=scope).get("host", "")) not in self.hosts:
            error = SpecError("BAD_REQUEST", "the Host header names another server", hint=f"use {min(self.hosts)}")
            await JSONResponse(error_to_json(error), status_code=400)(scope, receive, send)
            return
        await self.app(scope, receive, send)


def host_name(header: str) -> str:
    """The name in a Host header, without the port.

    >>> host_name("localhost:8080"), host_name("[::1]:8080"), host_name("127.0.0.1")
    ('localhost', '[::1]', '127.0.0.1')
    """
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.partition(":")[0].lower()
