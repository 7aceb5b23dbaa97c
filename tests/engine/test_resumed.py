"""What an engine says of the one before it. No Spark is needed to know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millstream.engine.core import Core
from millstream.engine.resumed import find_resumed
from millstream.model.stream import Stream
from millstream.runtime.home import Home
from millstream.runtime.jobs import EMPTY
from millstream.sources.schema import parse_ddl
from tests.chaos.stand_in import InProcess

PURCHASES = Stream("purchases", parse_ddl("price BIGINT, time TIMESTAMP"), "time", 0, (("source", "recorded"),))


@contextmanager
def core_on(home: Path, *, in_order: bool = True) -> Iterator[Core]:
    core = Core(Home(str(home)), InProcess(1), clock=lambda: 1_700_000_000_000_000)  # type: ignore[arg-type]
    yield core
    core.close(in_order=in_order)


def lines(core: Core) -> list[str]:
    found = find_resumed(core.metastore, core.registry.running)
    return [] if found is None else list(found.lines())


def test_a_new_home_resumes_nothing(home: Path) -> None:
    with core_on(home) as core:
        assert lines(core) == []


def test_after_a_stop_and_after_a_crash(home: Path) -> None:
    with core_on(home) as core:
        core.add_stream(PURCHASES).process(0, "0", lambda task: EMPTY)
    with core_on(home, in_order=False) as core:
        assert lines(core) == [
            "resumed after a clean stop at 2023-11-14 22:13:20",
            "  purchases: 1 batches, 0 rows, no watermark",
            "  0 queries running",
        ]
        core.metastore.plan_batch("purchases", 1, "1", 0)
    with core_on(home) as core:
        assert lines(core) == [
            "resumed after a crash: the last engine was not stopped in order",
            "  purchases: 1 batches, 0 rows, no watermark, repeats batch 1",
            "  0 queries running",
        ]
    with core_on(home) as core:
        assert lines(core)[0] == "resumed after a clean stop at 2023-11-14 22:13:20"


def test_a_stop_that_cannot_be_noted_counts_as_none(home: Path) -> None:
    with core_on(home) as old, core_on_same(home) as new:
        del new
        assert old.metastore.incarnation == 1
    with core_on(home) as core:
        assert lines(core)[0].startswith("resumed after a crash")


@contextmanager
def core_on_same(home: Path) -> Iterator[None]:
    """Another engine takes over the metastore, and is lost."""
    from millstream.catalog.metastore import Metastore

    Metastore.open(Home(str(home)).metastore_url(), holder="another").close()
    yield
