"""A folder is read with every problem at once."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from appliance.core.errors import DefinitionInvalid, NotFound, ValidationFailed
from appliance.solutions.definition import read_solution
from appliance.solutions.folder import read_folder, write_folder
from tests.solutions.conftest import make_solution, read


def problems_of(files: Mapping[str, str | bytes]) -> dict[str, str]:
    """Message by file (the first of each)."""
    with pytest.raises(DefinitionInvalid) as caught:
        read_solution({path: text if isinstance(text, bytes) else text.encode() for path, text in files.items()})
    by_file: dict[str, str] = {}
    for detail in caught.value.details:
        by_file.setdefault(detail.pointer.removeprefix("/"), detail.message)
    return by_file


def test_a_valid_folder_is_typed() -> None:
    solution = read(make_solution())
    assert (solution.name, solution.needed_connectors(), solution.needed_secrets()) == ("small", ["http"], ["erp_token"])
    assert solution.collections["things"]["fields"][1]["type"] == "integer"
    assert solution.processes["add"].draft.files.keys() == {"steps/sum.ts"}
    assert solution.integrations["erp"].spec.name == "erp"


def test_secrets_are_needed_where_settings_refer_to_them() -> None:
    files = make_solution(**{"solution.yaml": "name: small\n"})
    assert read(files).needed_secrets() == ["erp_token"]


def test_what_is_for_people_is_ignored() -> None:
    extra = {
        "README.md": "",
        "LICENSE": "",
        "docs/a.md": "",
        "tests/t.json": "",
        "sample/x.csv": "",
        ".github/ci.yml": "",
        ".env": "X",
    }
    assert read(make_solution(**extra)) == read(make_solution())


def test_every_problem_is_reported_with_its_file_and_line() -> None:
    files: dict[str, str | bytes] = {
        **make_solution(),
        "solution.yaml": "name: Not A Slug\ncolour: red\n",
        "collections/things.yaml": "fields:\n  - {name: code, type: text}\n  - {name: weight, type: heavy}\n",
        "collections/deep/x.yaml": "",
        "integrations/erp.yaml": "connector: http\nsettings:\n  base_url: = 1 + 1\n",
        "integrations/Bad.yaml": "connector: http\n",
        "processes/add/process.yaml": "id: add\nsteps:\n  - id: one\n    code: {language: cobol, source: x}\n",
        "processes/add/logo.png": b"\x89PNG\xff",
        "processes/lost/steps/a.ts": "",
        "processes/stray.yaml": "",
        "webapps/shop/app.yaml": "",
        "SKILLS/greet/SKILL.md": "",
        "notes.txt": "",
    }
    problems = problems_of(files)
    assert problems.keys() == (files.keys() - {"processes/add/steps/sum.ts", "processes/lost/steps/a.ts"}) | {
        "processes/lost/process.yaml"
    }
    assert problems["solution.yaml"].startswith("solution.yaml:2: 'colour' is not known here")
    assert problems["collections/things.yaml"].startswith("collections/things.yaml:3: /fields/1/type must be one of")
    assert problems["integrations/erp.yaml"].startswith("integrations/erp.yaml:3: ")
    assert problems["processes/add/process.yaml"].startswith("processes/add/process.yaml:4: /steps/0/code/language")
    assert "a version holds at least one file" in problems["webapps/shop/app.yaml"]
    assert problems["SKILLS/greet/SKILL.md"].startswith("SKILLS/greet/SKILL.md: it must begin with a line ---")
    assert "Remove this file" in problems["notes.txt"]


@pytest.mark.parametrize(
    ("text", "part"),
    [("a: [1", "invalid_yaml"), ("- x", "mapping"), ("name: x\nname: y", "twice"), ("name: &a [*a]", ""), ("", "mapping")],
)
def test_invalid_yaml_is_refused(text: str, part: str) -> None:
    assert problems_of(make_solution(**{"solution.yaml": text})).keys() >= {"solution.yaml"}, part


def test_a_file_says_the_same_name_as_its_path() -> None:
    files = make_solution(**{"collections/things.yaml": "name: other\nfields: [{name: a, type: text}]\n"})
    files["processes/add/process.yaml"] = files["processes/add/process.yaml"].replace("id: add", "id: subtract", 1)
    assert problems_of(files).keys() == {"collections/things.yaml", "processes/add/process.yaml"}


def test_a_folder_on_disk_is_read_and_written(tmp_path: Path) -> None:
    files = {path: text.encode() for path, text in make_solution().items()}
    assert write_folder(tmp_path, files) == sorted(files)
    assert write_folder(tmp_path, files) == []
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("x")
    assert read_folder(tmp_path) == files


def test_a_folder_without_solution_yaml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no solution\.yaml"):
        read_folder(tmp_path)


def test_links_in_a_folder_are_neither_read_nor_written_through(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "folder"
    write_folder(folder, {"solution.yaml": b"name: x\n"})
    (folder / "processes").symlink_to(outside)
    with pytest.raises(ValidationFailed, match="link"):
        read_folder(folder)
    with pytest.raises(ValidationFailed, match="link"):
        write_folder(folder, {"processes/a/process.yaml": b""})
    with pytest.raises(ValidationFailed, match="not accepted"):
        write_folder(folder, {"../escaped": b""})
    assert list(outside.iterdir()) == []
