"""What the clients of the killed process know. They live elsewhere: what they have written down survives crashes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Clients:
    """Acknowledged changes, finished rounds, and by query the pages read, each with the cursors around it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._changes = _Lines(folder / "changes")
        self._rounds = _Lines(folder / "rounds")
        self._ends = _Lines(folder / "ends")
        self._pages: dict[str, _Lines] = {}

    @property
    def round(self) -> int:
        """The round to go on with."""
        return int(self._rounds.all[-1]) if self._rounds.all else 0

    def finish_round(self, following: int) -> None:
        self._rounds.add(following)

    def acknowledged(self, change: str) -> bool:
        return change in self._changes.all

    def acknowledge(self, change: str) -> None:
        self._changes.add(change)

    def ended(self, query: str) -> dict[str, Any] | None:
        """How a query ended, if its reader has seen that."""
        found: dict[str, Any] | None = next((figures for name, figures in self._ends.all if name == query), None)
        return found

    def end(self, query: str, figures: dict[str, Any]) -> None:
        self._ends.add([query, figures])

    def cursor(self, query: str) -> str | None:
        pages = self._of(query).all
        return str(pages[-1][1]) if pages else None

    def keep_page(self, query: str, before: str | None, after: str, answers: list[Any]) -> None:
        self._of(query).add([before, after, answers])

    def go_back(self, query: str, cursor: str | None) -> None:
        """Forget the pages that were read after a cursor."""
        pages = self._of(query)
        ends = [None, *(page[1] for page in pages.all)]
        pages.cut(ends.index(cursor))

    def answers(self, query: str) -> list[Any]:
        """All pages one after the other."""
        return [answer for page in self._of(query).all for answer in page[2]]

    def _of(self, query: str) -> _Lines:
        if query not in self._pages:
            self._pages[query] = _Lines(self._folder / f"{query}.pages")
        return self._pages[query]


class _Lines:
    """A file of JSON lines. One that was not finished does not count."""

    def __init__(self, file: Path) -> None:
        self._file = file
        whole = file.read_text().split("\n")[:-1] if file.exists() else []
        self.all: list[Any] = [json.loads(line) for line in whole]
        self.cut(len(self.all))

    def add(self, value: object) -> None:
        with open(self._file, "a") as file:
            file.write(json.dumps(value) + "\n")
        self.all.append(value)

    def cut(self, length: int) -> None:
        self.all = self.all[:length]
        draft = self._file.with_suffix(".draft")
        draft.write_text("".join(json.dumps(value) + "\n" for value in self.all))
        draft.replace(self._file)
