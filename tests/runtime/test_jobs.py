"""What Spark's workers do beside their tasks."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

from millstream.runtime import jobs


def test_workers_give_way_to_the_driver_and_nobody_else_does(spark: SparkSession) -> None:
    mine = os.nice(0)
    found = jobs._run(spark, lambda _: (jobs._give_way(), os.nice(0)), [1, 2], jobs.INGEST_POOL)
    assert {priority for _, priority in found} == {min(19, mine + jobs.GIVE_WAY)}
    jobs._give_way()
    assert os.nice(0) == mine
