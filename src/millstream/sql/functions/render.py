"""From typed expressions to DuckDB SQL.

A template may use an argument more than once, and nested calls would then grow exponentially. So a
:class:`Program` binds such arguments to columns of inner projections; ``translate`` writes them out in place.
Every operator is total, which makes it safe to evaluate a bound value on rows that do not need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from millstream.model.expression import Call, Column, Expression, walk
from millstream.sql.functions.folding import folded
from millstream.sql.functions.literals import constant, identifier
from millstream.sql.functions.table import Function, Let, lookup, unsupported_function

# Stands for argument k while a template is rendered; ``literals.text`` keeps these characters out of constants.
_TOKEN = "\x01{}\x02"
_TOKENS = re.compile("\x01([0-9]+)\x02")


def function_of(call: Call) -> Function:
    function = lookup(call.op)
    if function is None:
        raise unsupported_function(call.op)
    return function


def can_fail(expression: Expression) -> bool:
    """Whether some operator of the expression can fail at run time in Spark."""
    return any(isinstance(n, Call) and function_of(n).fallible(n) for n in walk(expression))


@dataclass(frozen=True, slots=True)
class _Piece:
    """SQL over the columns of projection ``level`` (0 is the input)."""

    sql: str
    level: int = 0
    simple: bool = False


@dataclass(slots=True)
class Program:
    """SQL for many expressions over one input, sharing what they have in common.

    >>> from millstream.model.types import INTEGER
    >>> program = Program()
    >>> program.value(Column("a", INTEGER))
    '"a"'
    >>> program.select(['"a" AS x'], "t")
    'SELECT "a" AS x FROM t'
    """

    binding: bool = True
    _pieces: dict[Expression, _Piece] = field(default_factory=dict)
    _bound: dict[str, _Piece] = field(default_factory=dict)
    _levels: list[list[str]] = field(default_factory=list)
    _count: int = 0

    def value(self, expression: Expression) -> str:
        """SQL of the value, valid in ``select``."""
        return self._piece(expression).sql

    def failures(self, expression: Expression) -> str | None:
        """SQL of the number of operators that fail on a row, valid in ``select``; None when none can."""
        found: dict[Call, list[tuple[_Piece, ...]]] = {}
        self._collect(expression, (), found)
        terms = [self._failed(call, paths).sql for call, paths in found.items()]
        return " + ".join(f"CASE WHEN {term} THEN 1 ELSE 0 END" for term in terms) if terms else None

    def select(self, outputs: Sequence[str], source: str) -> str:
        """The query that gives ``outputs`` from ``source``, with the projections the values need below them."""
        for level in self._levels:
            source = f"(SELECT *, {', '.join(level)} FROM {source})"
        return f"SELECT {', '.join(outputs)} FROM {source}"

    def _piece(self, expression: Expression) -> _Piece:
        known = self._pieces.get(expression)
        if known is None:
            known = self._pieces[expression] = self._render(expression)
        return known

    def _render(self, expression: Expression) -> _Piece:
        if isinstance(expression, Column):
            return _Piece(identifier(expression.name), simple=True)
        if not isinstance(expression, Call):
            return _Piece(constant(expression), simple=True)
        template = function_of(expression).template
        return self._compose([self._piece(a) for a in expression.args], lambda args: template(expression, args))

    def _compose(self, args: Sequence[_Piece], template: Callable[[Sequence[str]], str | Let]) -> _Piece:
        """Fill a template, binding the arguments and steps that it uses more than once."""
        filled = template([_TOKEN.format(index) for index in range(len(args))])
        steps: list[str] = []
        while isinstance(filled, Let):
            steps.append(filled.value)
            filled = filled.body(_TOKEN.format(len(args) + len(steps) - 1))
        texts = [*steps, filled]
        pieces = [self._used(piece, index, texts) for index, piece in enumerate(args)]
        for step in steps:
            pieces.append(self._used(_fill(step, pieces), len(pieces), texts))
        return _fill(filled, pieces)

    def _used(self, piece: _Piece, index: int, texts: Sequence[str]) -> _Piece:
        """The piece itself, or the column it is bound to when the texts use it more than once."""
        uses = sum(text.count(_TOKEN.format(index)) for text in texts)
        return self._bind(piece) if uses > 1 and self.binding and not piece.simple else piece

    def _bind(self, piece: _Piece) -> _Piece:
        known = self._bound.get(piece.sql)
        if known is None:
            name = identifier(f"#v{self._count}")
            self._count += 1
            while len(self._levels) <= piece.level:
                self._levels.append([])
            self._levels[piece.level].append(f"{piece.sql} AS {name}")
            known = self._bound[piece.sql] = _Piece(name, piece.level + 1, simple=True)
        return known

    def _collect(
        self, expression: Expression, path: tuple[_Piece, ...], found: dict[Call, list[tuple[_Piece, ...]]]
    ) -> None:
        """Find the fallible calls, each with the guards of every path that leads to it."""
        if not isinstance(expression, Call) or not can_fail(expression):
            return
        function = function_of(expression)
        if function.fallible(expression):
            paths = found.setdefault(expression, [])
            if path not in paths:
                paths.append(path)
        for index, argument in enumerate(expression.args):
            if can_fail(argument):
                guard = self._guard(function, expression, index)
                self._collect(argument, path if guard is None or guard in path else (*path, guard), found)

    def _guard(self, function: Function, call: Call, index: int) -> _Piece | None:
        if function.guard(call, ["x"] * len(call.args), index) is None:
            return None
        return self._compose(
            [self._piece(a) for a in call.args], lambda args: function.guard(call, args, index) or "TRUE"
        )

    def _failed(self, call: Call, paths: Sequence[tuple[_Piece, ...]]) -> _Piece:
        function = function_of(call)
        pieces = [self._piece(argument) for argument in call.args] + [self._piece(call)]
        failed = self._compose(pieces, lambda args: function.failure(call, args[:-1], args[-1]))
        if () in paths:
            return failed
        taken = " OR ".join("(" + " AND ".join(guard.sql for guard in path) + ")" for path in paths)
        return _Piece(f"(({taken}) AND {failed.sql})")


def _fill(text: str, pieces: Sequence[_Piece]) -> _Piece:
    """The text with its tokens replaced."""
    used = [pieces[int(index)] for index in _TOKENS.findall(text)]
    sql = _TOKENS.sub(lambda match: pieces[int(match[1])].sql, text)
    return _Piece(f"({sql})", max((piece.level for piece in used), default=0))


def translate(expression: Expression) -> str:
    """DuckDB SQL of the value; NULL where an operator of it fails in Spark.

    >>> from millstream.model.expression import Literal
    >>> from millstream.model.types import INTEGER
    >>> translate(Literal(1, INTEGER))
    "CAST('1' AS INTEGER)"
    """
    return Program(binding=False).value(folded(expression))


def failures(expression: Expression) -> str | None:
    """DuckDB SQL of the number (INTEGER, never NULL) of operators that fail on the row; None when none can.

    Branches that Spark does not take are not counted, and an operator that occurs twice counts once.
    """
    return Program(binding=False).failures(folded(expression))
