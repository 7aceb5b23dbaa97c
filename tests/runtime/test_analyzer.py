"""What the analyzer leaves on disk: nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.runtime.analyzer import SparkAnalyzer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_nothing_is_left_behind(spark: SparkSession) -> None:
    analyzer = SparkAnalyzer(spark)
    assert analyzer.schema("SELECT 1 AS one") == [("one", "integer")]
    file = analyzer._asking._answer
    assert file.stat().st_mode & 0o077 == 0, "nobody else reads the texts of users"
    analyzer.close()
    assert not file.exists()
