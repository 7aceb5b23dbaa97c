"""Random scalar expressions, each as two texts built from the same parts.

``engine`` is what the user would write. ``twin`` is for plain Spark, with ``try_`` forms wherever Spark in ANSI mode
fails on a row, since Millstream then gives NULL for the operator that fails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from .functions import CHOICES, FUNCTIONS, Function
from .numeric import (
    FLOATS,
    INTEGER_BOUND,
    INTEGERS,
    MAX_DIGITS,
    NUMBERS,
    UNKNOWN,
    WHOLE,
    Range,
    common,
    decimal_digits,
    decimal_result,
    digits_of,
)

# What expressions of these types are made of rarely fits 38 digits any more; deeper trees stop there.
ROOMY_DIGITS = 26
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
COARSE = ("string", "boolean", "tinyint", "int")
ORDERINGS = ("<>", "<", "<=", ">", ">=")
PATTERNS = ("a%", "%a%", "_b%", "%", "", "%\\\\%%", "a\\\\_b", "%e_", "%y", "R%", "o%x", "%ß%", "___", "% %")
# Digits of a decimal that a sign may stand before.
SIGNED_DIGITS = 34
TWINS = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}


@dataclass(frozen=True, slots=True)
class Sql:
    """An expression. ``stable``: any correct engine gives the same bits, so conditions may be built on it."""

    engine: str
    twin: str
    type: str
    range: Range = UNKNOWN
    digits: tuple[int, int] = (0, 0)
    stable: bool = True

    def __str__(self) -> str:
        return self.engine


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column, key or aggregate that expressions are built on, with constants worth comparing it to."""

    sql: Sql
    constant: Callable[[Random], str]


def same(text: str, kind: str, range: Range = UNKNOWN, digits: tuple[int, int] = (0, 0)) -> Sql:
    return Sql(text, text, kind, range, digits)


def join(template: str, *parts: Sql) -> tuple[str, str]:
    return template.format(*(p.engine for p in parts)), template.format(*(p.twin for p in parts))


def boolean(template: str, *parts: Sql) -> Sql:
    engine, twin = join(template, *parts)
    return Sql(engine, twin, "boolean", WHOLE, stable=all(p.stable for p in parts))


def arithmetic(operator: str, a: Sql, b: Sql) -> Sql:
    """``a operator b`` for numbers, with Spark's type."""
    kind = common(a.type, b.type)
    digits = (0, 0)
    if kind == "decimal":
        digits = decimal_result(operator, digits_of(a.type, a.digits), digits_of(b.type, b.digits))
    elif operator == "/":
        kind = "double"
    values = {"+": a.range.plus, "-": a.range.plus, "*": a.range.times, "/": a.range.over, "%": a.range.union}[
        operator
    ](b.range)
    if operator == "%" and kind in FLOATS:
        values = Range(None, b.range.bound)
    if kind in INTEGERS:
        values = Range(0, min(values.bound, INTEGER_BOUND[kind]))
    engine = f"({a.engine} {operator} {b.engine})"
    return Sql(engine, f"{TWINS[operator]}({a.twin}, {b.twin})", kind, values, digits, a.stable and b.stable)


def negated(operator: str, a: Sql) -> Sql:
    """``- a`` or ``abs(a)``; both overflow for the smallest integer."""
    engine, twin = join("(- {0})" if operator == "-" else "abs({0})", a)
    if a.type in INTEGERS:
        inner = f"CAST({a.twin} AS DECIMAL(20,0))"
        twin = f"try_cast({'- ' + inner if operator == '-' else f'abs({inner})'} AS {a.type})"
    return replace(a, engine=engine, twin=twin)


