"""The documentation is checked: what it lists is complete, what it shows works.

Run as a script it writes the function table of ``docs/sql.md`` anew: ``python tests/docs/test_docs.py``.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.main import get_command

import millstream
from millstream.config import Settings, format_duration, load_replay_spec, load_stream_file
from millstream.config.settings import DURATION_SETTINGS
from millstream.config.stream_file import SOURCE_KEYS, StreamDefinition
from millstream.errors import CODES, SqlError
from millstream.model.stream import Stream
from millstream.sources.schema import parse_ddl
from millstream.sql.frontend import FrontEnd
from millstream.sql.functions import supported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
BEGIN, END = "<!-- functions: begin -->\n", "<!-- functions: end -->"

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# An option in a shell line, not a flag of another program.
OPTION = re.compile(r"(?<=\s)--[a-z][a-z-]*")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(path: Path, language: str) -> list[str]:
    return [body for kind, body in FENCE.findall(path.read_text(encoding="utf-8")) if kind == language]


def prose(path: Path) -> str:
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def table_rows(text: str) -> list[list[str]]:
    """The cells of all Markdown table rows, without heads and rulers; ``\\|`` is a bar inside a cell."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


# Functions


def function_table() -> str:
    def cell(value: str) -> str:
        return value.replace("|", "\\|")

    lines = [f"| `{cell(name)}` | {cell(op)} | {cell(about)} |" for name, op, about in supported()]
    return "\n".join(["| function | in Spark's plan | what it does |", "|---|---|---|", *lines]) + "\n"


def split_functions(text: str) -> tuple[str, str, str]:
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    return before + BEGIN, table, END + after


def test_function_table_is_the_verified_table() -> None:
    documented = split_functions(text_of("docs/sql.md"))[1]
    assert documented == function_table(), "run: python tests/docs/test_docs.py"


# Errors, settings, commands, routes


def test_every_error_code_is_described_and_no_other() -> None:
    sections = re.split(r"^### `(\w+)`$", text_of("docs/errors.md"), flags=re.MULTILINE)
    described = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert sorted(described) == sorted(CODES)
    assert [code for code, text in described.items() if not text.strip()] == []


def shown_default(name: str, value: object) -> str:
    if value is None:
        return "none"
    if name in DURATION_SETTINGS:
        assert isinstance(value, int)
        return f"`{format_duration(value)}`"
    return f"`{value}`"


def test_every_setting_is_described_with_its_default() -> None:
    section = text_of("docs/operations.md").partition("\n## Settings\n")[2].partition("\n## ")[0]
    documented = {row[0].strip("`"): row[1] for row in table_rows(section)[1:]}
    defaults = {field.name: shown_default(field.name, getattr(Settings(), field.name)) for field in fields(Settings)}
    assert documented == defaults


def test_every_key_of_a_stream_is_described() -> None:
    section = text_of("docs/operations.md").partition("\n## The stream file\n")[2].partition("\n## ")[0]
    documented = {name for row in table_rows(section)[1:] for name in re.findall(r"`(\w+)`", row[0])}
    known = {key for keys in SOURCE_KEYS.values() for key in keys} | {"source", "time"}
    assert documented == known | {field.name for field in fields(StreamDefinition)} - {"name"}


def commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def all_commands() -> dict[str, Any]:
    from millstream.cli.main import app

    return dict(commands(get_command(app), "millstream"))


def test_every_command_is_documented() -> None:
    text = " ".join(path.read_text(encoding="utf-8") for path in PAGES)
    assert [name for name in all_commands() if not re.search(rf"{name}\b", text)] == []


def shell_lines() -> Iterator[tuple[str, str]]:
    """Calls of millstream up to their SQL: in shell blocks, continued lines joined, and in the text."""
    for path in PAGES:
        for block in blocks(path, ""):
            for line in block.replace("\\\n", " ").splitlines():
                found = re.match(r"(?:\$ )?(millstream [^-\s][^\"]*)", line)
                if found:
                    yield path.name, found[1]
        for found in re.finditer(r"`(millstream [^-`][^`\"]*)`", prose(path)):
            yield path.name, " ".join(found[1].split())


