"""Each table belongs to one room; other rooms ask it through its exports and neither read nor write its tables.

A table belongs to the room whose `baseline.py` creates it, or that defines its model.  Other tables are listed in `OTHERS`.  A
model that a room exports is the type of the rows that it returns, so other rooms can use it in annotations only.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source_tree import dotted_name, name_of, offences_in, python_files, tree_of

OTHERS = {"document_name_index": "documents", "migration": "migrations", "room_trial": "core", "task": "core"}
EXEMPT = {
    "appliance/core/leases/open_tenants.py": "reads which tenants are closed or reset, because no claim on their rows is made",
    "appliance/migrations/": "changes the tables of every room",
    "appliance/core/scope.py": "reads the ids of tenants, for the rooms below `tenants` that work for every tenant",
    "appliance/backups/": "copies, counts and checks the rows of every table, and ends the unfinished work of an imported tenant",
    "appliance/testing/draining.py": "waits for the work of every room, in the tests of solutions",
}
"""Files and folders that may name the tables of other rooms, and why."""
TABLE_VERBS = {
    "delete_older", "delete_older_by_number", "full_text.add", "full_text.find_ids",
    "full_text.matching_ids", "full_text.remove",
}  # fmt: skip
BASELINE = "baseline.py"
BASES = {"PlatformModel", "TenantModel"}
CREATED = re.compile(r'\bCREATE (?:VIRTUAL )?TABLE (?:IF NOT EXISTS )?"?([a-z_]+)"?')
_NAME = r'(?:ONLY )?"?[a-z_]+"?'
_ALIAS = r"(?:\s+(?:AS\s+)?[a-z_]+)?"
READ = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE|TABLE|REFERENCES)\s+({_NAME}{_ALIAS}(?:\s*,\s*{_NAME}{_ALIAS})*)")
FOREIGN_KEY = re.compile(r"\bREFERENCES\s+\w+")
"""In a baseline, a room may refer to the tables of others."""


def room_of(path: Path) -> str:
    """The room of a file, by its place in the project."""
    return name_of(path).split("/")[1]


def texts_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and value of each string; the values of a formatted string are replaced by braces."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value


def tables_in(sql: str) -> Iterator[str]:
    """The tables that a statement, or a part of one, reads or writes."""
    for match in READ.finditer(sql):
        for source in match[1].split(","):
            yield source.replace("ONLY ", "").split()[0].strip('"')


def table_of(model: ast.ClassDef) -> str:
    """The table of a model: `table_name` in its `Meta`, otherwise its name in snake case, as in peewee."""
    for node in ast.walk(model):
        if isinstance(node, ast.Assign) and dotted_name(node.targets[0]) == "table_name" and isinstance(node.value, ast.Constant):
            return str(node.value.value)
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", model.name).lower()


@functools.cache
def models() -> dict[tuple[str, str], str]:
    """The table of each model, by room and class."""
    return {
        (room_of(path), node.name): table_of(node)
        for path in python_files("appliance")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and any(dotted_name(base).rpartition(".")[2] in BASES for base in node.bases)
        and node.name not in BASES
    }  # fmt: skip


@functools.cache
def baselines() -> dict[str, str]:
    """The room of each table that a `baseline.py` creates."""
    files = [path for path in python_files("appliance") if path.name == BASELINE]
    return {table: room_of(path) for path in files for _, text in texts_in(tree_of(path)) for table in CREATED.findall(text)}


@functools.cache
def owners() -> dict[str, str]:
    """The room of each table."""
    return baselines() | {table: room for (room, _), table in models().items()} | OTHERS


def find_foreign_tables(room: str, tree: ast.AST, *, ignored: re.Pattern[str] = re.compile("(?!)")) -> Iterator[str]:
    """The tables of other rooms that a file names: in its SQL without what is `ignored`, or as first argument of `TABLE_VERBS`."""
    names = [(line, table) for line, text in texts_in(tree) for table in tables_in(ignored.sub("", text))]
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and dotted_name(node.func) in TABLE_VERBS)
    names += [(call.lineno, str(call.args[0].value)) for call in calls if isinstance(call.args[0], ast.Constant)]
    for line, table in names:
        if owners().get(table, room) != room:
            yield f"line {line} uses {table} of {owners()[table]}"


def annotations_in(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
            yield node.returns
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation


def find_foreign_models(room: str, tree: ast.AST) -> Iterator[str]:
    """Uses of a model of another room other than in an annotation."""
    foreign = {name for owner, name in models() if owner != room}
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("appliance.")
        for alias in node.names
        if alias.name in foreign and (node.module.split(".")[1], alias.name) in models() and node.module.split(".")[1] != room
    }
    annotated = {id(node) for annotation in annotations_in(tree) for node in ast.walk(annotation)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in imported and id(node) not in annotated:
            yield f"line {node.lineno} queries {node.id} of another room"


def find_foreign_uses(path: Path) -> list[str]:
    if name_of(path).startswith(tuple(EXEMPT)):
        return []
    if path.name == BASELINE:
        return list(find_foreign_tables(room_of(path), tree_of(path), ignored=FOREIGN_KEY))
    return [*find_foreign_tables(room_of(path), tree_of(path)), *find_foreign_models(room_of(path), tree_of(path))]


def test_rooms_use_their_own_tables_only() -> None:
    assert offences_in(python_files("appliance"), find_foreign_uses) == {}


def test_every_table_has_an_owner() -> None:
    created = {
        (room_of(path), table)
        for path in python_files("appliance")
        for _, text in texts_in(tree_of(path))
        for table in CREATED.findall(text)
    }
    assert len(baselines()) > 90
    assert {table for _, table in created} - owners().keys() == set()
    assert owners().keys() - {table for _, table in created} == set()
    assert {(room, table) for room, table in created if room not in ("migrations", owners()[table])} == set()


def test_every_exemption_is_needed() -> None:
    files = {name_of(path): path for path in python_files("appliance")}
    for start in EXEMPT:
        matches = [path for name, path in files.items() if name.startswith(start)]
        assert any(list(find_foreign_tables(room_of(path), tree_of(path))) for path in matches), start


@pytest.mark.parametrize(
    "source",
    [
        'db.rows("SELECT actor FROM execution WHERE id = ?", (id,))',
        'db.rows(f"SELECT {names} FROM document d JOIN execution e ON e.id = d.{name}")',
        'db.rows("SELECT 1 FROM document d, execution AS e")',
        'db.execute("DELETE FROM document WHERE NOT EXISTS (SELECT 1 FROM \\"execution\\" e)")',
        'db.execute("UPDATE execution SET status = 1")',
        'db.execute("INSERT INTO step_run (id) VALUES (1)")',
        'delete_older("step_run", "id", "at", 0)',
        "from appliance.processes import Execution\nscope.select(Execution)",
        "from appliance.processes import Execution as Run\nrows = Run.id == 1",
    ],
)
def test_a_use_of_a_foreign_table_is_found(source: str) -> None:
    tree = ast.parse(source)
    assert len([*find_foreign_tables("documents", tree), *find_foreign_models("documents", tree)]) == 1
    assert list(find_foreign_models("processes", tree)) == []
    assert "of processes" not in " ".join(find_foreign_tables("processes", tree))


@pytest.mark.parametrize(
    "source",
    [
        '"an execution of a process, read from execution"',
        'db.rows("SELECT id FROM document")',
        "from appliance.processes import Execution\ndef view(row: Execution) -> list[Execution]: ...",
    ],
)
def test_other_texts_and_types_pass(source: str) -> None:
    tree = ast.parse(source)
    assert [*find_foreign_tables("documents", tree), *find_foreign_models("documents", tree)] == []