class Expressions:
    """Draws expressions over ``leaves``. With ``stable`` none of them may differ between engines in any digit."""

    def __init__(
        self, rng: Random, leaves: Sequence[Leaf], constants: Random | None = None, *, stable: bool = True
    ) -> None:
        self.rng = rng
        self.constants = constants or rng
        self.leaves = [leaf for leaf in leaves if leaf.sql.stable or not stable]
        self.stable = stable

    def value(self, depth: int) -> Sql:
        """A value of any type."""
        if depth <= 0 or self.rng.random() < 0.3:
            return self.rng.choice(self.leaves).sql
        draw = self.rng.random()
        return (
            self.number(depth)
            if draw < 0.55
            else self.typed(self.rng.choice(("string", "date", "timestamp", "boolean")), depth)
        )

    def typed(self, kind: str, depth: int) -> Sql:
        """A value of one type (``number``, ``whole``, ``real`` are families of types)."""
        if kind == "number":
            return self.number(depth)
        if kind == "whole":
            return self._cast(self.number(depth, INTEGERS), INTEGERS, "BIGINT")
        if kind == "real":
            return self._cast(self.number(depth, FLOATS), ("double",), "DOUBLE")
        if kind == "decimal":
            return self._cast(self.leaf(("decimal", "int")), ("decimal",), "DECIMAL(18,3)")
        if kind == "boolean":
            return self.predicate(depth)
        if depth <= 0 or self.rng.random() < 0.45:
            return self.leaf((kind,))
        if self.rng.random() < 0.3:
            return self.conditional(kind, depth)
        return self.call(self.rng.choice([f for f in FUNCTIONS if f.result == kind]), depth)

    def leaf(self, kinds: Sequence[str]) -> Sql:
        fitting = [leaf.sql for leaf in self.leaves if leaf.sql.type in kinds]
        return self.rng.choice(fitting) if fitting else self.invented(self.rng.choice(list(kinds)))

    def invented(self, kind: str) -> Sql:
        """A constant, where no leaf has the type."""
        small = self.constants.randint(-5, 20)
        texts = {
            "string": "'ruby'",
            "date": "DATE '2024-01-09'",
            "timestamp": "TIMESTAMP '2024-01-09 10:20:30.25'",
            "timestamp_ntz": "TIMESTAMP_NTZ '2024-01-09 10:20:30.25'",
            "boolean": "TRUE",
            "int": str(small),
            "double": f"{small}.5D",
            "float": f"{small}.5F",
            "decimal": f"{small}.75",
            "bigint": f"{small}L",
            "smallint": f"{small}S",
            "tinyint": f"{small}Y",
        }
        fraction = None if kind == "decimal" else 1
        return same(texts[kind], kind, Range(fraction, 21.0) if kind in NUMBERS else UNKNOWN, (4, 2))

    def number(self, depth: int, kinds: Sequence[str] = NUMBERS) -> Sql:
        if depth <= 0 or self.rng.random() < 0.3:
            return self.leaf(kinds)
        draw = self.rng.random()
        if draw < 0.5:
            return self._arithmetic(depth, kinds)
        if draw < 0.6:
            number = self.number(depth - 1, kinds)
            # Spark rounds longer decimals when it changes their sign, and the engine refuses that.
            if number.type == "decimal" and digits_of(number.type, number.digits)[0] > SIGNED_DIGITS:
                return number
            return negated(self.rng.choice(("-", "abs")), number)
        if draw < 0.75:
            return self.conditional(self.rng.choice(list(kinds)), depth)
        return self.call(self.rng.choice([f for f in FUNCTIONS if f.result in kinds]), depth)

    def _arithmetic(self, depth: int, kinds: Sequence[str]) -> Sql:
        a = self.number(depth - 1, kinds)
        operator = self.rng.choice("++--**/%")
        b = (
            same(self.rng.choice(("2", "3", "10")), "int", Range(0, 10.0))
            if self.rng.random() < 0.3
            else self.number(depth - 1, kinds)
        )
        if operator == "/" and kinds == INTEGERS:
            operator = "%"
        return arithmetic(operator, a, b) if fits(operator, a, b) else a

    def call(self, function: Function, depth: int) -> Sql:
        if self.stable and not function.stable:
            return self.typed(function.result, depth - 1)
        arguments = [
            same(self.constants.choice(CHOICES[kind]), "choice") if kind in CHOICES else self.typed(kind, depth - 1)
            for kind in function.arguments
        ]
        values = INTEGER_BOUND.get(function.result)
        values_of = Range(0, values) if values else self._result_range(function, arguments)
        stable = function.stable and all(a.stable for a in arguments)
        engine = function.text.format(*(a.engine for a in arguments))
        return Sql(
            engine, function.twin.format(*(a.twin for a in arguments)), function.result, values_of, stable=stable
        )

    def _result_range(self, function: Function, arguments: list[Sql]) -> Range:
        name = function.text.partition("(")[0]
        if name in ("abs", "", "nanvl") and function.result == "double":
            return arguments[0].range.union(arguments[-1].range)
        if name in ("CAST", "sqrt", "round") and arguments[0].type != "string":
            kept = arguments[0].range if name == "CAST" else Range(None, arguments[0].range.bound + 1)
            return kept
        return UNKNOWN

    def conditional(self, kind: str, depth: int) -> Sql:
        """CASE, IF, coalesce, nullif, greatest and least over values of one type."""
        a, b = self.leaf((kind,)), self.leaf((kind,))
        # A second try, since most of these forms say little about a value and itself.
        b = b if a != b else self.leaf((kind,))
        test = self.predicate(depth - 1)
        template = self.rng.choice(
            (
                "CASE WHEN {2} THEN {0} ELSE {1} END",
                "CASE WHEN {2} THEN {0} END",
                "if({2}, {0}, {1})",
                "coalesce({0}, {1})",
                "nvl({0}, {1})",
                "nullif({0}, {1})",
                "greatest({0}, {1})",
                "least({0}, {1})",
            )
        )
        engine, twin = join(template, a, b, test)
        digits = decimal_result("union", a.digits, b.digits) if kind == "decimal" else (0, 0)
        return Sql(engine, twin, kind, a.range.union(b.range), digits, a.stable and b.stable and test.stable)

    def _cast(self, a: Sql, kinds: Sequence[str], target: str) -> Sql:
        if a.type in kinds:
            return a
        engine, twin = f"CAST({a.engine} AS {target})", f"try_cast({a.twin} AS {target})"
        values = a.range if target == "DOUBLE" else Range(0, INTEGER_BOUND["bigint"])
        return Sql(engine, twin, target.partition("(")[0].lower(), values, (18, 3), a.stable)

    def predicate(self, depth: int) -> Sql:
        """A Boolean expression in three-valued logic."""
        draw = self.rng.random()
        if draw < 0.02:
            return boolean(self.rng.choice(("TRUE", "(1 = 1)", "(NULL = 1)", "CAST(NULL AS BOOLEAN)", "(NOT FALSE)")))
        if depth <= 0 or draw < 0.4:
            return self.comparison()
        if draw < 0.55:
            return boolean(
                self.rng.choice(("({0} AND {1})", "({0} OR {1})")), self.predicate(depth - 1), self.predicate(depth - 1)
            )
        if draw < 0.62:
            return boolean("(NOT {0})", self.predicate(depth - 1))
        if draw < 0.74:
            return self._compared_values(depth - 1)
        if draw < 0.80:
            return boolean("(CASE WHEN {0} THEN {1} ELSE {2} END)", *(self.predicate(depth - 1) for _ in range(3)))
        if draw < 0.9:
            return self.call(self.rng.choice([f for f in FUNCTIONS if f.result == "boolean"]), depth)
        return boolean(self.rng.choice(("({0} IS NULL)", "({0} IS NOT NULL)")), self.value(depth - 1))

    def comparison(self) -> Sql:
        """A leaf against constants: what most conditions of most users are."""
        leaf = self.rng.choice(self.leaves)
        draw = self.rng.random()
        if leaf.sql.type == "boolean" and draw < 0.5:
            return leaf.sql
        if draw < 0.55:
            return boolean(f"({{0}} {self._operator(leaf)} {leaf.constant(self.constants)})", leaf.sql)
        if draw < 0.65:
            return boolean(f"({leaf.constant(self.constants)} {self._operator(leaf)} {{0}})", leaf.sql)
        if draw < 0.75:
            return self._among(leaf)
        if draw < 0.85 and leaf.sql.type not in ("string", "boolean"):
            word = self.rng.choice(("BETWEEN", "BETWEEN", "NOT BETWEEN"))
            low, high = sorted((leaf.constant(self.constants), leaf.constant(self.constants)), key=_size)
            return boolean(f"({{0}} {word} {low} AND {high})", leaf.sql)
        if draw < 0.95 and leaf.sql.type == "string":
            return boolean(f"({{0}} {self.rng.choice(('LIKE', 'NOT LIKE'))} '{self.rng.choice(PATTERNS)}')", leaf.sql)
        if draw < 0.95 and leaf.sql.type in COARSE:
            return boolean(f"({{0}} <=> {leaf.constant(self.constants)})", leaf.sql)
        return boolean(self.rng.choice(("({0} IS NULL)", "({0} IS NOT NULL)")), leaf.sql)

    def _operator(self, leaf: Leaf) -> str:
        """Equality seldom holds for values that hardly ever occur twice."""
        return self.rng.choice(COMPARISONS if leaf.sql.type in COARSE or self.rng.random() < 0.1 else ORDERINGS)

    def _among(self, leaf: Leaf) -> Sql:
        constants = [leaf.constant(self.constants) for _ in range(self.rng.randint(1, 4))]
        if self.rng.random() < 0.1:
            constants.append("NULL")
        return boolean(f"({{0}} {self.rng.choice(('IN', 'IN', 'NOT IN'))} ({', '.join(constants)}))", leaf.sql)

    def _compared_values(self, depth: int) -> Sql:
        template = f"({{0}} {self.rng.choice((*COMPARISONS, '<=>'))} {{1}})"
        if self.rng.random() < 0.6:
            return boolean(template, self.number(depth), self.number(depth))
        kind = self.rng.choice(("string", "date", "timestamp"))
        return boolean(template, self.typed(kind, depth), self.typed(kind, depth))


def fits(operator: str, a: Sql, b: Sql) -> bool:
    """Whether the operation needs no more digits than a decimal has; the engine refuses those that do."""
    if common(a.type, b.type) != "decimal":
        return True
    left, right = digits_of(a.type, a.digits), digits_of(b.type, b.digits)
    if operator == "/":
        return left[0] - left[1] + right[1] + decimal_result(operator, left, right)[1] <= MAX_DIGITS
    return decimal_digits("union" if operator == "%" else operator, left, right)[0] <= MAX_DIGITS


def _size(constant: str) -> tuple[float, str]:
    """Order of constants of one kind: numbers by value, times by text."""
    try:
        return float(constant.rstrip("D")), ""
    except ValueError:
        return 0.0, constant[constant.find("'") :]


def summable(a: Sql) -> bool:
    """Whether SUM and AVG over it are defined whatever the order: numbers of known size, decimals with room."""
    if a.type == "decimal":
        return a.digits[0] <= ROOMY_DIGITS
    return a.type in NUMBERS and math.isfinite(a.range.bound)
