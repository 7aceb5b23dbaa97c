"""Upper and lower case as Spark has them: full Unicode case mapping, where DuckDB maps each character to one other.

Strings of ASCII characters alone take DuckDB's own functions; the rest of the work is done for the others only.
"""

from __future__ import annotations

from millstream.sql.functions.literals import text

# Letters that Unicode 15 to 17 paired, which DuckDB does not know yet: (first small letter, first capital, how many).
_RECENT = (
    (0x19B, 0xA7DC, 1), (0x264, 0xA7CB, 1), (0x1C8A, 0x1C89, 1), (0xA7CD, 0xA7CC, 1), (0xA7CF, 0xA7CE, 1),
    (0xA7D3, 0xA7D2, 1), (0xA7D5, 0xA7D4, 1), (0xA7DB, 0xA7DA, 1), (0x10D70, 0x10D50, 22), (0x16EBB, 0x16EA0, 25),
)  # fmt: skip
_RECENT_SMALL = "".join(chr(small + i) for small, _, count in _RECENT for i in range(count))
_RECENT_CAPITAL = "".join(chr(capital + i) for _, capital, count in _RECENT for i in range(count))

# Characters whose capital is more than one character (ß, ﬁ …), and those whose title case is not their capital.
_LAST = 0x10000
_EXPANDING = [chr(c) for c in range(0x80, _LAST) if len(chr(c).upper()) > 1]
_TITLED = [chr(c) for c in range(0x80, _LAST) if chr(c).title() != chr(c).upper() or chr(c) in _EXPANDING]

_CASED = r"[\p{Lu}\p{Ll}\p{Lt}ªº]"
# Unicode's Case_Ignorable: marks, format characters, modifiers, and punctuation inside words.
_INSIDE = (
    r"\p{Mn}\p{Me}\p{Cf}\p{Lm}\p{Sk}''.:\x{b7}\x{387}\x{55f}\x{5f4}\x{2018}\x{2019}\x{2024}\x{2027}"
    r"\x{fe13}\x{fe52}\x{fe55}\x{ff07}\x{ff0e}\x{ff1a}"
)
_FINAL_SIGMA = rf"({_CASED}[{_INSIDE}]*)Σ([{_INSIDE}]*)($|[^\p{{Lu}}\p{{Ll}}\p{{Lt}}ªº{_INSIDE}])"


def _ascii(a: str) -> str:
    return f"strlen({a}) = length({a})"


def upper(a: str) -> str:
    """Capitals; ß becomes SS."""
    expanded = a
    for char in _EXPANDING:
        expanded = f"replace({expanded}, '{char}', '{char.upper()}')"
    recent = f"translate(upper({expanded}), '{_RECENT_SMALL}', '{_RECENT_CAPITAL}')"
    return f"CASE WHEN {_ascii(a)} THEN upper({a}) ELSE {recent} END"


def lower(a: str) -> str:
    """Small letters; Σ at the end of a word becomes ς, and İ keeps its dot."""
    dotted = f"replace({a}, 'İ', {text('İ'.lower())})"
    final = f"regexp_replace({dotted}, '{_FINAL_SIGMA}', '\\1ς\\2\\3', 'g')"
    sigma = f"CASE WHEN contains({a}, 'Σ') THEN {final} ELSE {dotted} END"
    recent = f"translate(lower({sigma}), '{_RECENT_CAPITAL}', '{_RECENT_SMALL}')"
    return f"CASE WHEN {_ascii(a)} THEN lower({a}) ELSE {recent} END"


def title(char: str) -> str:
    """The title case of one character."""
    special = " ".join(f"WHEN '{c}' THEN '{c.title()}'" for c in _TITLED)
    recent = f"translate(upper({char}), '{_RECENT_SMALL}', '{_RECENT_CAPITAL}')"
    return f"CASE WHEN {_ascii(char)} THEN upper({char}) ELSE CASE {char} {special} ELSE {recent} END END"


def capitalized(a: str) -> str:
    """The first character of every word, between spaces, in title case and the others small."""
    first = "substring(w, 1, 1)"
    rest = f"substring({lower('w')}, length({lower(first)}) + 1)"
    words = f"list_transform(string_split({a}, ' '), lambda w: ({title(first)}) || {rest})"
    plain = f"list_transform(string_split({a}, ' '), lambda w: upper({first}) || lower(substring(w, 2)))"
    return f"array_to_string(CASE WHEN {_ascii(a)} THEN {plain} ELSE {words} END, ' ')"
