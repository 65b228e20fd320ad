"""`gos test`: cases and test tables of a folder, run in a place of their own."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from appliance.cli import main
from appliance.core import yaml12
from appliance.monitor import metrics
from appliance.solutions.folder import write_folder
from appliance.solutions.starter import starter_folder
from appliance.solutions.testing.cases import read_cases
from tests.sandbox.test_decisions import table
from tests.solutions.conftest import make_solution

GosTest = Callable[..., tuple[int, str, str]]
PROCESS = """
id: take
input: {type: object, required: [n], properties: {n: {type: integer}}}
grants: {datapool: {things: [read, write]}, secrets: [erp_token]}
steps:
  - {id: price, rule: {decision: rules/price.json, input: {total: = input.n, tier: null}}}
  - {id: look, datapool: {collection: things, query: {filter: {weight: {_gt: 3}}}}}
  - id: each
    for_each: {items: = steps.look.items, as: thing, steps: [{id: code, rule: {expression: = thing.code}}]}
  - {id: read, when: = input.n > 5, integration: {use: erp, action: get, input: {url: /x}}}
  - {id: push, when: = input.n > 1, integration: {use: erp, action: post, input: {url: /x, json: {n: = input.n}}}}
  - {id: fit, when: = input.n < 0, rule: {expression: "= input.missing.value"}}
  - id: keep
    code:
      language: typescript
      source: |
        export default async function (input: StepInput, api: Api) {
          api.log.info("keeping");
          const made = await api.datapool.create("things", {code: "new", weight: input.n});
          return {code: made.code, secret: await api.secrets.get("erp_token")};
        }
output: {kept: = steps.keep.code, codes: = steps.each, discount: = steps.price.discount}
"""
TABLE = "cases:\n  - {name: much, input: {total: 2000, tier: null}, output: {discount: 0.1}}\n"
CASES: dict[str, Any] = {
    "process": "take",
    "records": {"things": [{"code": "a", "weight": 9}, {"code": "b", "weight": 1}]},
    "cases": [
        {
            "name": "all is well", "input": {"n": 2},
            "expect": {
                "output": {"kept": "new", "codes": ["a"]},
                "steps": {
                    "code": {"times": 1, "outputs": ["a"]}, "read": {"status": "skipped"}, "push": {"result_source": "mocked"},
                },
                "effects": [
                    {"step": "push", "method": "integrations.execute", "args": ["erp", "post", {"json": {"n": 2}}]},
                    {"step": "keep", "method": "datapool.create", "args": ["things", {"weight": 2}]},
                ],
            },
        },
        {"name": "records of its own", "input": {"n": 1}, "records": {"things": []}, "expect": {"output": {"codes": []}}},
        {"name": "refused", "input": {"n": "x"}, "expect": {"status": "refused", "error": {"message": "/n"}}},
        {"name": "failed", "input": {"n": -1}, "expect": {"error": {"failure_class": "validation", "step": "fit"}}},
        {"name": "one step", "step": "price", "input": {"n": 2000}, "expect": {"output": {"discount": 0.1}}},
    ],
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pulled = make_solution()["integrations/erp.yaml"].replace("= secrets.erp_token", "{sealed: true}")
    price = table([{"t": "> 1000", "d": "0.1", "c": "''"}, {"d": "0", "c": "''"}])
    files = make_solution(
        **{
            "processes/take/process.yaml": PROCESS, "processes/take/rules/price.json": json.dumps(price),
            "processes/take/rules/price.tests.yaml": TABLE, "tests/take.yaml": yaml12.dump(CASES),
            "integrations/pulled.yaml": pulled,
            "SKILLS/thrift/SKILL.md": "---\nname: thrift\ndescription: Spend little.\n---\nSpend little.\n",
        }
    )  # fmt: skip
    write_folder(tmp_path / "solution", {path: text.encode() for path, text in files.items()})
    return tmp_path / "solution"


@pytest.fixture
def gos_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> GosTest:
    """Runs the command beside the folder; answers exit code, output and errors."""
    for name in [name for name in os.environ if name.startswith("GOS_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    # Its appliance is gone afterwards: nobody may go on asking it for its figures.
    monkeypatch.setattr(metrics.registry, "_metrics", {**metrics.registry._metrics})

    def run(folder: Path, *more: str) -> tuple[int, str, str]:
        code = main(["test", str(folder), *more])
        return code, *capsys.readouterr()

    return run


def run_process(folder: Path) -> tuple[int, str, str]:
    """The command in a process of its own, as people have it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GOS_")}
    command = [sys.executable, "-P", "-m", "appliance", "test", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder.parent)
    return done.returncode, done.stdout, done.stderr


def with_cases(folder: Path, *cases: dict[str, Any], **more: Any) -> None:
    (folder / "tests/take.yaml").write_text(yaml12.dump({"process": "take", **more, "cases": list(cases)}))


def test_passing_cases_are_printed_one_per_line_also_with_sealed_secrets(gos_test: GosTest, folder: Path) -> None:
    assert "{sealed: true}" in (folder / "integrations/pulled.yaml").read_text()
    code, out, errors = gos_test(folder)
    assert (code, errors) == (0, "")
    assert [line.split("  ")[-1] for line in out.splitlines()] == [
        "much", "all is well", "records of its own", "refused", "failed", "one step", "small: 6 passed, 0 failed",
    ]  # fmt: skip
    assert not (folder.parent / "data").exists(), "nothing is left behind"


