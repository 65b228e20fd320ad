"""Problems of a connector's YAML file are reported with their line, and stop nothing else."""

import json
import re
from pathlib import Path

import pytest

from appliance.cli import main
from appliance.connectors.declarative import DocumentInvalid, connector_schema, read_document
from appliance.connectors.registry import load_registry
from appliance.core import yaml12
from appliance.core.json_schema import compile_schema

PAGE = Path(__file__).parents[2] / "docs" / "declarative-connectors.md"
STOCK = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)[0]


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("{{ input.id }}", "{{ input.idd }}", "declares no member 'idd'"),
        ("{{ input.id }}", "{{ inputs.id }}", "there is no inputs here"),
        ("{{ input.id }}", "{{ input.id + 1 }}", "is no path"),
        ("{{ input.id }}", "{{ input.id", "a {{ without its }}"),
        ("?? 1000", "?? many", "no JSON value"),
        ("effect: write", "effect: rite", 'not one of "read"'),
        ("effect: write", "effect: write\n    surprise: 1", "not known here"),
        (", secret_target: true", "", "`secret_target: true`"),
        ("{{ settings.token }}", "{{ settings.tokn }}", "no member 'tokn'"),
        ("method: POST", "method: POST\n      form: {}", "one body"),
        ("path: /me", "path: '/me?x=1'", "A path holds no ?"),
        ("path: /me", "path: me", "does not match"),
        ("Idempotency-Key:", "Host:", "set by the appliance itself"),
        ("Idempotency-Key:", "'X Y':", "cannot be the name of a header"),
        ("cursor: changed_at", "cursor: 'a b'", "is no path"),
        ("kind: cursor, items: data, next: paging.next,", "kind: cursor, items: data,", "required"),
        ("sample: {name: bolt}", "sample: {nam: bolt}", "The sample breaks its schema"),
        ("input: {type: object, required: [name]", "input: {type: objekt, required: [name]", "It is no JSON Schema"),
        ("effect: write", "effect: read\n    pages: {kind: none, items: data}", None),
        ("method: POST", "method: PUT", None),
        ("title: Stock room", "title: [", "line"),
        ('base_url: "{{ settings.base_url }}"', "base_url: api.example.com", "begins with https://"),
        ('base_url: "{{ settings.base_url }}"', 'base_url: "{{ settings.token }}"', "is a secret"),
    ],
)
def test_a_wrong_line_is_named(right: str, wrong: str, message: str | None) -> None:
    assert right in STOCK
    text = STOCK.replace(right, wrong, 1)
    if message is None:
        read_document(text)
        return
    with pytest.raises(DocumentInvalid) as caught:
        read_document(text)
    assert message in str(caught.value)
    line = STOCK[: STOCK.index(right)].count("\n") + 1
    assert re.match(rf"line ({line - 1}|{line}|{line + 1}|{line + 2})\b", caught.value.problems[0]), caught.value.problems


def test_a_read_effect_requires_a_method_that_only_reads() -> None:
    with pytest.raises(DocumentInvalid, match="its effect is not `read`"):
        read_document(STOCK.replace("method: POST", "method: PUT").replace("effect: write", "effect: read"))


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(DocumentInvalid) as caught:
        read_document(STOCK.replace("{{ input.id }}", "{{ a.b }}").replace("{{ item.id }}", "{{ c.d }}"))
    assert [problem.split(",")[0] for problem in caught.value.problems] == ["line 26", "line 35"]
    assert "(and 1 more)" in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "a", "connector: x", "a: &a [*a]"])
def test_invalid_connector_documents_are_refused(text: str) -> None:
    with pytest.raises(DocumentInvalid):
        read_document(text)


def test_the_editor_schema_accepts_the_example() -> None:
    assert compile_schema(connector_schema()).problems(yaml12.load(STOCK)) == []


def test_broken_files_are_listed_and_stop_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "connectors"
    folder.mkdir()
    (folder / "stock-room.yaml").write_text(STOCK)
    (folder / "broken.yaml").write_text(STOCK.replace("title: Stock room", "titel: Stock room"))
    (folder / "other-name.yaml").write_text(STOCK)
    (folder / "http.yaml").write_text(STOCK.replace("connector: stock-room", "connector: http"))
    (folder / "bytes.yaml").write_bytes(b"\xff\xfe")
    (folder / "ignored.txt").write_text("no")
    registry = load_registry(folder=folder)
    installed = registry.find("stock-room")
    assert installed is not None
    assert (installed.distribution, sorted(installed.actions)) == (
        "connectors/stock-room.yaml",
        ["add_item", "find_item", "list_items"],
    )
    assert {problem.name for problem in registry.problems} == {"broken", "other-name", "http", "bytes"}
    messages = {problem.name: problem.message for problem in registry.problems}
    assert "broken.yaml, line 1, title: This member is required." in messages["broken"]
    assert "name the file stock-room.yaml" in messages["other-name"]
    assert "is taken by gos-connector-http" in messages["http"]
    assert main(["--data", str(tmp_path), "connector", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out) if row["from"].startswith("connectors/")}
    assert (rows["stock-room"]["actions"], rows["stock-room"]["triggers"]) == (3, 1)
    assert rows["broken"]["problem"] == messages["broken"]
