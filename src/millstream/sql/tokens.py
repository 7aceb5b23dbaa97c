"""Spark SQL's words: what its lexer makes of a text, with the place of each token.

Spark's analyzer decides what a query means; tokens only serve to find places in the text, to read window calls
and to tell texts apart that differ in literals alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

WORD, QUOTED, NUMBER, STRING, OPERATOR, HINT = "word", "quoted", "number", "string", "operator", "hint"

# The order matters: a number's suffix belongs to it only when no other letter follows (`5L` is a number, `5Ls` a name),
# and names may start with a digit.
_TOKEN = re.compile(
    r"""
      (?P<skip>\s+|--(?:\\\n|[^\n])*)
    | (?P<hint>/\*\+.*?\*/)
    | (?P<comment>/\*)
    | (?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?:[lLsSyYfFdD]|[bB][dD])?(?![\w]))
    | (?P<word>\w+)
    | (?P<operator><=>|>>>|<=|>=|<>|!=|==|!<|!>|<<|>>|\|\||\|>|::|->|=>|:=|.)
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """``sql[start:stop]`` is ``text``; ``word`` is the upper-case text of a bare word, else empty."""

    kind: str
    text: str
    start: int
    stop: int
    word: str

    @property
    def name(self) -> str:
        """The identifier this token stands for, without backquotes."""
        return self.text[1:-1].replace("``", "`") if self.kind == QUOTED else self.text


def tokenize(sql: str) -> list[Token]:
    """The tokens of a text, without blanks and comments; a hint is one token.

    >>> [token.text for token in tokenize("SELECT a -- b\\n > 1.5BD")]
    ['SELECT', 'a', '>', '1.5BD']
    """
    tokens: list[Token] = []
    position = 0
    while match := _TOKEN.match(sql, position):
        kind = match.lastgroup or ""
        position = match.end()
        if kind == "skip":
            continue
        if kind == "comment":
            position = _comment_end(sql, position)
            continue
        text = match.group()
        # After a name, `.5` is a dot and a name (`t.5a`), never a fraction.
        if kind == NUMBER and text[0] == "." and _follows_name(tokens, match.start()):
            kind, text, position = OPERATOR, ".", match.start() + 1
        tokens.append(Token(kind, text, match.start(), position, text.upper() if kind == WORD else ""))
    return tokens


def _follows_name(tokens: Sequence[Token], position: int) -> bool:
    if not tokens or tokens[-1].stop != position:
        return False
    return tokens[-1].kind in (WORD, QUOTED) or tokens[-1].text in (")", "]")


def _comment_end(sql: str, position: int) -> int:
    """The end of a bracketed comment whose text starts at ``position``; they nest."""
    depth = 1
    for match in re.compile(r"/\*|\*/").finditer(sql, position):
        depth += 1 if match.group() == "/*" else -1
        if depth == 0:
            return match.end()
    return len(sql)


def string_value(token: Token) -> str | None:
    """The value of a string token, or None where that takes Spark's escape rules."""
    body = token.text[1:-1]
    if token.text[0] in "rR" or "\\" in body or token.text[0] in body:
        return None
    return body


def locate(tokens: Sequence[Token], *phrases: str) -> tuple[int, int] | None:
    """The range of the first of the phrases found: words, the last of which may be ``(`` to ask for a call.

    >>> locate(tokenize("SELECT a FROM s ORDER  BY a"), "SORT BY", "ORDER BY")
    (16, 25)
    >>> locate(tokenize("SELECT rand, rand() FROM s"), "rand (")
    (13, 17)
    """
    for phrase in phrases:
        wanted = phrase.upper().split()
        for index in range(len(tokens) - len(wanted) + 1):
            found = tokens[index : index + len(wanted)]
            if all((token.word or token.name.upper()) == word for token, word in zip(found, wanted, strict=True)):
                last = found[-2] if wanted[-1] == "(" and len(found) > 1 else found[-1]
                return found[0].start, last.stop
    return None
