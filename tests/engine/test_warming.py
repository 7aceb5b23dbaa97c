"""Warming up: every text of it must be one that users could write, or it would end at the first."""

import threading

from pyspark.sql import SparkSession

from millstream.engine.warming import STREAM, begin_warm_up, texts, warm_up
from millstream.runtime.analyzer import SparkAnalyzer
from millstream.sql.frontend import FrontEnd


class Counting(SparkAnalyzer):
    plans = 0

    def plan(self, sql: str) -> str:
        self.plans += 1
        return super().plan(sql)


def test_every_text_is_a_query(spark: SparkSession) -> None:
    analyzer = SparkAnalyzer(spark)
    analyzer.register(STREAM)
    front_end = FrontEnd(analyzer, lambda: {STREAM.name: STREAM})
    assert len([front_end.compile(sql) for sql in texts()]) > 20


def test_it_leaves_nothing_behind(spark: SparkSession) -> None:
    analyzer = Counting(spark)
    warm_up(analyzer, threading.Event())
    assert analyzer.plans == len(list(texts())), "no shape is met three times"
    assert analyzer._session.catalog.listTables() == []


def test_it_is_done_once_for_an_application_and_ends_with_the_engine(spark: SparkSession) -> None:
    analyzer, stopping = Counting(spark), threading.Event()
    stopping.set()
    thread = begin_warm_up(analyzer, "application of this test", stopping)
    assert thread is not None
    thread.join()
    assert analyzer.plans == 0
    assert begin_warm_up(analyzer, "application of this test", stopping) is None
