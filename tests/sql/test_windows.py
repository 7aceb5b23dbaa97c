"""Window calls: Spark's durations, one window for a query, and a text for Spark with every character in its place."""

from __future__ import annotations

import pytest

from millstream.errors import SqlError
from millstream.model.query import WindowSpec
from millstream.sql.tokens import tokenize
from millstream.sql.windows import DurationError, neutral, parse_duration, window_calls, window_specs

SECOND = 1_000_000

DURATIONS = {
    "8 seconds": 8 * SECOND,
    " 1 minute 30 seconds ": 90 * SECOND,
    "INTERVAL 8 SECONDS": 8 * SECOND,
    "1 week -1 day": 6 * 86_400 * SECOND,
    "0.5 second": SECOND // 2,
    ".000001 seconds": 1,
    "1.9999999 seconds": 1_999_999,
    "2.  seconds": 2 * SECOND,
    "+ 3 hours": 3 * 3_600 * SECOND,
    "10 milliseconds 5 microseconds": 10_005,
    "- 4 seconds": -4 * SECOND,
}
NO_DURATIONS = [
    "",
    "8",
    "8 secs",
    "8seconds",
    "1 month",
    "2 years",
    "1.5 minutes",
    "seconds",
    "8 seconds,",
    "99999999999999 days",
    "x",
]


@pytest.mark.parametrize("text", DURATIONS)
def test_durations(text: str) -> None:
    assert parse_duration(text) == DURATIONS[text]


@pytest.mark.parametrize("text", NO_DURATIONS)
def test_no_durations(text: str) -> None:
    with pytest.raises(DurationError):
        parse_duration(text)


def read(sql: str) -> tuple[WindowSpec, ...]:
    tokens = tokenize(sql)
    return window_specs(sql, tokens, window_calls(tokens))


SPECS = {
    "window(time, '8 seconds')": (WindowSpec(8 * SECOND, 8 * SECOND),),
    "WINDOW (t.time, '8 seconds', \"4 seconds\")": (WindowSpec(8 * SECOND, 4 * SECOND),),
    "`window`(time, '8 seconds', '4 seconds', '1 second')": (WindowSpec(8 * SECOND, 4 * SECOND, SECOND),),
    "window(time, '8 seconds', '4 seconds', '-1 second')": (WindowSpec(8 * SECOND, 4 * SECOND, 3 * SECOND),),
    "window(f(time, 1), '8 ' 'seconds')": (WindowSpec(8 * SECOND, 8 * SECOND),),
    "window(time, 5000000, 2000000L)": (WindowSpec(5 * SECOND, 2 * SECOND),),
    "window(time, '2 seconds') + window(time, '2000 milliseconds')": (WindowSpec(2 * SECOND, 2 * SECOND),) * 2,
    "window.start, t.window(time, '8 seconds'), window(time)": (),
    "window(, '8 seconds'), window(time, '8 seconds'": (),
}


@pytest.mark.parametrize("sql", SPECS)
def test_specs(sql: str) -> None:
    assert read(sql) == SPECS[sql]


WRONG = [
    ("window(time, '8 secs')", "'8 secs'", "not a duration"),
    ("window(time, '1 month')", "'1 month'", "months, which are not of one length"),
    ("window(time, r'8 seconds')", "r'8 seconds'", "not a duration"),
    ("window(time, '0 seconds')", "'0 seconds'", "size is '0 seconds', not more than zero"),
    ("window(time, -5)", "-5", "size is -5"),
    ("window(time, 99999999999999999999)", "99999999999999999999", "too long"),
    ("window(time, '8 seconds', '-1 seconds')", "'-1 seconds'", "slide is '-1 seconds', not more"),
    ("window(time, '4 seconds', '8 seconds')", "'8 seconds'", "slide '8 seconds' is larger than its size '4 seconds'"),
    ("window(time, '4 seconds', '4 seconds', '4 seconds')", "'4 seconds'", "offset '4 seconds' is not smaller"),
    ("window(time, INTERVAL 8 SECONDS)", "INTERVAL 8 SECONDS", "is not a literal"),
    ("window(time, 1 + 2)", "1 + 2", "is not a literal"),
]


@pytest.mark.parametrize(("sql", "underlined", "message"), WRONG)
def test_wrong_durations_are_pointed_at(sql: str, underlined: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        read(sql)
    error = caught.value
    assert error.code == "BAD_WINDOW"
    assert message in error.message
    assert error.hint
    assert error.position is not None
    assert sql[error.position.start : error.position.stop] == underlined


def test_every_call_has_its_window() -> None:
    sql = "window(time, '8 seconds'), window(time, '8 seconds', '4 seconds')"
    assert read(sql) == (WindowSpec(8 * SECOND, 8 * SECOND), WindowSpec(8 * SECOND, 4 * SECOND))


def test_the_neutral_text_keeps_places_and_lines() -> None:
    sql = "SELECT window(time, '1 day',\n '1 second') FROM s GROUP BY window(time, '1 day', '1 second'), 'x'"
    shown = neutral(sql, window_calls(tokenize(sql)))
    assert len(shown) == len(sql)
    assert shown.index("FROM") == sql.index("FROM")
    assert [len(line) for line in shown.split("\n")] == [len(line) for line in sql.split("\n")]
    assert [token.text for token in tokenize(shown)][:7] == ["SELECT", "window", "(", "time", ",", "1", ")"]
