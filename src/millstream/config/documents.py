"""YAML documents whose values know where they stand, so that an error can name path, line and column."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from millstream.config.durations import parse_duration
from millstream.errors import Position, SpecError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: its text and where the value (or the key, under ``path + ":"``) of each path stands in it."""

    text: str | None = None
    places: dict[str, Position] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document that knows its path, so that it can say what is wrong with it."""

    value: Any
    path: str
    document: Document

    def refuse(self, message: str, hint: str | None = None, key: bool = False) -> NoReturn:
        where = f"{self.path}: " if self.path else ""
        place = self.document.places.get(self.path + ":" * key)
        text = self.document.text if place else None
        raise SpecError("BAD_SPEC", where + message, hint=hint, position=place, text=text)

    def keys(self, known: Iterable[str], required: Iterable[str] = ()) -> dict[str, Node]:
        """The entries of a mapping with none but known keys."""
        names = list(known)
        entries = dict(self.entries())
        for name, node in entries.items():
            if name not in names:
                node.refuse(f"unknown key {name!r}", nearest(name, names), key=True)
        for name in required:
            if name not in entries:
                self.refuse(f"missing key {name!r}", f"keys here: {', '.join(names)}")
        return entries

    def entries(self) -> Iterator[tuple[str, Node]]:
        if not isinstance(self.value, Mapping):
            self.refuse(f"expected a mapping of names to values, found {_shown(self.value)}")
        for name, value in self.value.items():
            if not isinstance(name, str):
                self.refuse(f"the name {name!r} is not text", "put it in quotes")
            yield name, Node(value, f"{self.path}.{name}" if self.path else name, self.document)

    def items(self) -> list[Node]:
        if not isinstance(self.value, list | tuple):
            self.refuse(f"expected a list, found {_shown(self.value)}")
        return [Node(value, f"{self.path}[{i}]", self.document) for i, value in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str | Path):
            self.refuse(f"expected text, found {_shown(self.value)}", "put it in quotes")
        if not str(self.value).strip():
            self.refuse("is empty")
        return str(self.value)

    def integer(self, least: int) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            self.refuse(f"expected a whole number, found {_shown(self.value)}")
        if self.value < least:
            self.refuse(f"is {self.value}, but must be at least {least}")
        return int(self.value)

    def name(self, name: str) -> None:
        """Refuse a name that SQL could not write without quotes."""
        if not _NAME.fullmatch(name):
            hint = "use letters, digits and _, not starting with a digit"
            self.refuse(f"{name!r} cannot be a stream's name", hint, key=True)

    def duration(self) -> int:
        try:
            return parse_duration(self.text())
        except SpecError as error:
            self.refuse(error.message.removeprefix(f"{self.path}: "), error.hint)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a name that does not exist.

    >>> nearest("lateness_", ["time", "lateness"])
    "did you mean 'lateness'? known: time, lateness"
    """
    names = {known_name.lower(): known_name for known_name in known}
    close = difflib.get_close_matches(name.lower(), names, n=1)
    return (f"did you mean {names[close[0]]!r}? " if close else "") + f"known: {', '.join(names.values())}"


def _shown(value: object) -> str:
    text = {list: "a list", dict: "a mapping", type(None): "nothing"}.get(type(value)) or repr(value)
    return text if len(text) < 60 else text[:57] + "…"


def read_document(path: Path) -> Node:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise SpecError("BAD_SPEC", f"cannot read {path}: {reason}") from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    places: dict[str, Position] = {}
    try:
        root = loader.get_single_node()
        value = _Composer(loader, text, places).value(root, "") if root is not None else {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        # A document that ends too early is marked behind its last line.
        place = Position.of(text, min(mark.index, len(text.rstrip())), mark.index + 1) if mark else None
        reason = getattr(error, "problem", None) or str(error)
        raise SpecError("BAD_SPEC", f"{path} is not YAML: {reason}", position=place, text=text) from None
    finally:
        loader.dispose()
    return Node(value, "", Document(text, places))


class _Composer:
    """Builds plain values from YAML nodes and notes their places; a repeated key, which YAML lets pass, is refused."""

    def __init__(self, loader: Any, text: str, places: dict[str, Position]) -> None:
        self.loader, self.text, self.places = loader, text, places
        self.open: set[int] = set()

    def value(self, node: Any, path: str) -> Any:
        self.places[path] = self._place(node)
        if isinstance(node, yaml.ScalarNode):
            return self.loader.construct_object(node)
        if id(node) in self.open:
            raise yaml.composer.ComposerError(None, None, "an alias contains itself", node.start_mark)
        self.open.add(id(node))
        built = self._sequence(node, path) if isinstance(node, yaml.SequenceNode) else self._mapping(node, path)
        self.open.discard(id(node))
        return built

    def _sequence(self, node: Any, path: str) -> list[Any]:
        return [self.value(child, f"{path}[{i}]") for i, child in enumerate(node.value)]

    def _mapping(self, node: Any, path: str) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.composer.ComposerError(None, None, "a key is plain text here", key.start_mark)
            if key.value in seen:
                raise yaml.composer.ComposerError(None, None, f"key {key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        self.loader.flatten_mapping(node)
        built: dict[Any, Any] = {}
        for key_node, child in node.value:
            key = self.loader.construct_object(key_node, deep=True)
            inner = f"{path}.{key}" if path else str(key)
            self.places[inner + ":"] = self._place(key_node)
            built[key] = self.value(child, inner)
        return built

    def _place(self, node: Any) -> Position:
        start, end = node.start_mark, node.end_mark
        return Position(start.line + 1, start.column + 1, start.index, max(end.index, start.index + 1))
