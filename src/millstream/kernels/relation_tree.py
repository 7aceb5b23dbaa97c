"""Joins of several relations: walks a query's join tree, and orders inner joins by size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millstream.kernels.relation import Computes, Pairs, Relation, attributes_in
from millstream.kernels.relation_group import group, reduce
from millstream.kernels.relation_group import where as filtered
from millstream.kernels.relation_join import join, pair_count
from millstream.model.expression import Call, Expression, conjuncts
from millstream.model.group import Measure
from millstream.model.join import JoinNode, Tree, leaves_of, legs_of
from millstream.model.types import BOOLEAN

Legs = frozenset[int]
Equality = tuple[Expression, Expression]


def evaluate_tree(
    tree: Tree,
    relations: Sequence[Relation],
    keep: Iterable[Expression],
    where: Expression | None,
    evaluator: Computes,
    limit: int,
    measures: Sequence[Measure] = (),
) -> Relation:
    """Join relations, one for each leg, and reduce the result to the attributes ``keep``.

    Each relation brings the attributes that its leg gives to ``keep``, to equalities and conditions of the tree, and to
    ``where``; expressions over several of them are computed in the lowest join that has all. ``measures`` are those
    that no relation brings because their arguments read several legs; they are computed from attributes likewise.
    """
    wanted = tuple(dict.fromkeys(keep))
    brought = {measure for relation in relations for measure in relation.measures}
    missing = tuple(measure for measure in dict.fromkeys(measures) if measure not in brought)
    walk = _Walk(relations, evaluator, limit)
    if where is None:
        return walk.run(tree, wanted, missing, ())
    if isinstance(tree, JoinNode) and tree.kind == "inner":
        return walk.run(tree, wanted, missing, tuple(conjuncts(where)))
    below = dict.fromkeys((*wanted, *walk.attributes(where, frozenset(leaves_of(tree)))))
    return group(filtered(walk.run(tree, tuple(below), missing, ()), where, evaluator), wanted, evaluator)


@dataclass(frozen=True)
class _Walk:
    relations: Sequence[Relation]
    evaluator: Computes
    limit: int

    def attributes(self, expression: Expression, legs: Legs) -> list[Expression]:
        """What an expression needs of some legs: itself if it reads no others, else the attributes in it."""
        if _covered(expression, legs):
            return [expression]
        known = [self.relations[leg].attributes for leg in legs]
        return attributes_in(expression, lambda node: any(node in attributes for attributes in known))

    def run(
        self,
        tree: Tree,
        wanted: tuple[Expression, ...],
        measures: tuple[Measure, ...],
        conditions: tuple[Expression, ...],
    ) -> Relation:
        if isinstance(tree, int):
            relation = self.relations[tree]
            if measures:
                return reduce(Pairs.single(relation), wanted, measures, self.evaluator)
            return group(relation, wanted, self.evaluator)
        if tree.kind == "inner":
            return self._inner(tree, wanted, measures, conditions)
        return self._outer(tree, wanted, measures)

    def _below(
        self, tree: Tree, needs: Iterable[Expression], measures: tuple[Measure, ...], conditions: tuple[Expression, ...]
    ) -> Relation:
        """A part of the tree with all that is needed of it."""
        legs = frozenset(leaves_of(tree))
        mine = dict.fromkeys(e for need in needs for e in self.attributes(need, legs))
        return self.run(tree, tuple(mine), _of(measures, legs), conditions)

    def _outer(self, tree: JoinNode, wanted: tuple[Expression, ...], measures: tuple[Measure, ...]) -> Relation:
        sides = [frozenset(leaves_of(tree.left)), frozenset(leaves_of(tree.right))]
        here = tuple(m for m in measures if not any(_of((m,), legs) for legs in sides))
        needs = [*wanted, *(m.argument for m in here), *(e for pair in tree.equal for e in pair)]
        needs += [] if tree.residual is None else [tree.residual]
        left, right = (self._below(side, needs, measures, ()) for side in (tree.left, tree.right))
        return join(left, right, tree.kind, tree.equal, tree.residual, wanted, self.evaluator, self.limit, here)

    def _inner(
        self,
        tree: JoinNode,
        wanted: tuple[Expression, ...],
        measures: tuple[Measure, ...],
        conditions: tuple[Expression, ...],
    ) -> Relation:
        region = _Region.of(tree)
        open_ = _Open(wanted, list(region.equal), [*region.conditions, *conditions], list(measures))
        operands: list[_Operand] = []
        for part in region.operands:
            legs = frozenset(leaves_of(part))
            relation = self._below(part, open_.needs(), measures, ())
            open_.measures = [m for m in open_.measures if not _of((m,), legs)]
            for condition in open_.take_conditions(legs):
                relation = filtered(relation, condition, self.evaluator)
            operands.append(_Operand(relation, legs))
        while len(operands) > 1:
            first, second = _cheapest(operands, open_.equal)
            joined = self._merge(operands[first], operands[second], open_, last=len(operands) == 2)
            operands = [o for place, o in enumerate(operands) if place not in (first, second)] + [joined]
        return group(operands[0].relation, wanted, self.evaluator)

    def _merge(self, left: _Operand, right: _Operand, open_: _Open, last: bool) -> _Operand:
        legs = left.legs | right.legs
        equal = open_.take_equal(left.legs, right.legs)
        residual = _conjunction(open_.take_conditions(legs))
        derived = tuple(open_.measures) if last else _of(tuple(open_.measures), legs)
        open_.measures = [m for m in open_.measures if m not in derived]
        known = left.relation.attributes | right.relation.attributes
        keep: dict[Expression, None] = {}
        for need in open_.needs():
            keep.update(dict.fromkeys([need] if _covered(need, legs) else attributes_in(need, known.__contains__)))
        relation = join(
            left.relation, right.relation, "inner", equal, residual, keep, self.evaluator, self.limit, derived
        )
        return _Operand(relation, legs)


def _covered(expression: Expression, legs: Legs) -> bool:
    """Whether an expression reads some of these legs and no others. One that reads none belongs to the whole tree."""
    read = legs_of(expression)
    return bool(read) and read <= legs


def _of(measures: tuple[Measure, ...], legs: Legs) -> tuple[Measure, ...]:
    return tuple(m for m in measures if _covered(m.argument, legs))


def _conjunction(conditions: Sequence[Expression]) -> Expression | None:
    joined: Expression | None = None
    for condition in conditions:
        joined = condition if joined is None else Call("And", (joined, condition), BOOLEAN)
    return joined


@dataclass(frozen=True)
class _Operand:
    relation: Relation
    legs: Legs


@dataclass(frozen=True)
class _Region:
    """Neighbouring inner joins of a tree: their operands can be joined in any order."""

    operands: tuple[Tree, ...]
    equal: tuple[Equality, ...]
    conditions: tuple[Expression, ...]

    @classmethod
    def of(cls, tree: Tree) -> _Region:
        if isinstance(tree, int) or tree.kind != "inner":
            return cls((tree,), (), ())
        left, right = cls.of(tree.left), cls.of(tree.right)
        mine = tuple(conjuncts(tree.residual))
        return cls(
            left.operands + right.operands,
            left.equal + right.equal + tree.equal,
            left.conditions + right.conditions + mine,
        )


@dataclass
class _Open:
    """What is still to be done in a region."""

    wanted: tuple[Expression, ...]
    equal: list[Equality]
    conditions: list[Expression]
    measures: list[Measure]

    def needs(self) -> list[Expression]:
        sides = [side for pair in self.equal for side in pair]
        return [*self.wanted, *sides, *self.conditions, *(m.argument for m in self.measures)]

    def take_conditions(self, legs: Legs) -> list[Expression]:
        """The conditions that some legs suffice for."""
        taken = [c for c in self.conditions if legs_of(c) <= legs]
        self.conditions = [c for c in self.conditions if c not in taken]
        return taken

    def take_equal(self, left: Legs, right: Legs) -> list[Equality]:
        """The equalities between two operands; one whose sides do not lie on different operands is a condition from
        now on."""
        taken = [found for pair in self.equal if (found := _between(pair, left, right)) is not None]
        rest = [pair for pair in self.equal if _between(pair, left, right) is None]
        self.equal = [pair for pair in rest if not _inside(pair, left | right)]
        self.conditions += [Call("EqualTo", pair, BOOLEAN) for pair in rest if _inside(pair, left | right)]
        return taken


def _between(pair: Equality, left: Legs, right: Legs) -> Equality | None:
    first, second = pair
    if _covered(first, left) and _covered(second, right):
        return pair
    return (second, first) if _covered(first, right) and _covered(second, left) else None


def _inside(pair: Equality, legs: Legs) -> bool:
    return legs_of(pair[0]) | legs_of(pair[1]) <= legs


def _cheapest(operands: Sequence[_Operand], equal: Sequence[Equality]) -> tuple[int, int]:
    """The two operands whose join pairs the fewest columns, those that an equality connects first."""
    if len(operands) == 2:
        return 0, 1
    best: tuple[bool, int, int, int] | None = None
    for second in range(len(operands)):
        for first in range(second):
            left, right = operands[first], operands[second]
            links = [found for pair in equal if (found := _between(pair, left.legs, right.legs)) is not None]
            size = pair_count(left.relation, right.relation, links)
            choice = (not links, size, first, second)
            best = choice if best is None else min(best, choice)
    assert best is not None
    return best[2], best[3]
