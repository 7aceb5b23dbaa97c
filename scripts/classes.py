"""Make the archive of Spark's classes for this environment: run a small engine once, and keep what its Java used.

    make classes
"""

import subprocess
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext

from millstream import Engine, ParquetFiles
from millstream.runtime.classes import archive, make_archive

PATIENCE = 300.0
QUERY = "SELECT key, COUNT(*) AS n, SUM(value) AS total FROM rows WHERE value > 1 GROUP BY key, window(time, '1 second')"


def main() -> None:
    if archive().is_file():
        return
    print("keeping Spark's classes as Java maps them (about a minute, once)", flush=True)
    archive().parent.mkdir(parents=True, exist_ok=True)
    # Another process may be starting Java with the archive: it is there whole, or not at all.
    draft = archive().with_suffix(".draft")
    draft.unlink(missing_ok=True)
    make_archive(draft)
    with tempfile.TemporaryDirectory() as folder:
        java = run(Path(folder))
    java.stdin.close()
    if java.wait(PATIENCE) or not draft.is_file():
        print("this Java makes no archive of classes; engines start as they are")
        return
    draft.replace(archive())


def run(folder: Path) -> "subprocess.Popen[bytes]":
    """Answer a query over a small file; gives the process of Java, which is still there."""
    (folder / "in").mkdir()
    times = pa.array([n * 100_000 for n in range(100)], pa.timestamp("us", "UTC"))
    rows = pa.table({"time": times, "key": [n % 3 for n in range(100)], "value": list(range(100))})
    pq.write_table(rows, folder / "in" / "rows.parquet")
    with Engine(home=folder / "home") as engine:
        files = ParquetFiles(str(folder / "in"), schema="time TIMESTAMP, key BIGINT, value BIGINT")
        engine.create_stream("rows", files, time="time")
        engine.create_query(QUERY, id="totals")
        engine.await_idle()
        java = SparkContext._gateway.proc
    return java


if __name__ == "__main__":
    main()
