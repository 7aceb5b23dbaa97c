"""The shape of a query: its text with the literals taken out, so that Spark analyses each shape and not each text.

Two texts have the same shape when they differ only in the values of literals of the same class, in window
durations, blanks and comments. A class holds the literals that Spark types alike: integers, long integers, decimals
of one precision and scale, doubles, strings. Beside decimals the number of an integer's digits decides types too, so
a shape also tells the digits. Equal literals stay equal inside a shape, since Spark matches `x + 1` in SELECT with
`x + 1` in GROUP BY.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from millstream.model.expression import Literal
from millstream.model.types import DOUBLE, INTEGER, LONG, STRING, DataType, decimal
from millstream.sql.tokens import HINT, NUMBER, OPERATOR, QUOTED, WORD, Token, string_value, tokenize
from millstream.sql.tokens import STRING as STRING_TOKEN
from millstream.sql.windows import WindowCall, window_calls

INT_LIMIT = 2**31
LONG_LIMIT = 2**63
DECIMAL_DIGITS = 38

# Words before a parenthesis that do not make it the argument list of a function.
_NOT_FUNCTIONS = frozenset(
    {"ALL", "AND", "ANY", "AS", "BETWEEN", "BY", "CASE", "DISTINCT", "ELSE", "EXISTS", "FROM", "HAVING", "ILIKE", "IN"}
    | {"IS", "LIKE", "NOT", "ON", "OR", "OVER", "QUALIFY", "REGEXP", "RLIKE", "SELECT", "SOME", "THEN", "UNION"}
    | {"USING", "VALUES", "WHEN", "WHERE", "WITHIN"}
)
# Words that a string may follow as a plain value; after any other word (DATE, INTERVAL, ESCAPE …) it belongs to it.
_BEFORE_VALUE = _NOT_FUNCTIONS - {"AS"} | {"DIV", "XOR"}
_RANKINGS = frozenset(["ROW_NUMBER", "RANK", "DENSE_RANK"])
_INTERVAL_UNITS = frozenset(
    f"{unit}{plural}"
    for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
    for plural in ("", "S")
)
_ENDS_ITEM = frozenset(
    ["", ",", ")", ";", "HAVING", "ORDER", "WITH", "LIMIT", "QUALIFY", "SORT", "CLUSTER", "WINDOW", "UNION"]
)


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal that may vary inside its shape. ``low`` and ``high`` bound the class of ``number``."""

    type: DataType
    text: str
    number: int | float
    low: int
    high: int

    def value(self, negative: bool) -> int | float | str:
        """The value in Spark's analysed tree, after a minus sign when ``negative``."""
        if self.type == STRING:
            return self.text
        if self.type.kind == "decimal":
            return decimal_text(-self.number if negative else self.number, self.type.scale)
        return -self.number if negative else self.number

    def literal(self, negative: bool) -> Literal:
        return Literal(self.value(negative), self.type)


def decimal_text(unscaled: int | float, scale: int) -> str:
    """The plain text of a decimal.

    >>> decimal_text(-150, 2), decimal_text(5, 3), decimal_text(7, 0)
    ('-1.50', '0.005', '7')
    """
    return format(Decimal(int(unscaled)).scaleb(-scale), "f")


@dataclass(frozen=True, slots=True)
class Shape:
    """``constants`` are the distinct literals in order of appearance; ``places`` say where in the text each one is.

    ``digits`` are the largest numbers of the constants' classes; queries without decimals need not look at them.
    """

    key: str
    digits: tuple[int, ...]
    tokens: tuple[Token, ...]
    windows: tuple[WindowCall, ...]
    constants: tuple[Constant, ...]
    places: tuple[tuple[int, int, str], ...]  # (token, constant, suffix of the number)


def shape_of(sql: str) -> Shape:
    """Take a text apart.

    >>> shape_of("SELECT a FROM s WHERE a > 10").key == shape_of("select".upper() + " a FROM s WHERE a > 42").key
    True
    """
    tokens = tokenize(sql)
    windows = window_calls(tokens)
    durations = {at for call in windows for part in call.arguments[1:] for at in range(part.first, part.last)}
    # Places of durations do not count: whether they are there, and how many, Spark need not know.
    commas = {part.first - 1 for call in windows for part in call.arguments[2:]}
    parts: list[str] = []
    constants: dict[Constant, int] = {}
    places: list[tuple[int, int, str]] = []
    free = _free_literals(tokens)
    for at, token in enumerate(tokens):
        if at in durations or at in commas:
            continue
        constant = constant_of(token) if at in free else None
        if constant is None:
            parts.append(token.text)
            continue
        index = constants.setdefault(constant, len(constants))
        suffix = token.text.lstrip("0123456789.eE+-") if token.kind == NUMBER else ""
        places.append((at, index, suffix))
        parts.append(f"\x01{index}:{constant.type}:{suffix}")
    digits = tuple(constant.high for constant in constants)
    return Shape("\x00".join(parts), digits, tuple(tokens), windows, tuple(constants), tuple(places))


