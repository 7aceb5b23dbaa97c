"""The queries of the AStream workload: one predicate, ``SUM(field1)`` by key, one of 55 windows; made by a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from millstream.bench.workloads.questions import Item, Question, Window, aggregation

STREAM = "tuples"
SCHEMA = ", ".join(["key BIGINT", *(f"field{i} INT" for i in range(1, 6)), "time TIMESTAMP"])

FIELDS = tuple(f"field{i}" for i in range(1, 6))
OPERATORS = ("<", ">", "=", "<=", ">=")
FIELDS_MAX = 500
WINDOW_MAX = 10
KEYS = 1000

# Chosen by what it draws, before anything was measured with it. Its first query has a tumbling window, and half of
# the rows pass its predicate: sliding windows make plain Spark copy every row, so this is the kind that suits it best,
# and the comparison at one query flatters nobody. Its first twenty put a row into 2.0 windows on average, a little
# less than the workload's mean of 2.2.
DEFAULT_SEED = 2218


@dataclass(frozen=True, slots=True)
class AStreamQuery:
    """Window length and slide are in seconds."""

    field: str
    operator: str
    constant: int
    length: int
    slide: int

    @property
    def question(self) -> Question:
        where = f"{self.field} {self.operator} {self.constant}"
        return aggregation(Window(self.length, self.slide), STREAM, where, ("key",), (Item("SUM(field1)", "total"),))

    @property
    def sql(self) -> str:
        """The text, which Millstream and plain Spark both take.

        >>> AStreamQuery("field3", "<=", 120, 8, 4).sql
        "SELECT key, SUM(field1) AS total FROM tuples WHERE field3 <= 120
         GROUP BY key, window(time, '8 seconds', '4 seconds')"
        """
        return self.question.sql


def draw_query(random: Random) -> AStreamQuery:
    length = random.randint(1, WINDOW_MAX)
    return AStreamQuery(
        field=random.choice(FIELDS),
        operator=random.choice(OPERATORS),
        constant=random.randrange(FIELDS_MAX),
        length=length,
        slide=random.randint(1, length),
    )


def draw_queries(count: int, seed: int = DEFAULT_SEED) -> list[AStreamQuery]:
    """The first ``count`` queries of a seed: a smaller number is always the beginning of a larger one."""
    random = Random(seed)
    return [draw_query(random) for _ in range(count)]
