"""HTML made of elements. Text is escaped when it goes in, so that nothing measured can be taken for markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

# Elements that have no content and no end.
VOID = ("meta", "br", "hr")
# How much a drawing grows at most, to fill its line.
LARGER = 1.2


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(tag: str, *content: Any, **attributes: str | None) -> Markup:
    """An element; ``class_`` is written as the attribute ``class``, and one that is None is left out.

    >>> element("p", "a < b ", element("b", '"c"'), class_="note")
    '<p class="note">a &lt; b <b>&quot;c&quot;</b></p>'
    """
    given = [(name.rstrip("_"), value) for name, value in attributes.items() if value is not None]
    opened = tag + "".join(f' {name}="{escape(value)}"' for name, value in given)
    return Markup(f"<{opened}>" if tag in VOID else f"<{opened}>{join(content)}</{tag}>")


def join(parts: Iterable[Any]) -> Markup:
    """All of them, one after the other, escaped where they are not markup."""
    return Markup("".join(part if isinstance(part, Markup) else escape(str(part)) for part in parts))


def rows(columns: Sequence[str], lines: Iterable[Sequence[Any]], words: Sequence[str] = ()) -> Markup:
    """A table that scrolls by itself where it is too wide; columns are numbers unless they are in ``words``."""
    kinds = [None if name in words else "number" for name in columns]
    head = [element("th", name, scope="col", class_=kind) for name, kind in zip(columns, kinds, strict=True)]
    body = [
        element("tr", *(element("td", cell, class_=kind) for cell, kind in zip(line, kinds, strict=True)))
        for line in lines
    ]
    table = element("table", element("thead", element("tr", *head)), element("tbody", *body))
    return element("div", table, class_="scroll")


def facts(pairs: Iterable[tuple[str, Any]]) -> Markup:
    """Names and values."""
    return element("dl", *(join((element("dt", name), element("dd", value))) for name, value in pairs))


def folded(summary: Any, *content: Any, opened: bool = False) -> Markup:
    """Content that a click shows."""
    return element("details", element("summary", summary), *content, open="open" if opened else None)


def drawing(path: Path, ink: str, caption: str) -> Markup:
    """The drawing of an SVG file as part of a page: in the page's colour of text instead of ``ink``, with names that no
    other drawing of the page has, about as large as it was drawn, and smaller where there is no room."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = text.replace(ink, "currentColor")
    prefix = re.sub(r"[^a-z0-9]+", "-", path.stem.lower())
    text = re.sub(r'((?:xlink:)?href="#|url\(#|\bid=")', rf"\g<1>{prefix}-", text)
    opened, rest = text.split(">", 1)
    width = float(opened.split('viewBox="', 1)[1].split('"')[0].split()[2])
    opened = re.sub(r'\s(?:width|height)="[^"]*"', "", opened)
    svg = Markup(f'{opened} role="img" aria-label="{escape(caption)}">{rest}')
    style = f"flex: 1 1 {width:.0f}pt; max-width: {LARGER * width:.0f}pt"
    return element("figure", svg, element("figcaption", caption), style=style)