def constant_of(token: Token) -> Constant | None:
    """The constant that a literal stands for, None when its value may decide its type."""
    if token.kind == STRING_TOKEN:
        value = string_value(token)
        return None if value is None else Constant(STRING, value, 0, 0, 0)
    text = token.text.upper()
    digits = text.rstrip("LSYFDB")
    suffix = text[len(digits) :]
    if "E" in digits or suffix == "D":
        return None if suffix not in ("", "D") else Constant(DOUBLE, "", float(digits), 0, 0)
    if digits.isdigit() and suffix in ("", "L"):
        return _integer(digits, suffix)
    if suffix in ("", "BD"):
        return _decimal(digits)
    return None


def _integer(digits: str, suffix: str) -> Constant | None:
    number = int(digits)
    # With a minus sign these two are of another type than without.
    if number in (INT_LIMIT, LONG_LIMIT) or number > LONG_LIMIT:
        return None
    low, high = _digits_range(len(str(number)))
    if number > INT_LIMIT:
        return Constant(LONG, "", number, max(low, INT_LIMIT + 1), min(high, LONG_LIMIT - 1))
    return Constant(LONG if suffix else INTEGER, "", number, low, min(high, INT_LIMIT - 1))


def _decimal(text: str) -> Constant | None:
    whole, _, fraction = text.partition(".")
    number, scale = int(whole + fraction or "0"), len(fraction)
    precision = max(len(str(number)), scale)
    if precision > DECIMAL_DIGITS:
        return None
    low, high = _digits_range(precision)
    return Constant(decimal(precision, scale), "", number, 0 if precision == scale else low, high)


def _digits_range(digits: int) -> tuple[int, int]:
    return (0 if digits == 1 else 10 ** (digits - 1)), 10**digits - 1


def _free_literals(tokens: Sequence[Token]) -> set[int]:
    """Tokens that are literals whose value decides nothing about the plan."""
    free: set[int] = set()
    ranked = any(token.word in _RANKINGS for token in tokens)
    for at, (token, function, grouping) in enumerate(_with_context(tokens)):
        if token.kind not in (NUMBER, STRING_TOKEN):
            continue
        before = tokens[at - 1] if at else Token(OPERATOR, "", 0, 0, "")
        after = tokens[at + 1] if at + 1 < len(tokens) else Token(OPERATOR, "", 0, 0, "")
        if after.word in _INTERVAL_UNITS or STRING_TOKEN in (
            before.kind if token.kind == STRING_TOKEN else "",
            after.kind,
        ):
            continue
        if before.kind in (QUOTED, HINT) or (before.kind == WORD and before.word not in _BEFORE_VALUE):
            continue
        if ranked and token.text == "1" and {before.text, after.text} & {"=", "=="}:
            continue  # the first rank is asked for by equality, no other one can be
        whole = before.text.upper() in ("(", ",", "BY") and (after.word or after.text) in _ENDS_ITEM
        if token.kind == NUMBER and whole and (function or grouping):
            continue  # ROUND(x, 2), DECIMAL(10, 2), GROUP BY 1: such a number can decide a type or a column
        free.add(at)
    return free


def _with_context(tokens: Sequence[Token]) -> Iterator[tuple[Token, bool, bool]]:
    """Each token with: is it directly in a function's argument list, and directly in a GROUP BY or ORDER BY list."""
    stack: list[tuple[bool, bool]] = []
    function = grouping = False
    previous = Token(OPERATOR, "", 0, 0, "")
    for token in tokens:
        if token.text == ")" and stack:
            function, grouping = stack.pop()
        elif token.word == "BY":
            grouping = True
        elif token.word in ("HAVING", "SELECT", "WHERE", "QUALIFY"):
            grouping = False
        yield token, function, grouping
        if token.text == "(":
            stack.append((function, grouping))
            named = previous.kind in (WORD, QUOTED) and previous.word not in _NOT_FUNCTIONS
            function, grouping = named, False
        previous = token


def sentinel(sql: str, shape: Shape) -> str:
    """Another text of the same shape in which every literal has another value.

    >>> text = "SELECT a FROM s WHERE a > 10 AND b = 'x'"
    >>> other = sentinel(text, shape_of(text))
    >>> other, shape_of(other).key == shape_of(text).key
    ("SELECT a FROM s WHERE a > 40 AND b = 'other1'", True)
    """
    taken = {constant.text for constant in shape.constants}
    texts = [_other(constant, index, taken) for index, constant in enumerate(shape.constants)]
    for at, index, suffix in reversed(shape.places):
        token = shape.tokens[at]
        # A decimal without a fraction is one by its suffix or its point.
        point = "." if not suffix and "." in token.text and "." not in texts[index] and token.kind == NUMBER else ""
        sql = sql[: token.start] + texts[index] + point + suffix + sql[token.stop :]
    return sql


def _other(constant: Constant, index: int, taken: set[str]) -> str:
    if constant.type == STRING:
        name = f"other{index}"
        while name in taken:
            name += "x"
        taken.add(name)
        return f"'{name}'"
    if constant.type == DOUBLE:
        # An unusual fraction, so that it is no literal of the text.
        return f"{index + 1}.0009765625E1"
    # Turning the class by a third of its width keeps the values apart from each other and from what they were.
    width = constant.high - constant.low + 1
    number = constant.low + (int(constant.number) - constant.low + width // 3) % width
    return decimal_text(number, constant.type.scale) if constant.type.kind == "decimal" else str(number)
