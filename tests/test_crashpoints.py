"""Crash points cannot be forgotten: every write, transaction and acknowledgement in the source has its own.

Run as a script it writes the tables of crash points in the documentation anew: ``python tests/test_crashpoints.py``.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream import crashpoints
from millstream.crashpoints import CRASH_AT, CRASH_ONCE, FILE_STEPS, FILES, POINTS, STEPS, TRANSACTIONS, Switch
from millstream.runtime import home

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "millstream"
BEGIN, END = "<!-- crash points: begin -->\n", "<!-- crash points: end -->"

# Modules that write files no crash can harm, and why.
WRITES_ELSEWHERE = {
    "bench": "measurements, written by a program of its own",
    "cli": "logs and what the user asked to be written",
    "engine/replay.py": "the result of a replay, which begins from nothing when it is repeated",
    "runtime/java.py": "a cache that is made again",
    "sources/recorded.py": "input converted for a replay, inside its temporary home",
}
# Functions of the home without a point of their own, and why.
NO_POINT = {
    "delete": "removes a home that nobody comes back to",
    "sync_tree": "of a copy, which passes a point before it and after it",
}

# Transactions outside Database.write.
BY_HAND = ("open", "migrate", "copy_metastore")

# Functions elsewhere that change files without a point, and why that may be left undone.
LEFT_UNDONE = {
    ("server/discovery.py", "withdraw"): "a file that is left says where an engine was; clients check its process",
    ("engine/backup.py", "_copy_checkpoint"): "a copy that is made once more, because Spark wrote meanwhile",
    ("engine/backup.py", "_take_away"): "a copy that has failed; the draft, which goes last, has what is left refused",
    ("runtime/analyzer.py", "forget"): "a temporary file, which Java removes at its end",
    ("runtime/checkpoint.py", "mend_checkpoint"): (
        "it removes what Spark never finished, and the next start does the rest; the id that it writes may be any, and "
        "a torn one is removed and written again"
    ),
}

_WRITING_NAMES = {
    "copy",
    "copy2",
    "copyfile",
    "copytree",
    "fsync",
    "ftruncate",
    "link",
    "makedirs",
    "mkdir",
    "move",
    "pwrite",
    "remove",
    "removedirs",
    "rename",
    "renames",
    "replace",
    "rmdir",
    "rmtree",
    "symlink",
    "truncate",
    "unlink",
}
# Those that bring a file under its name, or take it away: between any two of them a crash is another one.
_NAMING = {"link", "move", "remove", "rename", "replace", "rmtree", "unlink"}
# Of Arrow: what writes a file that it names itself.
_WRITERS = {"ParquetWriter", "RecordBatchFileWriter", "write_table", "write_feather", "write_dataset", "new_file"}
_WRITING_METHODS = {
    "write",
    "write_text",
    "write_bytes",
    "writelines",
    "unlink",
    "rename",
    "truncate",
    "mkdir",
    "touch",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text(encoding="utf-8"))


def functions(tree: ast.AST) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """By name; of the second with a name too, with a number."""
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            again = sum(name.partition("#")[0] == node.name for name in found)
            found[f"{node.name}#{again + 1}" if again else node.name] = node
    return found


def calls(tree: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def called(call: ast.Call) -> str:
    """The last name of what is called."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def points(tree: ast.AST) -> list[ast.Call]:
    return [call for call in calls(tree) if called(call) == "crash_point"]


def parsed(module: str) -> ast.Module:
    return ast.parse((SOURCE / module).read_text(encoding="utf-8"))


