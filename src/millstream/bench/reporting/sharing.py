"""What sharing costs: the three components of AStream's figure 18, as phases of Millstream's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millstream.bench.driving.model import RunResult
from millstream.bench.reporting.figures import components
from millstream.bench.reporting.markup import Markup, element, join, rows
from millstream.bench.reporting.outcomes import Outcome
from millstream.bench.tables import NONE
from millstream.cli.output import count

QUERY_SETS = "query-set generation"
BIT_SETS = "bit-set algebra"
ROUTING = "routing copies"
# Predicates that rows meet, and the class of queries that each row belongs to.
QUERY_SET_PHASES = ("evaluate", "classes")
# From classes to queries; of joins where sums are put together and where a query's classes are added, which is more.
BIT_SET_PHASES = ("fire: classes", "join: read", "join: answer")
# Answers of queries, each written for itself.
ROUTING_PHASES = ("fire: write", "join: write")
PARTS = {
    **dict.fromkeys(QUERY_SET_PHASES, QUERY_SETS),
    **dict.fromkeys(BIT_SET_PHASES, f"with {BIT_SETS}"),
    **dict.fromkeys(ROUTING_PHASES, ROUTING),
}
COLUMNS = ("system", "queries", QUERY_SETS, BIT_SETS, ROUTING, "everything else")
LEGEND = (
    f"Shares of the sum of all phases of tasks, after the warm-up. {QUERY_SETS.capitalize()} is 'evaluate', which has"
    f" the arguments of aggregates too, and 'classes'; {ROUTING} are 'fire: write' (of joins 'join: write')."
    f" {BIT_SETS.capitalize()}, from classes to queries, is 'fire: classes': sums over the classes of a slice are made"
    " and added to those of the slices below, and windows take four numbers where two would do without classes. Of"
    " joins it is not measured by itself: the share is that of reading and answering, the most that it can be. Not in"
    " the sum: the JVM with Spark's scheduling, and the driver, which plans batches and commits them."
)


@dataclass(frozen=True, slots=True)
class Shares:
    """Of the sum of task phases; ``bit_sets`` is at most so much."""

    query_sets: float
    bit_sets: float
    routing: float

    @property
    def rest(self) -> float:
        return max(0.0, 1 - self.query_sets - self.bit_sets - self.routing)


def shares_of(run: RunResult) -> Shares | None:
    """None for a system that has no such phases."""
    spent = components(run)
    total = sum(spent.values())
    if not total or not any(name in spent for name in PARTS):
        return None

    def share(names: Iterable[str]) -> float:
        return sum(spent.get(name, 0.0) for name in names) / total

    return Shares(share(QUERY_SET_PHASES), share(BIT_SET_PHASES), share(ROUTING_PHASES))


def named(phase: str) -> str:
    """A phase, and what the paper calls it.

    >>> named("classes"), named("read")
    ('classes (query-set generation)', 'read')
    """
    return f"{phase} ({PARTS[phase]})" if phase in PARTS else phase


def sharing_table(found: Sequence[Outcome]) -> Markup:
    """A line for each outcome whose system shares."""
    pairs = [(outcome, shares) for outcome in found if (shares := shares_of(outcome.run)) is not None]
    if not pairs:
        return Markup("")
    lines = [(one.system, count(one.cell.queries), *_parts(shares)) for one, shares in pairs]
    parts = (element("h3", "What sharing costs"), rows(COLUMNS, lines, ("system",)))
    return join((*parts, element("p", LEGEND, class_="faint")))


def _parts(shares: Shares) -> tuple[str, ...]:
    known = _percent(shares.query_sets), _percent(shares.routing), _percent(shares.rest)
    if not shares.bit_sets:
        return known[0], NONE, *known[1:]
    return known[0], f"≤ {_percent(shares.bit_sets)}", known[1], f"≥ {known[2]}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
