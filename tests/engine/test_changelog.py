"""The changelog while the metastore is away; without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.catalog.metastore import Metastore
from millstream.engine.changelog import Changelog
from millstream.engine.registry import NewRequest, Registry
from millstream.errors import EngineError
from millstream.runtime.home import Home
from tests.catalog.builders import create, stream, windowed
from tests.support import proxy as network
from tests.support.postgres import Server
from tests.support.proxy import Proxy, proxied


@pytest.fixture
def line(postgres: Server) -> Iterator[Proxy]:
    with proxied(postgres.port) as proxy:
        yield proxy


@pytest.fixture
def store(postgres: Server, line: Proxy) -> Iterator[Metastore]:
    url = postgres.empty_database().replace(f":{postgres.port}/", f":{line.port}/")
    metastore = Metastore.open(url, holder="test", limit=0.2)
    metastore.add_stream(stream())
    yield metastore
    metastore.close()


@pytest.fixture
def registry(store: Metastore, home: Path) -> Iterator[Registry]:
    place = Home(str(home))
    place.create()
    registry = Registry(store, place)
    registry.load()
    yield registry
    registry.close()


def request(registry: Registry, id: str) -> NewRequest:
    query = windowed()
    return NewRequest(id, "me", None, query, registry.selections_of(query))


#  create q1 ──► commit, its answer is lost, and the line is cut ──────────── line is back ──► q1 is sealed
#  create q2 ───────────► not taken up: withdrawn at the limit
def test_the_outcome_of_a_lost_commit_is_found_out_and_what_waits_is_withdrawn(
    store: Metastore, registry: Registry, line: Proxy
) -> None:
    def lost(data: bytes) -> str:
        if b"COMMIT\0" not in data:
            return network.PASS
        threading.Thread(target=line.cut).start()
        return network.AFTER

    changelog = Changelog(registry, 0.0, 100, store.outage)
    line.fate = lost
    (first,) = changelog.submit([request(registry, "q1")])
    while store.outage.reason is None:
        time.sleep(0.005)
    (second,) = changelog.submit([request(registry, "q2")])
    with pytest.raises(EngineError) as withdrawn:
        changelog.sealed(second)
    assert (withdrawn.value.code, withdrawn.value.hint[:20]) == ("METASTORE_AWAY", "nothing was changed;")  # type: ignore[index]
    with pytest.raises(EngineError, match="is not known") as unknown:
        changelog.sealed(first)
    assert unknown.value.code == "METASTORE_AWAY"

    line.fate = lambda data: network.PASS
    line.restore()
    assert changelog.sealed(first).epoch.number == 1
    (third,) = changelog.submit([request(registry, "q3")])
    assert changelog.sealed(third).epoch.number == 2
    assert [query.id for query in store.queries()] == ["q1", "q3"]
    assert registry.running == 2
    changelog.stop()


def test_requests_that_meet_an_outage_together_end_together(store: Metastore, registry: Registry, line: Proxy) -> None:
    """One after the other, each with a limit of its own, the last would wait for all of them."""
    changelog = Changelog(registry, 0.0, 100, store.outage)
    line.cut()
    requests = [request(registry, f"q{number}") for number in range(50)]
    errors = []
    for future in changelog.submit(requests):
        with pytest.raises(EngineError) as error:
            changelog.sealed(future)
        errors.append(error.value)
    assert {id(error) for error in errors} == {id(errors[0])}, "one seal was tried for all"
    assert errors[0].code == "METASTORE_AWAY"
    line.restore()
    assert store.queries() == []
    assert store.seal(create("q")).number == 1
    changelog.stop()
