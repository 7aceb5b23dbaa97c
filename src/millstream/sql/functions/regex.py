"""Java's regular expressions in RE2, for the part of the language on which both agree."""

from __future__ import annotations

import re

# Java's dot stops at every line terminator, RE2's only at the line feed.
_DOT = r"[^\n\r\x{85}\x{2028}\x{2029}]"
# Java's $ also stands before one last line terminator.
_END = r"(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z"
_CLASSES = {"d": "0-9", "w": "a-zA-Z0-9_", "s": r" \t\n\x0b\f\r"}
_CONTROL = {"t": r"\t", "n": r"\n", "r": r"\r", "f": r"\f"}
_PUNCTUATION = r"\.[]{}()*+?^$|-/"
_REPEAT = re.compile(r"\{(\d{1,3})(,(\d{1,3})?)?\}")


def to_re2(pattern: str) -> str | None:
    r"""The pattern for RE2, or None when it uses anything on which the engines may differ.

    >>> to_re2(r"^a\d+(b|c)*")
    '^a[0-9]+(?:b|c)*'
    >>> to_re2(r"(?=a)") is None
    True
    """
    out: list[str] = []
    index, depth = 0, 0
    while index < len(pattern):
        char = pattern[index]
        if char == "[":
            end = _class_end(pattern, index)
            piece = _class(pattern[index + 1 : end]) if end else None
            if piece is None:
                return None
            out.append(piece)
            index = (end or 0) + 1
            continue
        if char == "\\":
            piece = _escaped(pattern[index + 1 : index + 2])
            if piece is None:
                return None
            out.append(piece)
            index += 2
            continue
        if char == "{":
            match = _REPEAT.match(pattern, index)
            if not match or not _repeatable(out):
                return None
            out.append(match[0])
            index = match.end()
        elif char in "*+?":
            if not _repeatable(out):
                return None
            out.append(char)
            index += 1
        else:
            if char == "(" and pattern[index + 1 : index + 2] == "?":
                return None
            depth += {"(": 1, ")": -1}.get(char, 0)
            if depth < 0 or char in "]}":
                return None
            # A dollar means the end only at the end; inside, Java may match a terminator twice.
            if char == "$" and index + 1 < len(pattern):
                return None
            out.append({".": _DOT, "$": _END, "(": "(?:"}.get(char, char))
            index += 1
    return "".join(out) if depth == 0 else None


def _repeatable(out: list[str]) -> bool:
    """Whether what came last may be repeated: not nothing, a bar, an anchor or another repetition."""
    return bool(out) and out[-1] not in ("(?:", "|", "^", _END, "*", "+", "?") and not out[-1].startswith("{")


def _escaped(char: str) -> str | None:
    if char in _CLASSES and char:
        return f"[{_CLASSES[char]}]"
    if char in _CONTROL and char:
        return _CONTROL[char]
    return f"\\{char}" if char and char in _PUNCTUATION else None


def _class_end(pattern: str, start: int) -> int | None:
    index = start + 1
    while index < len(pattern):
        if pattern[index] == "\\":
            index += 1
        elif pattern[index] == "]":
            return index
        index += 1
    return None


def _class(body: str) -> str | None:
    """A class of characters, ranges and \\d \\w \\s; Java's unions, intersections and nested classes are refused."""
    negated = body.startswith("^")
    body = body[negated:]
    if not body or "[" in body or "&&" in body or body.startswith("-") or body.endswith("-"):
        return None
    out, index = "", 0
    while index < len(body):
        if body[index] == "\\":
            char = body[index + 1 : index + 2]
            inner = _CLASSES.get(char) or _CONTROL.get(char) or (f"\\{char}" if char and char in _PUNCTUATION else None)
            if inner is None:
                return None
            out += inner
            index += 2
        else:
            out += "\\^" if body[index] == "^" else body[index]
            index += 1
    return f"[{'^' * negated}{out}]"
