"""`gos apply`, `pull`, `check`, `execute`, `logs` against a live appliance."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.cli import main
from appliance.solutions.folder import write_folder
from appliance.solutions.starter import starter_folder
from tests.solutions.conftest import Gos, SolutionTenant, make_solution


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_folder(tmp_path / "solution", {path: text.encode() for path, text in make_solution().items()})
    return tmp_path / "solution"


def test_a_folder_is_planned_applied_and_executed(gos: Gos, folder: Path) -> None:
    code, out, _ = gos("apply", folder, "--plan")
    assert (code, out.splitlines()[-1]) == (0, "small: 3 to change")
    assert "+ process add  published as version 1" in out
    assert gos("apply", folder, "--message", "first")[1].splitlines()[-1] == "small: 3 changed"
    assert gos("apply", folder)[1].splitlines()[-1] == "small: nothing to change"
    assert gos("execute", "add", "--input", '{"a": 41}')[:2] == (0, "42\n")


def test_a_blocked_plan_says_what_to_do_and_fails(gos: Gos, folder: Path) -> None:
    (folder / "solution.yaml").write_text("name: small\nneeds: {secrets: [other_token]}\n")
    code, out, _ = gos("apply", folder, "--plan")
    assert (code, "! secret other_token  not set\n    blocked: set it with PUT" in out) == (1, True)
    code, out, errors = gos("apply", folder)
    assert (code, out) == (1, "")
    assert errors.startswith("gos: the solution cannot be applied yet: secret other_token")


def test_the_address_may_be_passed_as_an_option(
    gos: Gos, folder: Path, tenant: SolutionTenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOS_URL", "http://127.0.0.1:9")
    url = tenant.running.config.tenant_url(tenant.scope.tenant_id)
    assert gos("apply", folder, "--to", url, "--plan", "--json")[0] == 0
    code, _, errors = gos("apply", folder)
    assert (code, "does not answer" in errors, len(errors.splitlines())) == (1, True, 1)


def test_a_pulled_tenant_applies_unchanged(gos: Gos, folder: Path, tmp_path: Path) -> None:
    gos("apply", folder)
    code, out, _ = gos("pull", tmp_path / "pulled")
    assert (code, "processes/add/steps/sum.ts" in out.splitlines()) == (0, True)
    assert gos("pull", tmp_path / "pulled")[1] == ""
    assert gos("apply", tmp_path / "pulled")[1].splitlines()[-1].endswith("nothing to change")


def test_a_pull_into_the_folder_keeps_what_says_the_same(gos: Gos, folder: Path, tenant: SolutionTenant) -> None:
    process = folder / "processes/add/process.yaml"
    process.write_text(f"# what it is for\n{process.read_text()}")
    before = {path: path.read_text() for path in folder.rglob("*") if path.is_file()}
    gos("apply", folder)
    assert gos("pull", folder)[:2] == (0, "")
    assert {path: path.read_text() for path in folder.rglob("*") if path.is_file()} == before
    tenant.api.patch("/api/v1/datapool/things", json={"description": "changed there"}).raise_for_status()
    settings = {"base_url": "https://x.example", "headers": {"a": "= secrets.more"}}
    more = {"connector": "http", "slug": "other", "name": "other", "settings": settings}
    tenant.api.post("/api/v1/integrations", json=more).raise_for_status()
    assert gos("pull", folder)[1].splitlines() == ["collections/things.yaml", "integrations/other.yaml", "solution.yaml"]
    root = (folder / "solution.yaml").read_text()
    assert ("name: small" in root, "erp_token" in root, "more" in root) == (True, True, True)
    assert process.read_text() == before[process]


def test_a_pulled_tenant_has_the_name_of_its_solution(gos: Gos, folder: Path, tmp_path: Path, tenant: SolutionTenant) -> None:
    gos("apply", folder)
    gos("pull", tmp_path / "pulled")
    assert (tmp_path / "pulled/solution.yaml").read_text().startswith("name: small\n")
    tenant.apply({"solution.yaml": "name: second\n", "collections/others.yaml": "fields: [{name: a, type: text}]\n"})
    gos("pull", tmp_path / "both")
    assert (tmp_path / "both/solution.yaml").read_text().startswith(f"name: {tenant.scope.tenant_id}\n")


def test_check_finds_what_only_the_sandbox_sees(gos: Gos, folder: Path) -> None:
    assert gos("check", folder)[:2] == (0, "small: 1 processes, 1 collections, 1 integrations, 0 webapps, no errors\n")
    counts = {"processes": 1, "collections": 1, "integrations": 1, "webapps": 0}
    assert json.loads(gos("check", folder, "--json")[1]) == {"solution": "small"} | counts
    assert gos("check", starter_folder())[0] == 0
    (folder / "processes/add/steps/sum.ts").write_text("export default () => {\n  let 1;\n}\n")
    code, _, errors = gos("check", folder)
    assert code == 1
    assert "processes/add/steps/sum.ts:2:" in errors


def test_check_reports_every_problem_once(gos: Gos, folder: Path) -> None:
    (folder / "processes/add/steps/sum.ts").write_text("export default () => {\n  const n: number = 'a';\n  return n;\n}\n")
    (folder / "processes/add/rules").mkdir()
    (folder / "processes/add/rules/price.json").write_text('{"nodes": [], "edges": []}')
    process = folder / "processes/add/process.yaml"
    process.write_text(f"{process.read_text()}  - id: price\n    rule: {{decision: rules/price.json}}\n")
    (folder / "collections/more.yaml").write_text("fields: [{name: a, type: nothing}]\n")
    code, _, errors = gos("check", folder)
    places = ["collections/more.yaml:", "processes/add/rules/price.json:", "processes/add/steps/sum.ts:2:"]
    sentences = [line.strip() for line in errors.splitlines()]
    assert (code, [place in errors for place in places], len(set(sentences))) == (1, [True] * 3, len(sentences))
    process.write_text(process.read_text().replace("id: price", "id: price\n    whenn: = true"))
    code, _, errors = gos("check", folder)
    sentences = [line.strip() for line in errors.splitlines()]
    assert (code, [place in errors for place in places], len(set(sentences))) == (1, [True] * 3, len(sentences))
    assert sum("processes/add/process.yaml:" in line for line in sentences) == 1


def test_a_single_error_is_printed_once(gos: Gos, folder: Path) -> None:
    (folder / "processes/add/steps/sum.ts").write_text("export default () => {\n  let 1;\n}\n")
    code, _, errors = gos("check", folder)
    assert (code, len(errors.splitlines())) == (1, 1)
    assert errors.startswith("gos: the solution is not valid; processes/add/steps/sum.ts:2:")


@pytest.mark.parametrize(
    ("argument", "part"),
    [("{", "not JSON"), ("[1]", "must be a JSON object"), ("@/no/such/file", "cannot be read"), ("-", "not JSON")],
)
def test_invalid_input_is_reported_in_a_sentence(gos: Gos, monkeypatch: pytest.MonkeyPatch, argument: str, part: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("nonsense"))
    code, _, errors = gos("execute", "add", "--input", argument)
    assert (code, part in errors, "Traceback" in errors) == (1, True, False)


def test_a_failed_execution_fails_the_command_and_shows_the_error(gos: Gos, folder: Path) -> None:
    (folder / "processes/add/steps/sum.ts").write_text("export default () => { throw new Error('no luck') }\n")
    gos("apply", folder)
    (folder.parent / "input.json").write_text("{}")
    code, out, _ = gos("execute", "add", "--input", "@" + str(folder.parent / "input.json"))
    assert (code, json.loads(out)["error"]["message"]) == (1, "no luck")


def test_logs_are_printed_and_followed(gos: Gos, folder: Path) -> None:
    code_text = "export default (i: any, api: any) => { api.log.warn('seen', {n: i.n}); return 0 }\n"
    (folder / "processes/add/steps/sum.ts").write_text(code_text)
    gos("apply", folder)
    gos("execute", "add", "--input", '{"n": 1}')
    code, out, _ = gos("logs", "--level", "warn")
    assert (code, len(out.splitlines()), " warn " in out, " seen " in out, '{"n": 1}' in out) == (0, 1, True, True, True)
    command = [sys.executable, "-m", "appliance", "logs", "--follow", "--level", "warn", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        try:
            stream = follower.stdout
            assert stream is not None
            assert json.loads(stream.readline())["fields"] == {"n": 1}
            gos("execute", "add", "--input", '{"n": 2}')
            assert json.loads(stream.readline())["fields"] == {"n": 2}
        finally:
            follower.terminate()


def test_without_an_appliance_or_key_the_next_step_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("GOS_URL", "GOS_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert main(["--data", str(tmp_path), "logs"]) == 1
    assert "set --url and GOS_API_KEY" in capsys.readouterr().err
    assert main(["logs", "--url", "ftp://x"]) == 1
    assert "GOS_API_KEY is not set" in capsys.readouterr().err
