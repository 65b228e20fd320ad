"""Pages for careful operations: the plan before a retry, and dry runs."""

import html
import json
import re
from typing import Any

import httpx
import pytest

from tests.console.browser import Browser

ADDRESS = "/api/v1/processes/careful"
SOURCE = """export default async function (input, api) {
  api.log.info("saving <it>");
  await api.datapool.create("careful-notes", {what: input.what}).catch(() => null);
  return {name: "<Ada>"};
}"""


@pytest.fixture(scope="module")
def failed_execution(acme: httpx.Client) -> str:
    """A failed execution of version 1; its process has a draft that works, and a sample."""
    steps: list[Any] = [
        {"id": "save", "code": {"language": "javascript", "source": SOURCE}},
        {"id": "both", "parallel": {"a": [{"id": "inner", "rule": {"expression": "= 1"}}]}},
        {"id": "end", "rule": {"expression": "= input.no.thing"}},
    ]
    body = {"id": "careful", "name": "Careful", "grants": {"datapool": {"careful-notes": ["write"]}}, "steps": steps}
    fields = [{"name": "what", "type": "text"}]
    acme.post("/api/v1/datapool", json={"name": "careful-notes", "fields": fields}).raise_for_status()
    acme.put(ADDRESS, json=body).raise_for_status()
    acme.post(f"{ADDRESS}/publish", json={}).raise_for_status()
    steps[2] = {"id": "end", "rule": {"expression": "= steps.save.name"}}
    acme.put(ADDRESS, json=body).raise_for_status()
    acme.put(f"{ADDRESS}/samples/small", json={"input": {"what": "pinned"}}).raise_for_status()
    answer = acme.post(f"{ADDRESS}/execute?wait=20", json={"what": "x"}).json()["data"]
    assert answer["status"] == "failed", answer
    return str(answer["execution_id"])


def test_the_plan_comes_before_the_retry(owner: Browser, failed_execution: str) -> None:
    page = owner.get(owner.at("acme", f"/console/executions/{failed_execution}")).text
    assert f'href="/console/executions/{failed_execution}/retry"' in page
    plan = owner.get(owner.at("acme", f"/console/executions/{failed_execution}/retry"))
    assert plan.status_code == 200
    assert "Step runs: 3 reused, 1 run again." in plan.text
    again = owner.get(owner.at("acme", f"/console/executions/{failed_execution}/retry?from=save")).text
    assert "save would write another record to careful-notes." in again
    assert 'name="from" value="save"' in again
    assert "from both/inner" in again
    wrong = owner.get(owner.at("acme", f"/console/executions/{failed_execution}/retry?from=none"))
    assert wrong.status_code == 422
    assert "there is no step" in wrong.text.lower()
    retried = owner.post(owner.at("acme", f"/console/executions/{failed_execution}/retry"), {"from": "both/inner", "token": "once"})
    assert "Retry of" in retried.text


def test_a_draft_is_tested_with_a_form(owner: Browser, acme: httpx.Client, failed_execution: str) -> None:
    address = owner.at("acme", "/console/processes/careful/test")
    page = owner.get(owner.at("acme", "/console/processes/careful")).text
    assert 'href="/console/processes/careful/test"' in page
    assert 'href="?sample=small"' in page
    assert "pinned" in owner.get(owner.at("acme", "/console/processes/careful?sample=small&as=json")).text
    assert "pinned" in owner.get(f"{address}?sample=small").text
    before = acme.get("/api/v1/datapool/careful-notes/entities?count=exact").json()["meta"]["total"]
    dry_run = owner.post(address, {"input": '{"what": "dry"}', "version": "draft"})
    assert dry_run.status_code == 200
    assert "&lt;Ada&gt;" in dry_run.text
    assert "saving &lt;it&gt;" in dry_run.text
    assert "<code>datapool.create</code>" in dry_run.text
    assert acme.get("/api/v1/datapool/careful-notes/entities?count=exact").json()["meta"]["total"] == before
    published = owner.post(address, {"input": "{}", "version": "published"})
    assert "<strong>end:</strong>" in published.text
    one = owner.post(address, {"input": "", "step": "end", "sample": "small", "mocks": '{"end": {"output": "mocked-it"}}'}).text
    assert "mocked-it" in one
    for form, message in (({"input": "{"}, "`input` is not valid JSON"),
                       ({"mocks": "[]"}, "`mocks` must be a JSON object"),
                       ({"mocks": '{"z": 1}'}, "/mocks/z"),
                       ({"step": "end", "steps": "x"}, "`steps` is not valid JSON")):  # fmt: skip
        answer = owner.post(address, form)
        assert answer.status_code == 422
        assert message in answer.text.replace("The ", "the ")


BOOK = """export default async (input, api) => {
  api.log.info("booking");
  if (input.at > 10) throw new Error("too dear");
  return input.at;
}"""
LOOP: dict[str, Any] = {"id": "lines", "for_each": {"items": "= input.lines", "as": "line", "steps": [
    {"id": "price", "rule": {"expression": "= line.price * steps.rate"}},
    {"id": "book", "code": {"language": "javascript", "source": BOOK}, "input": {"at": "= steps.price"}},
]}}  # fmt: skip


def test_a_step_is_tested_with_the_input_of_its_failure(owner: Browser, acme: httpx.Client) -> None:
    steps = [{"id": "rate", "rule": {"expression": "= 2"}}, LOOP, {"id": "never", "rule": {"expression": "= 1"}}]
    acme.put("/api/v1/processes/looping", json={"id": "looping", "steps": steps}).raise_for_status()
    acme.post("/api/v1/processes/looping/publish", json={}).raise_for_status()
    input_ = {"lines": [{"price": 3}, {"price": 7}, {"price": 4}]}
    failed = acme.post("/api/v1/processes/looping/execute?wait=20", json=input_).json()["data"]
    address = owner.at("acme", "/console/processes/looping/test")
    process = owner.get(owner.at("acme", "/console/processes/looping")).text
    assert 'href="/console/processes/looping/test?step=lines/book"' in process
    page = owner.get(f"{address}?step=lines/book").text
    assert f'href="/console/executions/{failed["execution_id"]}"' in page
    form = {}
    for name in ("input", "steps", "items"):
        match = re.search(rf'<textarea id="{name}".*?>\n(.*?)</textarea>', page, re.DOTALL)
        assert match is not None
        form[name] = html.unescape(match[1])
    assert json.loads(form["input"]) == input_
    assert json.loads(form["steps"]) == {"rate": 2, "price": 14}
    assert json.loads(form["items"]) == {"line": {"price": 7}}
    again = owner.post(address, {**form, "step": "lines/book", "version": "draft"}).text
    assert "too dear" in again
    assert "the step's source:3" in html.unescape(again)
    assert "Failed here: " in again
    better = owner.post(address, {**form, "step": "lines/book", "steps": '{"price": 5}'}).text
    assert "booking" in better
    assert re.search(r'<pre id="output"[^>]*>5</pre>', better)
    assert "No recent execution reached this step" in owner.get(f"{address}?step=never").text
    assert owner.get(f"{address}?step=none").status_code == 404
