"""The functions that random queries use, in one table. A row is a text with places for its arguments.

``twin`` is the text for plain Spark where ``text`` can fail at run time on a row; without one the text serves both.
Arguments are types, families of types (``whole``: integers, ``real``: doubles), or names of verbatim ``CHOICES``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Function:
    result: str
    arguments: tuple[str, ...]
    text: str
    twin: str = ""
    # False where engines may differ in the last digit: then no condition, key or rounding is built on it.
    stable: bool = True


def _f(result: str, arguments: str, text: str, twin: str = "", stable: bool = True) -> Function:
    return Function(result, tuple(arguments.split()), text, twin or text, stable)


FUNCTIONS: tuple[Function, ...] = (
    # strings
    _f("string", "string", "upper({0})"),
    _f("string", "string", "lower({0})"),
    _f("string", "string", "trim({0})"),
    _f("string", "string", "ltrim({0})"),
    _f("string", "string", "reverse({0})"),
    _f("string", "string", "initcap({0})"),
    _f("string", "string position length", "substring({0}, {1}, {2})"),
    _f("string", "string position", "substr({0}, {1})"),
    _f("string", "string length", "left({0}, {1})"),
    _f("string", "string length", "right({0}, {1})"),
    _f("string", "string length", "lpad({0}, {1}, '*')"),
    _f("string", "string string", "concat({0}, {1})"),
    _f("string", "string string", "({0} || {1})"),
    _f("string", "string string", "concat_ws('-', {0}, {1})"),
    _f("string", "string piece piece", "replace({0}, {1}, {2})"),
    _f("string", "string length", "repeat({0}, {1})"),
    _f("string", "whole", "CAST({0} AS STRING)"),
    _f("string", "boolean", "CAST({0} AS STRING)"),
    _f("string", "date", "CAST({0} AS STRING)"),
    _f("int", "string", "length({0})"),
    _f("int", "string", "char_length({0})"),
    _f("int", "string piece", "instr({0}, {1})"),
    _f("int", "string", "ascii({0})"),
    _f("boolean", "string piece", "startswith({0}, {1})"),
    _f("boolean", "string piece", "endswith({0}, {1})"),
    _f("boolean", "string piece", "contains({0}, {1})"),
    # dates and times
    _f("int", "date", "year({0})"),
    _f("int", "date", "month({0})"),
    _f("int", "date", "day({0})"),
    _f("int", "date", "quarter({0})"),
    _f("int", "date", "dayofweek({0})"),
    _f("int", "date", "weekday({0})"),
    _f("int", "date", "dayofyear({0})"),
    _f("int", "date", "weekofyear({0})"),
    _f("int", "timestamp", "hour({0})"),
    _f("int", "timestamp", "minute({0})"),
    _f("int", "timestamp", "second({0})"),
    _f("int", "timestamp", "month({0})"),
    _f("int", "date date", "datediff({0}, {1})"),
    _f("date", "date length", "date_add({0}, {1})"),
    _f("date", "date length", "date_sub({0}, {1})"),
    _f("date", "date", "last_day({0})"),
    _f("date", "timestamp", "to_date({0})"),
    _f("date", "timestamp", "CAST({0} AS DATE)"),
    _f("timestamp", "field timestamp", "date_trunc({0}, {1})"),
    _f("timestamp", "date", "CAST({0} AS TIMESTAMP)"),
    _f("bigint", "timestamp", "CAST({0} AS BIGINT)"),
    _f("bigint", "timestamp", "unix_micros({0})"),
    # numbers
    _f("bigint", "real", "floor({0})", "CASE WHEN isnan({0}) OR {0} BETWEEN -9.2E18D AND 9.2E18D THEN floor({0}) END"),
    _f("bigint", "real", "ceil({0})", "CASE WHEN isnan({0}) OR {0} BETWEEN -9.2E18D AND 9.2E18D THEN ceil({0}) END"),
    _f("double", "real", "abs({0})"),
    _f("double", "real", "(- {0})"),
    _f("double", "real", "round({0})"),
    _f("double", "real length", "round({0}, {1})"),
    _f("double", "real", "sign({0})"),
    _f("double", "real", "sqrt({0})"),
    _f("double", "real real", "nanvl({0}, {1})"),
    _f("double", "real", "ln({0})", stable=False),
    _f("double", "real", "exp({0} / 1000)", "exp(try_divide({0}, 1000))", stable=False),
    _f("double", "real", "pow({0}, 2)", stable=False),
    _f("double", "whole whole", "try_divide({0}, {1})"),
    _f("double", "whole", "CAST({0} AS DOUBLE)"),
    _f("double", "decimal", "CAST({0} AS DOUBLE)"),
    _f("double", "string", "CAST({0} AS DOUBLE)", "try_cast({0} AS DOUBLE)"),
    _f("int", "boolean", "CAST({0} AS INT)"),
    _f("int", "real", "CAST({0} AS INT)", "try_cast({0} AS INT)"),
    _f("int", "decimal", "CAST({0} AS INT)", "try_cast({0} AS INT)"),
    _f("int", "string", "CAST({0} AS INT)", "try_cast({0} AS INT)"),
    _f("int", "string", "try_cast({0} AS INT)"),
    _f("smallint", "whole", "CAST({0} AS SMALLINT)", "try_cast({0} AS SMALLINT)"),
    _f("bigint", "whole", "CAST({0} AS BIGINT)"),
    _f("bigint", "real", "CAST({0} AS BIGINT)", "try_cast({0} AS BIGINT)"),
    _f("bigint", "whole whole", "({0} div {1})", "CASE WHEN {1} = -1 THEN "
       "try_cast(- CAST({0} AS DECIMAL(20,0)) AS BIGINT) ELSE {0} div nullif({1}, 0) END"),
    _f("boolean", "real", "isnan({0})"),
    _f("boolean", "whole", "CAST({0} AS BOOLEAN)"),
)  # fmt: skip

CHOICES: dict[str, tuple[str, ...]] = {
    "position": ("0", "1", "2", "3", "-1", "-3", "9"),
    "length": ("0", "1", "2", "3", "5"),
    "piece": ("'a'", "'b'", "''", "' '", "'%'", "'ss'", "'é'", "'by'", "'0'"),
    "field": ("'SECOND'", "'MINUTE'", "'HOUR'", "'DAY'", "'WEEK'", "'MONTH'", "'QUARTER'", "'YEAR'"),
}
