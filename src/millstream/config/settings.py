"""How an engine runs: every setting with the reason for its default."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import SpecError


@dataclass(frozen=True, slots=True)
class Settings:
    """How an engine runs. Durations are microseconds here and words (``5 seconds``) in files."""

    home: str = "~/.millstream"
    # None: SQLite inside the home, which needs no server; an SQLAlchemy URL for PostgreSQL.
    metastore_url: str | None = None
    # 0: the next micro-batch is planned as soon as the last one is committed, which keeps latency lowest.
    trigger_interval: int = 0
    # Tasks of an ingest or fire job; None: as many as the Spark session runs at once.
    parallelism: int | None = None
    # A changelog batch is sealed after this many requests or this long, whichever comes first. AStream waits
    # a second; an acknowledgement within 0.3 s leaves no room for that.
    seal_requests: int = 100
    seal_delay: int = 20_000
    # Answers older than this may be removed; a reader that resumes later gets BAD_CURSOR.
    answer_retention: int = 24 * 3_600_000_000
    dead_letter_retention: int = 30 * 24 * 3_600_000_000
    # At a stop, a running micro-batch or fire gets so long to finish; then it is abandoned, and repeated later.
    stop_grace: int = 10_000_000
    # Loopback only: whoever can connect can create queries.
    http_host: str = "127.0.0.1"
    # 0: any free port; the running engine writes the one it got into its home.
    http_port: int = 0

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise SpecError("BAD_SPEC", f"setting {name} is {value}, but must be at least {least}")
        if self.http_port > _MAX_PORT:
            raise SpecError("BAD_SPEC", f"setting http_port is {self.http_port}, but must be at most {_MAX_PORT}")


_MAX_PORT = 65_535
LEAST = {
    "trigger_interval": 0,
    "parallelism": 1,
    "seal_requests": 1,
    "seal_delay": 0,
    "answer_retention": 0,
    "dead_letter_retention": 0,
    "stop_grace": 0,
    "http_port": 0,
}
DURATION_SETTINGS = ("trigger_interval", "seal_delay", "answer_retention", "dead_letter_retention", "stop_grace")
TEXT_SETTINGS = ("metastore_url",)
