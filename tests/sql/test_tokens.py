"""Tokens are Spark's: numbers with suffixes, names that start with a digit, nested comments, hints."""

from __future__ import annotations

import pytest

from millstream.sql.tokens import Token, locate, string_value, tokenize

CASES = {
    "numbers": ("10L 1.5BD .5 5. 1e5 2.E-3 3D", ["10L", "1.5BD", ".5", "5.", "1e5", "2.E-3", "3D"]),
    "names": ("1a t.1b `a``b` x_1", ["1a", "t", ".", "1b", "`a``b`", "x_1"]),
    "fraction of a column": ("t.5a", ["t", ".", "5a"]),
    "strings": (r"""'it''s' "x" 'a\'b' r'a\b'""", ["'it''s'", '"x"', r"'a\'b'", r"r'a\b'"]),
    "comments": ("a -- b '\n/* c /* d */ ' */ e", ["a", "e"]),
    "open comment": ("a /* b", ["a"]),
    "hint": ("SELECT /*+ APPROX(0.05, 0.95) */ a", ["SELECT", "/*+ APPROX(0.05, 0.95) */", "a"]),
    "operators": ("a<=>b<=c||d!=e::int", ["a", "<=>", "b", "<=", "c", "||", "d", "!=", "e", "::", "int"]),
    "open string": ("a 'b", ["a", "'", "b"]),
}


@pytest.mark.parametrize("case", CASES)
def test_texts(case: str) -> None:
    sql, expected = CASES[case]
    tokens = tokenize(sql)
    assert [token.text for token in tokens] == expected
    assert [sql[token.start : token.stop] for token in tokens] == expected


@pytest.mark.parametrize(
    ("text", "value"), [("'a b'", "a b"), ('"a\'b"', "a'b"), ("'it''s'", None), (r"'a\n'", None), ("r'a'", None)]
)
def test_string_values(text: str, value: str | None) -> None:
    assert string_value(tokenize(text)[0]) == value


def test_names_lose_their_backquotes() -> None:
    assert Token("quoted", "`a``b`", 0, 6, "").name == "a`b"


def test_locate_takes_the_first_phrase_that_is_there() -> None:
    sql = "SELECT now, `now` () FROM s"
    assert locate(tokenize(sql), "CUBE", "now (") == (12, 17)
    assert locate(tokenize(sql), "CUBE") is None
