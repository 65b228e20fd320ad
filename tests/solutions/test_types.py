"""`gos check` and `gos apply` check step code against connector schemas and collection fields."""

import json
import shutil
from pathlib import Path

import pytest

from appliance.solutions.folder import write_folder
from appliance.solutions.starter import starter_folder
from tests.solutions.conftest import Gos, SolutionTenant, make_solution

PROCESS = """id: push
grants:
  integrations: {erp: [get, post]}
  datapool: {things: [read, write]}
steps:
  - id: send
    code: {language: typescript, file: steps/send.ts}
  - id: old
    code: {language: javascript, file: steps/old.js}
    grants: {datapool: {things: [read]}}
"""
GOOD = """import { path } from "./lib/path.ts";
export default async function (input, api) {
  const answer = await api.integrations.execute("erp", "post", { url: path("orders"), json: { n: 1 } });
  const page = await api.datapool.query("things", { filter: { weight: { _gt: 3 } } });
  await api.datapool.create("things", { code: `${page.items[0].code}-${answer.status}` });
  return answer.body.id;
}
"""
OLD = "export default (input, api) => api.datapool.create('things', { code: '1' });\n"
FILES = {
    "processes/push/process.yaml": PROCESS,
    "processes/push/steps/send.ts": GOOD,
    "processes/push/steps/old.js": OLD,
    "processes/push/steps/lib/path.ts": "export const path = (name: string) => `/${name}`;\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "solution", {path: text.encode() for path, text in (make_solution() | FILES).items()})
    return tmp_path / "solution"


def change(folder: Path, old: str, new: str, process: str = "push") -> None:
    path = folder / "processes" / process / "steps/send.ts"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_code_that_fits_passes_and_javascript_is_warned_of(gos: Gos, folder: Path) -> None:
    code, out, errors = gos("check", folder)
    assert (code, out) == (0, "small: 2 processes, 1 collections, 1 integrations, 0 webapps, no errors\n")
    warned = "no grant to write things: add grants: datapool: {things: [write]}"
    assert errors == f"warning: processes/push/steps/old.js:1:52: {warned}\n"


MISTAKES = [
    ("url: path", "ulr: path", "ulr", "'ulr' does not exist"),
    ('path("orders")', "path(5)", "5)", "'number' is not assignable to parameter of type 'string'"),
    ("answer.status", "answer.state", "state}", "'state' does not exist"),
    ("weight", "heft", "heft:", "'heft' does not exist"),
    ("{ code:", "{ cod:", "cod:", "'cod' does not exist"),
    ('"post"', '"put"', '"erp"', "no grant for put of erp: add grants: integrations: {erp: [put]}"),
    ('"erp"', '"hr"', '"hr"', "no grant for post of hr: add grants: integrations: {hr: [post]}"),
]


def test_a_type_error_against_a_real_schema_is_reported_at_its_line(gos: Gos, folder: Path) -> None:
    """Each mistake is in its own process; one check reports each exactly once."""
    places = []
    for number, (old, new, at, _) in enumerate(MISTAKES):
        process = f"push-{number}"
        shutil.copytree(folder / "processes/push", folder / "processes" / process)
        definition = folder / "processes" / process / "process.yaml"
        definition.write_text(definition.read_text().replace("id: push", f"id: {process}"))
        change(folder, old, new, process)
        places.append(f"processes/{process}/steps/send.ts:{where(folder, at, process)}: ")
    code, _, errors = gos("check", folder)
    lines = [line for line in errors.splitlines() if "send.ts:" in line]
    assert (code, len(lines)) == (1, len(MISTAKES)), errors
    unreported = [
        (place, words)
        for place, (_, _, _, words) in zip(places, MISTAKES, strict=True)
        if not any(place in line and words in line for line in lines)
    ]
    assert unreported == [], errors


def where(folder: Path, text: str, process: str = "push") -> str:
    """Line and column of a text that is in the step once."""
    source = (folder / "processes" / process / "steps/send.ts").read_text()
    assert source.count(text) == 1
    before = source[: source.index(text)].split("\n")
    return f"{len(before)}:{len(before[-1]) + 1}"


def test_apply_refuses_types_that_do_not_fit_and_leaves_nothing(gos: Gos, folder: Path, tenant: SolutionTenant) -> None:
    change(folder, "weight", "heft")
    code, _, errors = gos("apply", folder)
    assert (code, f"send.ts:{where(folder, 'heft:')}" in errors) == (1, True)
    assert tenant.api.get("/api/v1/processes/push").status_code == 404
    change(folder, "heft", "weight")
    assert gos("apply", folder)[0] == 0


def test_apply_knows_what_the_tenant_has_besides_the_solution(gos: Gos, folder: Path) -> None:
    assert gos("apply", folder)[0] == 0
    (folder / "collections/things.yaml").unlink()
    (folder / "integrations/erp.yaml").unlink()
    change(folder, "weight", "heft")
    code, _, errors = gos("apply", folder)
    assert (code, f"send.ts:{where(folder, 'heft:')}" in errors) == (1, True)
    change(folder, "heft", "weight")
    change(folder, "url: path", "ulr: path")
    code, _, errors = gos("apply", folder)
    assert (code, f"send.ts:{where(folder, 'ulr')}" in errors) == (1, True)


def test_types_for_editors_are_written_and_never_applied(gos: Gos, folder: Path, tmp_path: Path) -> None:
    gos("apply", folder)
    assert gos("check", folder, "--write-types")[0] == 0
    written = folder / "processes/push/api.d.ts"
    assert "things: { entity: {" in written.read_text()
    assert json.loads((folder / "processes/push/tsconfig.json").read_text())["include"][0] == "api.d.ts"
    before = written.stat().st_mtime_ns
    assert gos("apply", folder)[1].splitlines()[-1] == "small: nothing to change"
    assert gos("check", folder)[0] == 0
    assert written.stat().st_mtime_ns == before


def test_the_starter_has_types_and_keeps_to_them(gos: Gos, tmp_path: Path) -> None:
    shutil.copytree(starter_folder(), tmp_path / "starter")
    assert gos("check", tmp_path / "starter")[2] == ""
    step = tmp_path / "starter/processes/order-intake/steps/keep.ts"
    step.write_text(step.read_text().replace('collection: "orders"', 'collection: "order"', 1))
    code, _, errors = gos("check", tmp_path / "starter")
    assert (code, "keep.ts:" in errors) == (1, True)