def writes_to_disk(call: ast.Call) -> bool:
    module = ast.unparse(call.func).rpartition(".")[0]
    if module == "os" and called(call) == "open":
        return any(flag in ast.unparse(call) for flag in ("O_CREAT", "O_WRONLY", "O_RDWR"))
    if module in ("os", "shutil"):
        return call.func.attr in _WRITING_NAMES if isinstance(call.func, ast.Attribute) else False
    if called(call) in ("open", "OSFile", "memory_map"):
        # The mode is the second argument, the first one of a path's method, or has a name.
        modes = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
        texts = [mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
        return any(re.fullmatch(r"[rwxab+t]{1,3}", text) and set(text) & set("wxa+") for text in texts)
    if called(call) in _WRITERS:
        return True
    if called(call) == "replace" and isinstance(call.func, ast.Attribute):
        # Of a path, unlike that of a text, it has one argument; that of a dataclass has keywords.
        return len(call.args) == 1 and not call.keywords
    return isinstance(call.func, ast.Attribute) and called(call) in _WRITING_METHODS


# The registry and the calls


def test_every_call_is_registered_and_every_registered_point_is_called() -> None:
    named: set[str] = set()
    computed: dict[str, set[str]] = {}
    for module, tree in modules():
        for call in points(tree):
            name = call.args[0]
            if isinstance(name, ast.Constant):
                named.add(str(name.value))
            else:
                assert isinstance(name, ast.JoinedStr), f"{module}: a crash point is named by a text"
                last = name.values[-1]
                assert isinstance(last, ast.Constant), f"{module}: the step of a crash point is a plain text"
                computed.setdefault(module, set()).add(str(last.value).lstrip("."))
    assert computed == {
        "catalog/database.py": {"before-commit", "after-commit"},
        "runtime/home.py": set(FILE_STEPS),
    }
    by_hand = {f"{name}.{step}" for name in BY_HAND for step in ("before-commit", "after-commit")}
    assert named == set(STEPS) | by_hand


def test_every_point_says_why_it_is_safe() -> None:
    assert len(POINTS) == len(STEPS) + 2 * len(TRANSACTIONS) + len(FILES) * len(FILE_STEPS)
    for name, why in POINTS.items():
        assert re.fullmatch(r"[a-z_]+\.[a-z-]+", name)
        assert re.fullmatch(r"[A-Z].+\.", why), name
        assert "{" not in why


# What must have a point


def test_every_transaction_of_the_metastore_goes_by_its_own_name() -> None:
    found: set[str] = set()
    for name, function in functions(parsed("catalog/metastore.py")).items():
        for call in calls(function):
            if called(call) == "write":
                assert [arg.value for arg in call.args if isinstance(arg, ast.Constant)] == [name]
                found.add(name)
    assert found | set(BY_HAND) == set(TRANSACTIONS)


def test_nobody_else_begins_a_transaction_that_writes() -> None:
    for module, tree in modules():
        for name, function in functions(tree).items():
            begins = [call for call in calls(function) if called(call) == "begin" and not call.args]
            if begins and module.startswith(("catalog", "engine", "runtime", "server")):
                assert (module, name) in {
                    ("catalog/database.py", "read"),
                    ("catalog/database.py", "look_into"),
                    ("catalog/database.py", "write"),
                    ("catalog/database.py", "_install"),
                    ("catalog/database.py", "_written"),
                    ("catalog/migrations.py", "migrate"),
                    ("catalog/copying.py", "copy_metastore"),
                    ("catalog/copying.py", "check_empty"),
                    ("catalog/copying.py", "_copy"),
                }, f"{module}: {name} begins a transaction past Database.write"
            if module.startswith("catalog") and module != "catalog/metastore.py":
                assert not [c for c in calls(function) if ast.unparse(c.func).endswith("database.write")], module


def test_every_write_of_the_home_has_a_point() -> None:
    found = functions(parsed("runtime/home.py"))
    writing = {name for name, function in found.items() if any(writes_to_disk(call) for call in calls(function))}
    assert {"write", "remove", "sync_path", "_make_folder", "__init__"} <= writing
    # Who writes without a point is a helper: whoever calls it must have one.
    uncovered = {name for name in writing if not points(found[name])}
    while uncovered - set(NO_POINT):
        helper = min(uncovered - set(NO_POINT))
        users = {n for n, function in found.items() if helper in {called(c) for c in calls(function)} and n != helper}
        assert users, f"{helper} of the home writes and has no crash point"
        uncovered = (uncovered - {helper}) | {name for name in users if not points(found[name])}


def test_no_two_names_change_without_a_point_between_them() -> None:
    for module, tree in modules():
        for name, function in functions(tree).items():
            changes = [call for call in calls(function) if called(call) in _NAMING and writes_to_disk(call)]
            if points(function) and not module.startswith(tuple(WRITES_ELSEWHERE)):
                found = [ast.unparse(call) for call in changes if not _in_memory(call)]
                assert len(found) <= len(points(function)), f"{module}: {name}: {found}"


WRITING = [
    "open(p, 'wb')",
    "open(p, mode='a')",
    "p.open('w')",
    "os.open(p, os.O_CREAT | os.O_RDWR)",
    "os.replace(a, b)",
    "p.replace(b)",
    "shutil.copytree(a, b)",
    "shutil.rmtree(a)",
    "pa.OSFile(p, 'w')",
    "pq.write_table(t, p)",
    "p.write_text('')",
]
NOT_WRITING = [
    "open(p)",
    "open(p, 'rb')",
    "p.open()",
    "os.open(p, os.O_RDONLY)",
    "text.replace('a', 'b')",
    "pa.OSFile(p, 'r')",
]


@pytest.mark.parametrize(("text", "writes"), [*((t, True) for t in WRITING), *((t, False) for t in NOT_WRITING)])
def test_what_writes_is_known(text: str, writes: bool) -> None:
    [call] = calls(ast.parse(text))[:1]
    assert writes_to_disk(call) is writes


def test_every_folder_that_is_swept_has_its_points(tmp_path: Path) -> None:
    place = home.Home(str(tmp_path))
    place.create()
    for folder in tmp_path.iterdir():
        (folder / "file").touch()
    assert {file.partition("/")[0] for file in place.files()} == set(FILES)


def test_nobody_writes_files_past_the_home() -> None:
    for module, tree in modules():
        if module in ("runtime/home.py", "crashpoints.py") or module.startswith(tuple(WRITES_ELSEWHERE)):
            continue
        for name, function in functions(tree).items():
            found = [call for call in calls(function) if writes_to_disk(call) and not _in_memory(call)]
            assert not found or points(function) or (module, name) in LEFT_UNDONE, (
                f"{module}: {name} writes a file without a crash point: {[ast.unparse(call) for call in found]}"
            )


def _in_memory(call: ast.Call) -> bool:
    """Writes through the home or the database, which have points, and into texts and buffers."""
    target = ast.unparse(call.func)
    return (
        re.search(r"(home|_database|store|kept|sys\.std\w+|writer|sink|buffer|stream|output|console)\.\w+$", target)
        is not None
    )


def test_every_acknowledgement_lies_between_two_points() -> None:
    found = []
    for module, tree in modules():
        for name, function in functions(tree).items():
            for position, statement in enumerate(function.body):
                if "set_result" in {called(call) for call in calls(statement)}:
                    around = [function.body[position - 1], function.body[position + 1]] if position else []
                    assert [len(points(one)) for one in around] == [1, 1], f"{module}: {name} acknowledges"
                    found.append((module, name))
    assert found == [("engine/changelog.py", "_acknowledge")]


# The switch


def dies(environment: dict[str, str]) -> int:
    code = (
        "from millstream.crashpoints import crash_point\n"
        "for n in range(3):\n"
        "    crash_point('ingest.job-done'); print('job', flush=True)\n"
        "    crash_point('ingest.done'); print('done', flush=True)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode in (0, -signal.SIGKILL), child.stderr
    return len(child.stdout.split())


@pytest.mark.parametrize(
    ("at", "passed"), [("ingest.done", 1), ("ingest.done:3", 5), ("*:4", 3), ("ingest.done:4", 6), ("fire.done", 6)]
)
def test_the_environment_says_where_to_die(at: str, passed: int) -> None:
    assert dies({CRASH_AT: at}) == passed


def test_nobody_dies_without_the_switch() -> None:
    assert crashpoints.from_environment({}) is None
    assert dies({}) == 6


def test_only_the_first_process_dies_where_there_is_a_marker(tmp_path: Path) -> None:
    environment = {CRASH_AT: "ingest.done:2", CRASH_ONCE: str(tmp_path / "marker")}
    assert [dies(environment), dies(environment)] == [3, 6]


def test_unknown_points_are_errors() -> None:
    with pytest.raises(ValueError, match=r"no crash point 'ingest.nowhere'; existing: .*ingest.done"):
        Switch.parse("ingest.nowhere")
    with pytest.raises(ValueError, match=r"'ingest.nowhere' is not registered"):
        Switch.parse("ingest.done")("ingest.nowhere", "")


# The documentation


def tables() -> str:
    lines = ["| transaction | killed before its commit | killed after it |", "|---|---|---|"]
    lines += [f"| `{name}` | {before} | {after} |" for name, (before, after) in sorted(TRANSACTIONS.items())]
    folders = ", ".join(f"`{folder}`" for folder in FILES)
    lines += ["", f"| step of a file in {folders} | killed there |", "|---|---|"]
    lines += [f"| `{step}` | {why.format(by='the transaction that does')} |" for step, why in FILE_STEPS.items()]
    lines += ["", "| files in | are named by |", "|---|---|"]
    lines += [f"| `{folder}` | {by} |" for folder, by in FILES.items()]
    lines += ["", "| other step | killed there |", "|---|---|"]
    lines += [f"| `{name}` | {why} |" for name, why in STEPS.items()]
    return "\n".join(lines) + "\n"


def pages() -> list[Path]:
    return [page for page in (ROOT / "docs").rglob("*.md") if BEGIN in page.read_text(encoding="utf-8")]


def test_the_tables_of_crash_points_are_complete() -> None:
    [page] = pages()
    documented = page.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert documented == tables(), "run: python tests/test_crashpoints.py"


def rewrite() -> None:
    for page in pages():
        before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
        page.write_text(before + BEGIN + tables() + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    rewrite()
