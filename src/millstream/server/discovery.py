"""Where the running engine is: a file in its home, and one in the user's directory for the engine started last."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from millstream.crashpoints import crash_point
from millstream.errors import EngineError

ENGINE_FILE = "engine.json"
LAST_FILE = "last.json"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A running engine: where it answers, and which process it is."""

    url: str
    home: str
    pid: int
    started: str
    version: str


def default_home(environment: Mapping[str, str] = os.environ) -> Path:
    """``MILLSTREAM_HOME``, or ``~/.millstream``."""
    named = environment.get("MILLSTREAM_HOME")
    return Path(named) if named else user_directory(environment)


def user_directory(environment: Mapping[str, str] = os.environ) -> Path:
    home = environment.get("HOME")
    return (Path(home) if home else Path.home()) / ".millstream"


def announce(endpoint: Endpoint) -> None:
    """Write both files. The one in the user's directory is a convenience: an unwritable directory is no error."""
    _write(Path(endpoint.home) / ENGINE_FILE, endpoint)
    with contextlib.suppress(OSError):
        _write(user_directory() / LAST_FILE, endpoint)


def withdraw(endpoint: Endpoint) -> None:
    """Remove the files, unless another engine has written them since."""
    for path in (Path(endpoint.home) / ENGINE_FILE, user_directory() / LAST_FILE):
        if _read(path) == endpoint:
            path.unlink(missing_ok=True)


def find(home: Path | None = None) -> Endpoint:
    """The engine of ``home``; without one, that of the default home, else the engine started last."""
    places = [home / ENGINE_FILE] if home else [default_home() / ENGINE_FILE]
    if home is None and "MILLSTREAM_HOME" not in os.environ:
        places.append(user_directory() / LAST_FILE)
    for place in places:
        endpoint = _read(place)
        if endpoint and alive(endpoint.pid):
            return endpoint
    raise EngineError(
        "NOT_RUNNING",
        f"no engine runs on {places[0].parent}",
        hint="start one with: millstream start game.yaml (or millstream demo); "
        "name another with --home, --url, MILLSTREAM_HOME or MILLSTREAM_URL",
    )


def alive(pid: int) -> bool:
    """Whether a process of that id runs; one of another user counts."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _write(path: Path, endpoint: Endpoint) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(asdict(endpoint), indent=2) + "\n")
    crash_point("endpoint.written", str(draft))
    draft.replace(path)
    crash_point("endpoint.announced", str(path))


def _read(path: Path) -> Endpoint | None:
    """The endpoint in a file; None when there is none, or when it is not ours to understand."""
    try:
        return Endpoint(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
