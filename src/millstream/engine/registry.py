"""The groups and queries of the engine in memory, and the one way to change them: sealing an epoch.

Sealing writes the changed group versions, then makes the change one transaction of the metastore. It touches the
groups that the change touches, whatever else runs, and waits for no micro-batch.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace

from millstream.catalog.metastore import Change, Epoch, GroupVersionRef, LegPlace, Metastore, NewQuery, VersionPlace
from millstream.catalog.outage import in_doubt
from millstream.catalog.records import FAILED
from millstream.config import Limits
from millstream.engine.owners import Owners, check_query
from millstream.engine.restoring import Joined, candidates, concerns, members_at
from millstream.errors import CatalogError, DamagedFile, MillstreamError
from millstream.kernels.checksum import checksum
from millstream.kernels.classes import CLASS_LIMIT, grid_size, table_of
from millstream.kernels.evaluate import Evaluator
from millstream.kernels.predicate import collapse, select
from millstream.model import codec
from millstream.model.expression import Expression
from millstream.model.group import GroupVersion, Member
from millstream.model.join import JoinQuery
from millstream.model.legs import form_of, leg_attributes, leg_fields, leg_member, leg_query, query_of_member
from millstream.model.query import LogicalQuery, WindowSpec
from millstream.model.selection import Selection, attributes
from millstream.model.stream import Field
from millstream.optimizer.changelog import Create, rewrite
from millstream.optimizer.cost import Statistics
from millstream.optimizer.grouping import Sketch, with_members
from millstream.runtime.home import GROUPS, Home, checksum_in
from millstream.runtime.versions import read_version, write_version


@dataclass(frozen=True)
class NewRequest:
    """A create whose SQL has been compiled, with its conditions as ranges: one, or one for each leg of a join."""

    id: str
    owner: str
    key: str | None
    query: LogicalQuery | JoinQuery
    selections: tuple[Selection, ...]

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads, each once."""
        return self.query.streams if isinstance(self.query, JoinQuery) else (self.query.stream,)

    @property
    def creates(self) -> list[Create]:
        """The members that it adds to groups."""
        if isinstance(self.query, LogicalQuery):
            return [Create(self.id, self.query, self.selections[0])]
        return [
            Create(leg_member(self.id, leg), leg_query(self.query, leg), selection, _names(leg_fields(self.query, leg)))
            for leg, selection in enumerate(self.selections)
        ]


def _names(fields: Sequence[Field]) -> tuple[str, ...]:
    return tuple(field.name for field in fields)


@dataclass(frozen=True)
class Join:
    """A join and what its fires ask about it. Joins with the same ``attributes`` can be fired together."""

    query: JoinQuery
    form: JoinQuery
    attributes: tuple[tuple[str, tuple[Expression, ...]], ...]

    @classmethod
    def of(cls, query: JoinQuery) -> Join:
        attributes = tuple((leg.stream, leg_attributes(query, number)) for number, leg in enumerate(query.legs))
        return cls(query, form_of(query), attributes)


def _new_query(create: NewRequest, places: Mapping[str, tuple[str, int]]) -> NewQuery:
    if isinstance(create.query, LogicalQuery):
        return NewQuery(create.id, create.owner, create.key, create.query, *places[create.id])
    legs = tuple(
        LegPlace(number, leg.stream, *places[leg_member(create.id, number)])
        for number, leg in enumerate(create.query.legs)
    )
    return NewQuery(create.id, create.owner, create.key, create.query, "", 0, legs)


