"""The numbered modules, and the baseline that collects the statements of the rooms."""

import ast
import re
from pathlib import Path

import pytest

from appliance.core.database.full_text import index_statements
from appliance.migrations import BASELINE, last_number, ledger, sequence, statements_of_file
from tests.architecture.source_tree import imported_modules, name_of, python_files, tree_of

BASELINES = [path for path in python_files("appliance") if path.name == "baseline.py"]
CREATED = re.compile(r"CREATE (?:UNIQUE |VIRTUAL )?(TABLE|INDEX) (\w+)")


def names_in(texts: list[str]) -> set[str]:
    return {match[2] for text in texts for match in CREATED.finditer(text)}


def test_numbers_begin_with_the_baseline_and_have_no_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(sequence.modules()) == list(range(BASELINE, last_number() + 1))
    for name in ("m0100_baseline", "m0102_later", "ledger"):
        (tmp_path / f"{name}.py").touch()
    monkeypatch.setattr(sequence, "__file__", str(tmp_path / "sequence.py"))
    with pytest.raises(ValueError, match=r"without gaps, not \[100, 102\]"):
        sequence.modules.__wrapped__()


@pytest.mark.parametrize("is_sqlite", [True, False])
def test_the_baseline_has_the_statements_of_every_room(is_sqlite: bool) -> None:
    written = [
        node.value for path in BASELINES for node in ast.walk(tree_of(path)) if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
    ]  # fmt: skip
    indexes = [statement for table in ("document_text", "log_line") for statement in index_statements(table)[not is_sqlite]]
    statements = list(sequence.statements(BASELINE, is_sqlite=is_sqlite))
    assert names_in(statements) == names_in([*written, *indexes]) | {"task", "task_priority_id"}
    assert not any("{" in statement.replace("'{}'", "") for statement in statements)


@pytest.mark.parametrize("path", BASELINES, ids=name_of)
def test_a_baseline_imports_core_only(path: Path) -> None:
    """Importing it must be quick and cannot make a cycle, because `m0100_baseline` is exempt from the layers."""
    assert [name for _, name in imported_modules(tree_of(path)) if not name.startswith("appliance.core.")] == []


def test_the_statements_of_a_file_continue_from_a_number() -> None:
    whole = list(statements_of_file(last_number()))
    assert whole[0] == ledger.CREATE
    assert [*statements_of_file(BASELINE), *list(statements_of_file(last_number(), after=BASELINE))[1:]] == whole
    assert list(statements_of_file(last_number(), after=last_number())) == [ledger.CREATE]
