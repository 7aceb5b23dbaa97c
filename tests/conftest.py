"""One Spark session for the whole run, a fresh home for each test, and how hard hypothesis tries."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from millstream.runtime.classes import OPTIONS, use_archive
from millstream.runtime.java import ensure_java, ensure_python
from tests.support.postgres import OPT_OUT, Server, Unavailable, running_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No deadline: the machines that run this share their cores, and timing never decides a test.
settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), max_examples=100, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# Tests start Spark dozens of times and give it little to do: code that is compiled at once, and not well, is faster.
# Not so for the session that most of them share.
SHARED, SHORT = "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault(OPTIONS, SHORT)

# What runs side by side is files, but for these folders, whose files build on one another.
TOGETHER = ("tests/chaos",)
# What takes longest begins first, so that no process is left with it in the end.
FIRST = ("tests/oracle/test_oracle.py", *TOGETHER)

SPARK_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """What stays in one process where several run the tests."""
    from xdist.scheduler import LoadFileScheduling

    class ByFolder(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid))

    return ByFolder(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes run the tests, begin with what takes long."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: next((n for n, one in enumerate(FIRST) if item.nodeid.startswith(one)), len(FIRST)))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session that all tests share; it stops with the run."""
    from pyspark.sql import SparkSession

    ensure_java()
    ensure_python()
    given = os.environ[OPTIONS]
    if given == SHORT:
        os.environ[OPTIONS] = SHARED
    use_archive()
    # Spark prints the whole query context of each refused query through this logger.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    builder = SparkSession.builder.master("local[2,3]").appName("millstream-tests")
    for name, value in SPARK_SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    session = builder.getOrCreate()
    os.environ[OPTIONS] = given
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The PostgreSQL server that all tests share. Tests that need it fail where it cannot be had, so that nobody takes
    their silence for success; who wants to do without it says so."""
    if os.environ.get(OPT_OUT):
        pytest.skip(f"{OPT_OUT} is set")
    try:
        with running_server() as server:
            yield server
    except Unavailable as error:
        pytest.fail(f"no PostgreSQL server for the tests: {error}", pytrace=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home directory for one engine."""
    path = tmp_path / "home"
    path.mkdir()
    return path