def test_shown_commands_and_options_exist() -> None:
    known = all_commands()
    groups = {name.rpartition(" ")[0] for name in known}
    for page, line in shell_lines():
        if line in groups:
            continue
        name = next((name for name in known if re.match(rf"{name}(\s|$)", line)), None)
        assert name, f"{page}: {line}"
        options = {
            option for parameter in known[name].params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        assert set(OPTION.findall(line)) <= options | {"--help"}, f"{page}: {line}"


def test_shown_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), flags=re.MULTILINE))
    for path in PAGES:
        for name in re.findall(r"(?:^|`)make ([a-z-]+)", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
            assert name in targets, f"{path.name}: make {name}"


def test_every_route_is_documented() -> None:
    from millstream.server.app import create_app

    app = create_app(None)  # type: ignore[arg-type]  # routes need no engine
    text = text_of("docs/operations.md")
    for path, operations in app.openapi()["paths"].items():
        for method in operations:
            assert f"{method.upper()} {path}" in text, f"{method.upper()} {path}"


# Links


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_resolve(path: Path) -> None:
    for target in LINK.findall(prose(path)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        linked = (path.parent / name).resolve() if name else path
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_every_page_is_linked() -> None:
    linked = {
        (path.parent / t.partition("#")[0]).resolve()
        for path in PAGES
        for t in LINK.findall(prose(path))
        if "://" not in t
    }
    linked |= {path / "README.md" for path in linked if path.is_dir()}
    assert [path.name for path in PAGES if path not in linked and path != ROOT / "README.md"] == []


def test_named_modules_exist() -> None:
    for path in PAGES:
        for name in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", path.read_text(encoding="utf-8")):
            assert (ROOT / "src" / "millstream" / name).exists(), f"{path.name}: {name}"


# Examples


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_examples_parse_and_import_what_exists(path: Path) -> None:
    for block in blocks(path, "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module == "millstream":
                assert {alias.name for alias in node.names} <= set(millstream.__all__)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_yaml_and_json_examples_load(path: Path, tmp_path: Path) -> None:
    for block in blocks(path, "json"):
        json.loads(block)
    for block in blocks(path, "yaml"):
        file = tmp_path / "example.yaml"
        file.write_text(block, encoding="utf-8")
        for stream in yaml.safe_load(block)["streams"].values():
            if "path" in stream:
                (tmp_path / stream["path"]).mkdir(parents=True, exist_ok=True)
        if "queries:" in block:
            assert load_replay_spec(file).refused == ()
        else:
            assert load_stream_file(file).streams


@pytest.fixture(scope="module")
def front_end(spark: SparkSession) -> FrontEnd:
    """A front end that knows the streams of the SQL reference, which its first block lists."""
    from millstream.runtime.analyzer import SparkAnalyzer

    listed = re.findall(r"^(\w+)\((.+)\)$", blocks(ROOT / "docs" / "sql.md", "")[0], flags=re.MULTILINE)
    streams = {name: Stream(name, parse_ddl(columns), "time", 0) for name, columns in listed}
    assert sorted(streams) == ["ads", "clicks", "purchases"]
    analyzer = SparkAnalyzer(spark)
    for stream in streams.values():
        analyzer.register(stream)
    return FrontEnd(analyzer, lambda: streams)


def test_sql_examples_compile(front_end: FrontEnd) -> None:
    examples = [example for path in PAGES for example in blocks(path, "sql")]
    assert len(examples) > 20
    for example in examples:
        front_end.compile(example)


def refused_examples() -> list[tuple[str, str]]:
    """The examples of both tables; those of joins stand after the sources that their section shows."""
    section = text_of("docs/sql.md").partition("\n## What is refused\n")[2].partition("\n## ")[0]
    plain, _, joins = section.partition("\n### Inside joins\n")
    [(_, sources)] = FENCE.findall(joins)
    found = [("", row) for row in table_rows(plain)[1:]] + [(sources, row) for row in table_rows(joins)[1:]]
    return [(before + row[1].strip("`"), row[2].strip("`")) for before, row in found]


def test_refused_examples_are_refused_with_their_code(front_end: FrontEnd) -> None:
    examples = refused_examples()
    assert len(examples) > 40
    for sql, code in examples:
        with pytest.raises(SqlError) as refusal:
            front_end.compile(sql)
        assert (sql, refusal.value.code) == (sql, code)
        assert refusal.value.hint, sql


def test_queries_of_other_pages_compile_where_they_read_purchases(front_end: FrontEnd) -> None:
    """Texts in YAML, in calls of create_query and on the command line; those that are shown as mistakes name a column
    that is none."""
    shown = "\n".join(block for path in PAGES for block in blocks(path, ""))
    texts = re.findall(r"millstream query create[^\"]*\"([^\"]+)\"", shown)
    texts += [q["sql"] for path in PAGES for b in blocks(path, "yaml") for q in yaml.safe_load(b).get("queries", ())]
    for path in PAGES:
        for block in blocks(path, "python"):
            calls = [node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)]
            texts += [
                a.value for c in calls for a in c.args if isinstance(a, ast.Constant) and "SELECT" in str(a.value)
            ]
    assert texts
    for text in texts:
        if "FROM purchases" in text and "prise" not in text:
            front_end.compile(text)


def rewrite() -> None:
    path = ROOT / "docs" / "sql.md"
    before, _, after = split_functions(path.read_text(encoding="utf-8"))
    path.write_text(before + function_table() + after, encoding="utf-8")


if __name__ == "__main__":
    rewrite()
