"""Looking through a home: whether all that the metastore names is there and is what was written.

Nothing is changed, and no lock is taken: an engine may run on the home at the same time. What it removes while the
check looks is not reported, since the metastore is asked again about everything that seems damaged.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from millstream.catalog.metastore import Metastore
from millstream.errors import DamagedFile, EngineError
from millstream.kernels.answers import AnswerReader
from millstream.model.plan import BucketFile
from millstream.runtime.damage import read_cells
from millstream.runtime.fire import BucketRef
from millstream.runtime.home import Home, checksum_in
from millstream.runtime.join_fire import described_legs
from millstream.runtime.loading import kept_groups, load_group

GROUP, BUCKET, ROWS, ANSWER, DEAD = "group versions", "buckets", "row tables", "answer files", "dead letters"
KINDS = (GROUP, BUCKET, ROWS, ANSWER, DEAD)
# Answer files looked up at a time.
PAGE = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong: of which kind, in which file, and what."""

    kind: str
    path: str
    problem: str


@dataclass
class CheckReport:
    """``checked`` counts what was looked at, by kind. ``lost`` are buckets that the engine has given up already;
    ``unnamed`` files belong to a job that runs now, or to one that died and are swept at the next start."""

    home: str
    checked: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    findings: list[Finding] = field(default_factory=list)
    lost: list[Finding] = field(default_factory=list)
    unnamed: int = 0

    @property
    def good(self) -> bool:
        return not self.findings


def check_home(root: str, metastore_url: str | None = None) -> CheckReport:
    """Verify every checksum of a home, and that files and metastore agree."""
    home = Home(root)
    home.check_whole()
    if metastore_url is None and not os.path.isfile(home.path("metastore.db")):
        hint = "give the home of an engine, and its metastore_url if that is not inside the home"
        raise EngineError("BAD_HOME", f"there is no metastore in {root}", hint=hint)
    metastore = Metastore.look_into(metastore_url or home.metastore_url())
    try:
        return _Check(home, metastore).run()
    finally:
        metastore.close()


class _Check:
    def __init__(self, home: Home, metastore: Metastore) -> None:
        self._home = home
        self._metastore = metastore
        self._report = CheckReport(home.root)
        self._seen: set[tuple[str, int]] = set()
        # A version that this process has read before must be read again.
        kept_groups.clear()

    def run(self) -> CheckReport:
        # Before the metastore: a file that appears later is named later.
        files = self._home.files()
        for problem in self._metastore.damage():
            self._report.findings.append(Finding("metastore", "metastore", problem))
        for state in self._metastore.streams():
            self._stream(state.stream.name)
        for name in (*(s.stream.name for s in self._metastore.streams()), *self._metastore.joined_names()):
            self._answers(name)
        named = self._metastore.referenced_files()
        self._report.findings = _once(f for f in self._report.findings if f.path in named or f.kind == "metastore")
        self._report.unnamed = sum(path not in named for path in files)
        return self._report

    def _stream(self, stream: str) -> None:
        paths: dict[tuple[str, int], str] = {}
        for ref in self._metastore.group_versions(stream):
            if ref.path:
                paths[ref.group, ref.version] = ref.path
                self._look(GROUP, ref.path, partial(load_group, self._home, ref.path))
        for file in self._metastore.buckets(stream):
            for version, bucket in _references(file):
                if version in paths:
                    self._bucket(bucket, paths[version])
            self._report.lost += [Finding(BUCKET, file.path, b.lost) for b in file.buckets if b.lost is not None]
        for _, path in self._metastore.dead_letters(stream):
            self._look(DEAD, path, self._home.open(path).whole)

    def _bucket(self, ref: BucketRef, version: str) -> None:
        if (ref.path, ref.offset) in self._seen:
            return
        self._seen.add((ref.path, ref.offset))
        self._look(BUCKET, ref.path, lambda: self._read_bucket(ref, version))

    def _read_bucket(self, ref: BucketRef, version: str) -> None:
        try:
            group = load_group(self._home, version)
        except DamagedFile:
            # Told already; without it the bytes alone can be verified.
            self._home.open(ref.path).checked(ref.offset, ref.body or ref.length, ref.checksum)
            return
        cells = read_cells(self._home, ref, group, index=True)
        if cells.place is not None and (ref.path, -1) not in self._seen:
            self._seen.add((ref.path, -1))
            place, checksum = cells.place, cells.rows_checksum
            self._look(ROWS, ref.path, lambda: self._home.open(ref.path).verify(*place, checksum))

    def _answers(self, stream: str) -> None:
        seq = 0
        while page := self._metastore.answers_after(stream, seq, PAGE):
            for record in page:
                file = record.file
                place = (file.path, file.index_offset, file.index_length)
                self._look(ANSWER, file.path, partial(self._answer_file, *place))
            seq = page[-1].seq

    def _answer_file(self, path: str, offset: int, length: int) -> None:
        reader = AnswerReader(self._home.open(path), offset, length, checksum_in(path))
        for described in reader.verified_descriptions():
            for versions, refs in described_legs(described):
                for ref in refs:
                    self._bucket(ref, versions[ref.version])

    def _look(self, kind: str, path: str, read: Callable[[], object]) -> None:
        self._report.checked[kind] += 1
        try:
            read()
        except DamagedFile as error:
            self._report.findings.append(Finding(kind, path, error.reason))
        except (ValueError, KeyError, OSError) as error:
            # Files of versions that made no checksums show their damage when they are decoded. Arrow's errors are
            # among these.
            self._report.findings.append(Finding(kind, path, f"cannot be decoded: {error}"))


def _once(findings: Iterable[Finding]) -> list[Finding]:
    """What is wrong with many parts of one file, told once."""
    return [
        finding if number == 1 else replace(finding, problem=f"{finding.problem} ({number} of them)")
        for finding, number in Counter(findings).items()
    ]


def _references(file: BucketFile) -> Iterator[tuple[tuple[str, int], BucketRef]]:
    for b in file.buckets:
        if b.lost is None:
            where = (b.offset, b.length, b.start, b.end)
            yield (b.group, b.version), BucketRef(0, file.path, *where, file.batch, file.watermark, b.checksum, b.body)


def report_as_dict(report: CheckReport) -> dict[str, object]:
    """The report for programs."""

    def listed(findings: Iterable[Finding]) -> list[dict[str, str]]:
        return [{"kind": f.kind, "path": f.path, "problem": f.problem} for f in findings]

    body = {"home": report.home, "good": report.good, "checked": report.checked}
    return {**body, "damaged": listed(report.findings), "lost": listed(report.lost), "unnamed": report.unnamed}
