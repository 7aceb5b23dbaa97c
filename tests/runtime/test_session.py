"""The sessions that we make ourselves; each in a process of its own, since the tests share another."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SHOWN = """
import json
from millstream.runtime.session import build_session, plain_session
session = {made}
java = session.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
print(json.dumps([session.sparkContext.master, list(java.getInputArguments())]))
session.stop()
"""
QUICK = "-XX:TieredStopAtLevel=1"


def shown(made: str) -> tuple[str, list[str]]:
    code = [sys.executable, "-c", SHOWN.format(made=made)]
    done = subprocess.run(code, check=True, capture_output=True, text=True)
    master, arguments = json.loads(done.stdout)
    return master, arguments


@pytest.mark.parametrize(
    ("made", "quick"),
    [
        ("build_session()", True),
        ("build_session(quick_java=False)", False),
        ("plain_session('plain')", False),
    ],
)
def test_only_the_java_of_an_engine_compiles_quickly(made: str, quick: bool) -> None:
    master, arguments = shown(made)
    assert master.startswith("local[")
    assert master.endswith(",3]"), "failed tasks are tried again"
    assert (QUICK in arguments) == quick