class Registry:
    def __init__(self, metastore: Metastore, home: Home, limits: Limits | None = None) -> None:
        self._metastore = metastore
        self._home = home
        self._lock = threading.RLock()
        self._limits = limits or Limits()
        self.owners = Owners(self._limits)
        self._evaluator = Evaluator(self._limits)
        self._fold_lock = threading.Lock()
        self._groups: dict[str, Sketch] = {}
        self._group_of: dict[str, str] = {}
        self._windows: dict[str, WindowSpec | None] = {}
        self._joins: dict[str, Join] = {}
        self._running: set[str] = set()
        self._paths: dict[tuple[str, int], str] = {}
        self._plans: dict[tuple[int, str], tuple[str, ...]] = {}
        self._texts: dict[str, str] = {}
        # Every id in use, and those given out for queries that are not sealed yet.
        self._ids: set[str] = set()
        self._given: set[str] = set()
        self._counted: dict[tuple[str, int], int] = {}
        self._numbers = 0
        self.statistics = Statistics()

    def close(self) -> None:
        self._evaluator.close()

    def load(self) -> None:
        """Take over what the metastore knows; called once, at start."""
        epoch = self._metastore.current_epoch()
        for state in self._metastore.streams():
            for ref in self._metastore.group_versions(state.stream.name):
                self._paths[ref.group, ref.version] = ref.path
                self._numbers = max(self._numbers, int(ref.group.removeprefix("g-")))
            # Not the newest version kept of each group: of one that has no query left, that is an old one.
            for ref in self._metastore.epoch_plan(epoch, state.stream.name):
                self._take(Sketch.of(self._read(ref.path)))
        failed = []
        for record in self._metastore.queries():
            self._know(record.id, record.query)
            self._ids.add(record.id)
            self.owners.add(record.id, record.owner, record.query)
            if record.id not in self._running:
                self.owners.remove(record.id)
            if record.state == FAILED:
                failed.append(record.id)
        # The engine died between the transaction that stopped them and the epoch that takes them out.
        self.remove(failed)

    def _read(self, path: str) -> GroupVersion:
        try:
            return read_version(self._home, path)
        except DamagedFile as error:
            if not self.restore(path):
                error.hint = "restore it from a backup of the home"
                raise
            return read_version(self._home, path)

    def restore(self, path: str) -> bool:
        """Write a damaged group version again: as it is in memory, else from the definitions of its queries. False
        if neither gives what was written."""
        with self._lock:
            place = self._metastore.version_place(path)
            if place is None:
                return False
            expected = checksum_in(path)
            current = self.version(place.group)
            known = [current] if current is not None and current.version == place.version else []
            for version in (*known, *(self._defined(place) if expected is not None else ())):
                text = codec.dumps(version).encode()
                if expected is None or checksum(text) == expected:
                    made = self._home.write(GROUPS, "restored", "json", [text])
                    self._home.exchange(path, made)
                    return True
        return False

    def _defined(self, place: VersionPlace) -> Iterator[GroupVersion]:
        joined: list[Joined] = []
        for record in self._metastore.queries():
            if concerns(place, record):
                request = NewRequest(record.id, record.owner, None, record.query, self._selections(record.query))
                joined += members_at(place, record, request.creates)
        return candidates(place, joined)

    def keeps(self, path: str) -> bool:
        """Whether a group version is still there to ingest with."""
        return path in self._paths.values()

    def versions_at(self, path: str) -> list[tuple[str, int]]:
        return [key for key, known in list(self._paths.items()) if known == path]

    def _take(self, sketch: Sketch) -> None:
        version = sketch.version
        if version.members:
            self._groups[version.group] = sketch
        else:
            self._groups.pop(version.group, None)
        for member in version.members:
            self._group_of[member.query] = version.group
            self._windows[member.query] = member.window
            self._running.add(query_of_member(member.query))

    def _know(self, id: str, query: LogicalQuery | JoinQuery) -> None:
        """What a fire asks about a query, until it is forgotten: deleted ones still fire."""
        self._windows[id] = query.window
        if isinstance(query, JoinQuery):
            self._joins[id] = Join.of(query)
            self._windows.update({leg_member(id, leg): query.window for leg in range(len(query.legs))})

    def _unknow(self, id: str) -> None:
        for member in (id, *self._members(id)):
            self._windows.pop(member, None)
        self._joins.pop(id, None)
        self.owners.forget(id)

    def selections_of(self, query: LogicalQuery | JoinQuery) -> tuple[Selection, ...]:
        """The query's conditions as ranges, one for each leg of a join; refuses those that are too large."""
        check_query(query, self._limits)
        return self._selections(query)

    def _selections(self, query: LogicalQuery | JoinQuery) -> tuple[Selection, ...]:
        if isinstance(query, JoinQuery):
            return tuple(self._selection(leg.where) for leg in query.legs)
        return (self._selection(query.where),)

    def _selection(self, where: Expression | None) -> Selection:
        """A condition as ranges; as one Boolean attribute where it alone would make too many classes."""
        with self._fold_lock:
            selection = select(where, self._evaluator.constant)
        if where is not None and grid_size([selection], attributes(selection)) > CLASS_LIMIT:
            return collapse(where)
        return selection

    def new_id(self) -> str:
        """A short id that no query has, and that nobody else is given."""
        with self._lock:
            for length in itertools.chain.from_iterable(itertools.repeat(n, 8) for n in itertools.count(4)):
                id = f"q-{secrets.token_hex(length)[:length]}"
                if id not in self._ids:
                    self._ids.add(id)
                    self._given.add(id)
                    return id
        raise AssertionError

    def release(self, ids: Sequence[str]) -> None:
        """Take back ids from ``new_id`` whose queries were refused."""
        with self._lock:
            unused = self._given.intersection(ids)
            self._given -= unused
            self._ids -= unused

    def known(self, id: str) -> bool:
        """Whether a query has this id already; an id from ``new_id`` is free for its query."""
        return id in self._ids and id not in self._given

    def by_key(self, owner: str, key: str) -> tuple[str, Epoch] | None:
        """The query that a create with this client key made before, and its epoch."""
        record = self._metastore.query_by_key(owner, key)
        if record is None:
            return None
        epoch = self._metastore.epoch(record.epoch)
        return record.id, epoch or Epoch(record.epoch, record.created_at, {})

    def seal(self, creates: Sequence[NewRequest], deletes: Sequence[str]) -> Epoch:
        """Make creates and deletes the next epoch; an error means that nothing has changed."""
        with self._lock:
            self._check_creates(creates)
            self._check(deletes)
            self.owners.check([(create.owner, create.query) for create in creates])
            return self._change(creates, [id for id in deletes if id in self._running], deletes)

    def _change(self, creates: Sequence[NewRequest], leaving: Sequence[str], deletes: Sequence[str]) -> Epoch:
        """``leaving`` go out of their groups; of those, ``deletes`` by their owner's wish."""
        made = [one for c in creates for one in c.creates]
        gone = [member for id in leaving for member in self._members(id)]
        change = rewrite(self._groups, self._group_of, made, gone, self._new_group, self.statistics)
        new = tuple(_new_query(create, change.places) for create in creates)
        written = self._written(self._write(version) for version in change.versions)
        with written as refs, self._known_ahead(creates, refs):
            epoch = self._metastore.seal(Change(new, tuple(deletes), refs))
        self._ids.update(create.id for create in creates)
        self._given.difference_update(create.id for create in creates)
        self._running.difference_update(leaving)
        for id in leaving:
            self.owners.remove(id)
        for member in gone:
            del self._group_of[member]
            self._texts.pop(member, None)
        for sketch in change.sketches:
            self._take(sketch)
        return epoch

    @contextmanager
    def _known_ahead(self, creates: Sequence[NewRequest], refs: Sequence[GroupVersionRef]) -> Iterator[None]:
        """All that batches and fires ask about a change, which they find in the metastore before the sealing returns.
        Forgotten if it fails, but not where it is unknown whether the epoch was sealed."""
        try:
            for create in creates:
                self._know(create.id, create.query)
                self.owners.add(create.id, create.owner, create.query)
            self._paths.update({(ref.group, ref.version): ref.path for ref in refs})
            yield
        except BaseException as error:
            if not in_doubt(error):
                for create in creates:
                    self._unknow(create.id)
                for ref in refs:
                    self._paths.pop((ref.group, ref.version), None)
            raise

    @contextmanager
    def _written(self, versions: Iterable[GroupVersionRef]) -> Iterator[tuple[GroupVersionRef, ...]]:
        """Versions that are written as they are asked for; if that or the sealing fails, they are removed. Not so where
        it is unknown whether the epoch was sealed: what nobody names then is swept at the next start."""
        refs: list[GroupVersionRef] = []
        try:
            for ref in versions:
                refs.append(ref)
            self._home.sync(GROUPS)
            yield tuple(refs)
        except (MillstreamError, OSError) as error:
            if not in_doubt(error):
                self._home.remove([ref.path for ref in refs])
            raise

    def _members(self, id: str) -> list[str]:
        """The names of a running query among the members of groups."""
        join = self._joins.get(id)
        return [id] if join is None else [leg_member(id, leg) for leg in range(len(join.query.legs))]

    def _check_creates(self, creates: Sequence[NewRequest]) -> None:
        """What is known of a query must not be overwritten by another one that is refused later."""
        ids: set[str] = set()
        for create in creates:
            if create.id in ids or self.known(create.id):
                hint = "choose another id, or leave it out to be given one"
                raise CatalogError("DUPLICATE_QUERY", f"a query {create.id!r} exists already", hint=hint)
            ids.add(create.id)

    def _check(self, deletes: Sequence[str]) -> None:
        """Before files are written: the metastore refuses the same, but later."""
        for id in deletes:
            if id not in self._running and self._metastore.query(id).state != "failed":
                raise CatalogError("QUERY_DELETED", f"the query {id!r} was deleted before")

    def _new_group(self) -> str:
        self._numbers += 1
        return f"g-{self._numbers}"

    def _write(self, version: GroupVersion) -> GroupVersionRef:
        text = codec.dumps_joined(replace(version, members=()), "members", [self._text(m) for m in version.members])
        return self._store(version, text)

    def _store(self, version: GroupVersion, text: str) -> GroupVersionRef:
        path = write_version(self._home, version.group, version.version, text)
        members = len(version.members)
        return GroupVersionRef(version.group, version.stream, version.version, path, members, 0, not members)

    def _text(self, member: Member) -> str:
        """A member as it is written into every version of its group; making it is most of the cost of a version."""
        if member.query not in self._texts:
            self._texts[member.query] = codec.dumps(member)
        return self._texts[member.query]

    def remove(self, queries: Sequence[str]) -> None:
        """Take failed queries (named by any member) out of their groups: an epoch of its own, without touching their
        records."""
        with self._lock:
            failed = dict.fromkeys(query_of_member(member) for member in queries)
            leaving = [id for id in failed if id in self._running]
            if leaving:
                self._change((), leaving, ())

    def versions(self, epoch: int, stream: str) -> tuple[str, ...]:
        """The paths of the group versions that a batch of this epoch is ingested with."""
        if (epoch, stream) not in self._plans:
            if len(self._plans) > 64:
                self._plans.clear()
            found = self._metastore.epoch_plan(epoch, stream)
            self._plans[epoch, stream] = tuple(ref.path for ref in found)
        return self._plans[epoch, stream]

    def queries_of(self, epoch: int, stream: str) -> set[str]:
        """The queries that a batch of this epoch is ingested for."""
        versions = (self._read(path) for path in self.versions(epoch, stream))
        return {query_of_member(member.query) for version in versions for member in version.members}

    def without(self, epoch: int, stream: str, left_out: Set[str]) -> tuple[tuple[str, ...], list[GroupVersionRef]]:
        """The group versions of an epoch without some queries, for one batch alone: the paths of all of them, and those
        that were made for it. These have negative numbers, so that they are never taken for a group's newest."""
        found: list[str | GroupVersion] = []
        with self._lock:
            for path in self.versions(epoch, stream):
                version = self._read(path)
                kept = [m for m in version.members if query_of_member(m.query) not in left_out]
                if len(kept) == len(version.members):
                    found.append(path)
                elif kept:
                    number = min([0, *(n for group, n in self._paths if group == version.group)]) - 1
                    found.append(replace(with_members(version, kept), version=number))
            derived = [one for one in found if isinstance(one, GroupVersion)]
            with self._written(self._store(one, codec.dumps(one)) for one in derived) as made:
                self._paths.update({(ref.group, ref.version): ref.path for ref in made})
        paths = iter(made)
        return tuple(one if isinstance(one, str) else next(paths).path for one in found), list(made)

    def path(self, group: str, version: int) -> str:
        return self._paths[group, version]

    def window(self, query: str) -> WindowSpec | None:
        """None where it has none, or is forgotten: whoever asks may have seen it earlier."""
        return self._windows.get(query)

    def join(self, query: str) -> Join:
        return self._joins[query]

    def version(self, group: str) -> GroupVersion | None:
        """A group as it is now; None when it has no query left."""
        sketch = self._groups.get(group)
        return None if sketch is None else sketch.version

    def group_of(self, member: str) -> str | None:
        return self._group_of.get(member)

    def forget(self, paths: Sequence[str]) -> None:
        """Group versions that were removed."""
        gone = set(paths)
        with self._lock:
            self._paths = {key: path for key, path in self._paths.items() if path not in gone}

    def forget_queries(self, ids: Sequence[str]) -> None:
        """Queries that ended so long ago that the metastore has forgotten them."""
        with self._lock:
            for id in ids:
                self._unknow(id)
                self._ids.discard(id)

    @property
    def place(self) -> str:
        """Where it is all kept."""
        return self._home.root

    @property
    def joins(self) -> bool:
        """Whether there are joins at all, running or not forgotten yet."""
        return bool(self._joins)

    @property
    def groups(self) -> int:
        return len(self._groups)

    @property
    def running(self) -> int:
        return len(self._running)

    def classes(self) -> int:
        """Classes of all groups; counted when asked, since sealing does not need it."""
        before, counted = self._counted, {}
        for sketch in list(self._groups.values()):
            key = (sketch.version.group, sketch.version.version)
            counted[key] = before[key] if key in before else table_of(sketch.version).classes
        self._counted = counted
        return sum(counted.values())