def test_a_failing_case_is_reported_with_all_differences(gos_test: GosTest, folder: Path) -> None:
    with_cases(
        folder,
        {"name": "wrong", "input": {"n": 2}, "mocks": {"each": {"output": ["z"]}, "datapool.update": {"output": 1}}, "expect": {
            "output": {"kept": "old", "codes": ["a"], "discount": 0.5}, "steps": {"push": {"times": 2}, "code": {"output": "a"}},
            "effects": [{"step": "push", "args": ["erp", "put"]}],
        }},
        {"name": "should fail", "input": {"n": 1}, "expect": {"error": {"code": "x"}}},
        {"name": "fails otherwise", "input": {"n": -1}, "expect": {"error": {"code": "x", "message": "no such words"}}},
        {"name": "fails", "input": {"n": -1}},
        {"name": "reads", "input": {"n": 6}},
        {"name": "nobody knows it", "process": "gone", "input": {}},
        {"name": "no such record", "input": {"n": 1}, "records": {"things": [{"wait": 1}]}},
    )  # fmt: skip
    code, out, _ = gos_test(folder, "--json")
    cases = {case["name"]: case for case in json.loads(out)["cases"]}
    assert (code, json.loads(out)["failed"]) == (1, 7)
    assert cases["wrong"]["problems"] == [
        'output/kept: expected "old", found "new"',
        'output/codes/0: expected "a", found "z"',
        "output/discount: expected 0.5, found 0",
        "steps/push/times: expected 2, found 1",
        "steps/code: it did not run",
        'effects/0/args/1: expected "put", found "post"',
        "effects/0/args/2: expected nothing, found " + '{"url": "/x", "json": {"n": 2}}',
        cases["wrong"]["problems"][7],
        "mocks: nothing asked for datapool.update",
    ]
    assert cases["wrong"]["problems"][7].startswith("effects/1: expected nothing, found {")
    assert cases["wrong"]["logs"] == ["keep: info keeping"]
    assert cases["should fail"]["problems"] == ["status: expected failed, found succeeded"]
    assert [each.split(":")[0] for each in cases["fails otherwise"]["problems"]] == ["error/code", "error/message"]
    assert "(step fit)" in cases["fails"]["problems"][0]
    assert "a test case calls no foreign system; add a mock for integrations.execute/erp/get" in cases["reads"]["problems"][0]
    assert cases["nobody knows it"]["problems"] == ["there is no process 'gone' here"]
    assert "wait" in cases["no such record"]["problems"][0]


def test_a_report_for_people_and_one_for_ci(gos_test: GosTest, folder: Path) -> None:
    (folder / "processes/take/rules/price.tests.yaml").write_text(TABLE.replace("0.1", "0.2"))
    report = folder.parent / "report.xml"
    code, out, _ = gos_test(folder, "--junit", str(report), "--only", "rules/")
    assert code == 1
    assert out == (
        "FAIL processes/take/rules/price.tests.yaml:2  much\n       /discount: expected 0.2, found 0.1\nsmall: 0 passed, 1 failed\n"
    )
    suite = ElementTree.fromstring(report.read_bytes())  # noqa: S314  we wrote it
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    (case,) = suite
    assert (case.get("classname"), case.get("name")) == ("processes/take/rules/price.tests.yaml", "much")
    assert case[0].get("message") == "/discount: expected 0.2, found 0.1"


def test_a_folder_that_is_wrong_or_has_no_tests_is_a_sentence(gos_test: GosTest, folder: Path) -> None:
    code, out, errors = gos_test(folder, "--only", "nothing of the kind")
    assert (code, out, "there are no tests" in errors) == (1, "", True)
    (folder / "processes/take/process.yaml").write_text(PROCESS.replace("thing.code", "thing.("))
    code, out, errors = gos_test(folder)
    assert (code, out, "processes/take/process.yaml:9:" in errors, "Traceback" in errors) == (1, "", True, False)


def test_the_starter_holds_its_own_tests() -> None:
    code, out, errors = run_process(starter_folder())
    assert errors == ""
    assert (code, out.splitlines()[-1]) == (0, "order-intake: 7 passed, 0 failed")


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("cases: 5", 1, "a list of at least one"), ("[]", 1, "an object"), ("cases: [", 2, "node content"),
        ("cases:\n  - {input: {}}", 2, "give the process"),
        ("process: p\ncases:\n  - name: x\n    inptu: {}", 4, "'inptu' is not known"),
        ("process: p\ncases:\n  - input_file: sample/none.json", 3, "such as sample/input.json"),
        ("process: p\ncases:\n  - {input: {}, input_file: sample/a.json}", 3, "either"),
        ("process: p\ncases:\n  - input_file: sample/bad.json", 3, "cannot be read"),
        ("process: p\ncases:\n  - expect:\n      status: done", 4, "one of succeeded"),
        ("process: p\ncases:\n  - expect:\n      status: failed\n      output: 1", 5, "only a successful execution"),
        ("process: p\ncases:\n  - expect:\n      steps:\n        a: {time: 1}", 5, "'time' is not known"),
        ("process: p\ncases:\n  - expect:\n      effects: {}", 4, "a list of calls"),
        ("process: p\ncases:\n  - expect:\n      effects: [{argz: 1}]", 4, "'argz' is not known"),
        ("process: p\ncases:\n  - records: {things: 5}", 3, "a list of objects"),
        ("process: p\ncases: [5]", 2, "an object"), ("process: p\ncases: [{name: 5}]", 2, "must be texts"),
    ],
)  # fmt: skip
def test_a_problem_of_a_case_file_is_reported_with_its_line(text: str, line: int, part: str) -> None:
    cases, problems = read_cases({"tests/a.yaml": text.encode(), "sample/bad.json": b"{", "sample/a.json": b"{}"})
    assert cases == []
    assert (problems[0].file, problems[0].line, part in problems[0].message) == ("tests/a.yaml", line, True), problems
