"""What Millstream does not run: for each construct its name, where to find it in the text, and what to use instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.errors import Position, SqlError
from millstream.model.stream import Stream
from millstream.sql.tokens import Token, locate


@dataclass(frozen=True, slots=True)
class Construct:
    """``phrases`` are looked for in the text in this order, as ``tokens.locate`` reads them."""

    name: str
    hint: str
    phrases: tuple[str, ...]

    def refusal(self, sql: str, tokens: Sequence[Token]) -> SqlError:
        return unsupported(sql, tokens, f"{self.name} is not supported", self.hint, *self.phrases)


def unsupported(sql: str, tokens: Sequence[Token], message: str, hint: str, *phrases: str) -> SqlError:
    """An UNSUPPORTED error that points at the first of the phrases found in the text."""
    found = locate(tokens, *phrases)
    position = Position.of(sql, *found) if found else None
    return SqlError("UNSUPPORTED", message, hint=hint, position=position, text=sql)


# The form in which an answer has only the first rows of each window.
RANKING_FORM = "QUALIFY row_number() OVER (PARTITION BY window ORDER BY … DESC) <= 3"


def join_form(sources: Sequence[tuple[str, Stream]]) -> str:
    """A join, in a window, of sources given as alias and stream."""
    tables = ", ".join(
        f"{alias} AS (SELECT *, window({stream.time}, '10 seconds') AS w FROM {stream.name})"
        for alias, stream in sources
    )
    names = [alias for alias, _ in sources]
    return f"WITH {tables} SELECT … FROM {names[0]} JOIN {names[1]} ON {names[0]}.w = {names[1]}.w AND …"


_PLAIN_JOIN = "join sources with JOIN … ON, each with a window column"
_FIRST_ROWS = (
    f"a stream has no first rows; filter with WHERE or HAVING, or keep the first of each window: {RANKING_FORM}"
)
_SORT = "an answer is a set of rows; sort it where it is read"
_GROUPS = "create one query for each set of keys"
_PLAIN = "write the condition with values instead of a query, or as LEFT SEMI JOIN or LEFT ANTI JOIN in a window"

LATERAL = Construct("a lateral join", _PLAIN_JOIN, ("LATERAL", "JOIN", "FROM"))
AS_OF = Construct("AS OF JOIN", _PLAIN_JOIN, ("ASOF", "AS OF", "JOIN"))
SUBQUERY = Construct("a subquery in an expression", _PLAIN, ("EXISTS", "( SELECT", "( WITH"))
SESSION = Construct("session_window", "use a tumbling or sliding window(…)", ("session_window (",))
WINDOW_TIME = Construct("window_time", "use window.start or window.end", ("window_time (",))
NESTED = Construct(
    "an aggregation over an aggregation", "create the inner query and aggregate its answers", ("GROUP BY", "( SELECT")
)
BELOW_JOIN = Construct(
    "an aggregation or ranking below a join",
    "join the streams first, then group by the window and keys",
    ("GROUP BY", "QUALIFY", "OVER", "SELECT DISTINCT"),
)
SECOND_WINDOW = Construct(
    "a second window over a source",
    "use the window column that the source has already",
    ("GROUP BY window (", "window ("),
)
LOOSE_WINDOW = Construct(
    "window() without GROUP BY",
    "put the window into GROUP BY, or leave it out and select the time column",
    ("window (",),
)
WHERE_WINDOW = Construct("a condition on the window in WHERE", "put it into HAVING", ("WHERE",))

# By the name of the operator in Spark's plan.
OPERATORS: Mapping[str, Construct] = {
    "Sort": Construct("ORDER BY", _SORT, ("ORDER BY", "SORT BY", "CLUSTER BY")),
    "GlobalLimit": Construct("LIMIT", _FIRST_ROWS, ("LIMIT", "TABLESAMPLE")),
    "Offset": Construct("OFFSET", _FIRST_ROWS, ("OFFSET",)),
    "Distinct": Construct(
        "SELECT DISTINCT without the window",
        "select or group by the columns and a window",
        ("SELECT DISTINCT", "UNION", "DISTINCT"),
    ),
    "Deduplicate": Construct("DISTINCT", "group by the columns and a window instead", ("DISTINCT",)),
    "LateralJoin": LATERAL,
    "AsOfJoin": AS_OF,
    "Union": Construct("UNION", "create one query for each part", ("UNION",)),
    "Intersect": Construct("INTERSECT", "combine the conditions in one WHERE with AND", ("INTERSECT",)),
    "Except": Construct("EXCEPT", "combine the conditions in one WHERE with AND NOT", ("EXCEPT", "MINUS")),
    "Window": Construct(
        "OVER (…) over rows", f"GROUP BY keys and window(…), and rank the groups: {RANKING_FORM}", ("OVER", "QUALIFY")
    ),
    "Generate": Construct(
        "a function that makes rows",
        "write the rows into the stream one by one",
        ("LATERAL VIEW", "explode (", "explode_outer (", "posexplode (", "posexplode_outer (", "inline (", "stack ("),
    ),
    "Expand": Construct("GROUPING SETS, CUBE or ROLLUP", _GROUPS, ("GROUPING SETS", "CUBE", "ROLLUP")),
    "Sample": Construct("TABLESAMPLE", "filter with WHERE, for example on a key modulo a number", ("TABLESAMPLE",)),
    "RepartitionByExpression": Construct(
        "DISTRIBUTE BY", "leave it out; Millstream places the rows", ("DISTRIBUTE BY", "CLUSTER BY")
    ),
    "ScriptTransformation": Construct(
        "TRANSFORM", "use the functions of the SQL reference", ("TRANSFORM", "MAP", "REDUCE")
    ),
    "UnionLoop": Construct("WITH RECURSIVE", "write the query without recursion", ("RECURSIVE",)),
}

# Found in the text before the plan is read, since their plans look like something else.
KEYWORDS: tuple[Construct, ...] = (
    Construct("PIVOT", "aggregate with FILTER (WHERE …), one column for each value", ("PIVOT (",)),
    Construct("UNPIVOT", "select the columns in one query each", ("UNPIVOT (", "UNPIVOT")),
    SESSION,
    WINDOW_TIME,
    Construct("TABLESAMPLE", "filter with WHERE, for example on a key modulo a number", ("TABLESAMPLE",)),
)

_CLOCK = "use the stream's event-time column: an answer depends on the data alone"
_RANDOM = "an answer must be the same when it is computed again; use a hash of a column"

# By the name of the expression in Spark's plan: what depends on more than the row.
NONDETERMINISTIC: Mapping[str, Construct] = {
    "Rand": Construct("rand()", _RANDOM, ("rand (", "random (")),
    "Randn": Construct("randn()", _RANDOM, ("randn (",)),
    "Uniform": Construct("uniform()", _RANDOM, ("uniform (",)),
    "RandStr": Construct("randstr()", _RANDOM, ("randstr (",)),
    "Uuid": Construct("uuid()", _RANDOM, ("uuid (",)),
    "Shuffle": Construct("shuffle()", _RANDOM, ("shuffle (",)),
    "Now": Construct("now()", _CLOCK, ("now (",)),
    "CurrentTimestamp": Construct(
        "current_timestamp", _CLOCK, ("current_timestamp", "unix_timestamp (", "to_unix_timestamp (")
    ),
    "CurrentDate": Construct("current_date", _CLOCK, ("current_date", "curdate (")),
    "CurrentTime": Construct("current_time", _CLOCK, ("current_time",)),
    "LocalTimestamp": Construct("localtimestamp", _CLOCK, ("localtimestamp",)),
    "MonotonicallyIncreasingID": Construct(
        "monotonically_increasing_id()", _RANDOM, ("monotonically_increasing_id (",)
    ),
    "SparkPartitionID": Construct("spark_partition_id()", _RANDOM, ("spark_partition_id (",)),
    "InputFileName": Construct("input_file_name()", "put the name into a column of the stream", ("input_file_name (",)),
}

SUBQUERIES = frozenset(["ScalarSubquery", "ListQuery", "Exists", "InSubquery", "LateralSubquery"])

# Names under which users write aggregates whose class in Spark is called otherwise.
AGGREGATE_NAMES: Mapping[str, tuple[str, ...]] = {
    "HyperLogLogPlusPlus": ("approx_count_distinct",),
    "ApproximatePercentile": ("percentile_approx", "approx_percentile"),
    "PercentileCont": ("percentile_cont",),
    "PercentileDisc": ("percentile_disc",),
    "StddevSamp": ("stddev", "std", "stddev_samp"),
    "VarianceSamp": ("variance", "var_samp"),
    "VariancePop": ("var_pop",),
    "CollectList": ("collect_list", "array_agg"),
    "First": ("first", "first_value", "any_value"),
    "Last": ("last", "last_value"),
    "BitAndAgg": ("bit_and",),
    "BitOrAgg": ("bit_or",),
    "BitXorAgg": ("bit_xor",),
    "ListAgg": ("listagg", "string_agg"),
    "CovSample": ("covar_samp",),
    "CovPopulation": ("covar_pop",),
}
