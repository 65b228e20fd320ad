"""Executions in the console: found, acted on several at once, and looked into step by step."""

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from appliance.core import clock
from tests.console.browser import Browser

SOURCE = """export default async function (input, api) {
  const line = input.line
  if (line === 3) {
    throw new Error('line <3> is not for sale')
  }
  return line
}"""
STEPS: list[dict[str, Any]] = [
    {
        "id": "each",
        "for_each": {
            "items": "= input.lines", "as": "line", "on_error": "continue",
            "steps": [{"id": "sell", "input": {"line": "= line"}, "code": {"language": "javascript", "source": SOURCE}}],
        },
    },
    {"id": "total", "rule": {"expression": "= input.lines.length"}},
    {"id": "last", "rule": {"expression": "= input.no.thing"}, "when": "= input.fails"},
]  # fmt: skip


@pytest.fixture(scope="module")
def process(acme: httpx.Client) -> str:
    """A process that sells lines; with `fails` its last step fails."""
    body = {"id": "sale", "name": "Sale", "steps": STEPS}
    acme.put("/api/v1/processes/sale", json=body).raise_for_status()
    acme.post("/api/v1/processes/sale/publish", json={}).raise_for_status()
    return "sale"


@pytest.fixture(scope="module")
def run(acme: httpx.Client, process: str) -> Callable[..., str]:
    def execute(label: str, lines: int = 1, **more: Any) -> str:
        body = {"lines": list(range(lines)), "fails": False, **more}
        answer = acme.post(f"/api/v1/processes/{process}/execute?wait=30&label={label}", json=body).json()["data"]
        return str(answer["execution_id"])

    return execute


@pytest.fixture(scope="module")
def loop_execution(run: Callable[..., str]) -> str:
    """An execution with twelve lines, of which one fails while the loop continues."""
    return run("a dozen", 12)


@pytest.fixture(scope="module")
def failed_execution(run: Callable[..., str]) -> str:
    return run("unsold goods", fails=True, article="hammer-77")


def execution_ids(page: httpx.Response) -> list[str]:
    return re.findall(r'class="cover" href="/console/executions/(exe_\w+)"', page.text)


def loop_items(page: str) -> list[str]:
    return re.findall(r'class="cover" href="[^"]*item=(\d+)"', page)


def search(owner: Browser, query: str) -> list[str]:
    page = owner.get(owner.at("acme", f"/console/executions?{query}"))
    assert page.status_code == 200, page.text
    return execution_ids(page)


@pytest.mark.parametrize(
    ("query", "finds"),
    [
        ("text=unsold", True), ("text=hammer-77", True), ("text=hammer", False), ("text=expression_failed&process=sale", True),
        ("step=last&process=sale", True), ("step=total&process=sale", False), ("label=unsold+goods", True), ("label=unsold", False),
        ("process=sale&version=1&state=failed", True), ("process=sale&version=2", False), ("process=sale&by=key", True),
        ("process=sale&by=trigger", False), ("process=sale&span=1h", True), ("process=sale&until=2020-01-01", False),
        ("process=sale&since=2020-01-01T10:00", True), ("process=sale&took=1h", False), ("process=sale&took=0ms", True),
    ],
)  # fmt: skip
def test_executions_can_be_searched(owner: Browser, failed_execution: str, query: str, finds: bool) -> None:
    assert (failed_execution in search(owner, query)) is finds


def test_an_execution_is_found_by_its_id_alone(owner: Browser, failed_execution: str, loop_execution: str) -> None:
    assert search(owner, f"text={loop_execution}") == [loop_execution]


@pytest.mark.parametrize("query", ["version=x", "took=long", "since=soon", "by=nobody", "state=no", "span=1y"])
def test_an_invalid_search_is_explained_and_stays_in_the_form(owner: Browser, query: str) -> None:
    page = owner.get(owner.at("acme", f"/console/executions?{query}&text=kept"))
    assert page.status_code == 422
    assert 'data-testid="problem"' in page.text
    assert 'value="kept"' in page.text


def test_a_search_that_finds_nothing_says_what_to_do(owner: Browser, process: str) -> None:
    page = owner.get(owner.at("acme", "/console/executions?text=never-written")).text
    assert "No execution matches this search" in page
    assert 'href="/console/executions">View all' in page


def test_selected_executions_are_retried_once_after_a_confirmation(
    owner: Browser, acme: httpx.Client, run: Callable[..., str]
) -> None:
    failed = [run("again", fails=True) for _ in range(2)]
    address = owner.at("acme", "/console/executions/bulk")
    page = owner.post(address, {"action": "retry", "id": failed}).text
    assert "2 selected executions." in page
    assert "Executions that were already retried are skipped" in page
    assert not acme.get("/api/v1/executions?label=again&status=queued").json()["data"]
    assert "2 executions retried." in owner.post(address, {"action": "retry", "id": failed, "confirmed": "1"}).text
    assert "Nothing to retry" in owner.post(address, {"action": "retry", "id": failed}).text
    assert "Retried as" in owner.get(owner.at("acme", f"/console/executions/{failed[0]}")).text


def test_all_matches_of_a_search_are_cancelled(owner: Browser, acme: httpx.Client, process: str) -> None:
    later = {"run_at": clock.rfc3339(clock.now_ms() + 86_400_000), "label": "far"}
    address = "/api/v1/processes/sale/execute"
    ids = [acme.post(address, params=later, json={"lines": []}).json()["data"]["execution_id"] for _ in range(3)]
    form = {"action": "cancel-all", "label": "far"}
    page = owner.post(owner.at("acme", "/console/executions/bulk"), form).text
    assert "3 executions match this search." in page
    assert "3 executions cancelled." in owner.post(owner.at("acme", "/console/executions/bulk"), {**form, "confirmed": "1"}).text
    assert {acme.get(f"/api/v1/processes/sale/executions/{each}").json()["data"]["status"] for each in ids} == {"cancelled"}


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"action": "cancel"}, "Select at least one"), ({"action": "cancel-all"}, "Filter the list first"),
        ({"action": "delete", "id": "exe_x"}, "Choose an action"),
        ({"action": "retry-all", "version": "x"}, "is not a version number"),
    ],
)  # fmt: skip
def test_a_bulk_action_needs_a_selection_or_a_filter(owner: Browser, process: str, form: dict[str, str], message: str) -> None:
    page = owner.post(owner.at("acme", "/console/executions/bulk"), {**form, "confirmed": "1"})
    assert page.status_code in (400, 422)
    assert message.lower() in page.text.lower()


def test_a_viewer_cannot_select_executions(signed_in: Callable[[str], Browser], loop_execution: str) -> None:
    viewer = signed_in("viewer@acme.test")
    page = viewer.get(viewer.at("acme", "/console/executions?process=sale")).text
    assert loop_execution in page
    assert "/console/executions/bulk" not in page


def test_a_loop_is_folded_and_its_runs_are_paged(owner: Browser, loop_execution: str) -> None:
    base = owner.at("acme", f"/console/executions/{loop_execution}")
    page = owner.get(base).text
    assert "11 succeeded, 1 failed" in page
    assert re.findall(r'data-testid="run">.*?Item (\d+)<', page) == ["3"]
    runs = owner.get(f"{base}/runs?path=each/sell").text
    assert loop_items(runs) == [str(number) for number in range(12)]
    assert loop_items(owner.get(f"{base}/runs?path=each/sell&state=failed").text) == ["3"]
    assert loop_items(owner.get(f"{base}/runs?path=each/sell&cursor=9").text) == ["10", "11"]
    assert owner.get(f"{base}/runs?path=each/sell&state=odd").status_code == 400
    assert owner.get(f"{base}/runs?path=nowhere").status_code == 404


def test_a_failed_run_shows_the_line_of_code(owner: Browser, loop_execution: str) -> None:
    page = owner.get(owner.at("acme", f"/console/executions/{loop_execution}/runs?path=each/sell&item=3")).text
    assert "line &lt;3&gt; is not for sale" in page
    marked = re.search(r'<li value="(\d+)" class="marked">.*?<code>(.*?)</code>', page)
    assert marked is not None
    assert (marked[1], "throw new Error" in marked[2]) == ("4", True)
    assert 'href="/console/processes/sale/edit?step=sell&amp;line=4&amp;column=' in page
    assert owner.get(owner.at("acme", f"/console/executions/{loop_execution}/runs?path=each/sell&item=99")).status_code == 404


def test_the_editor_opens_at_the_line_of_the_error(owner: Browser, acme: httpx.Client) -> None:
    source = "export default async function () {\n\n  throw new Error('no')\n}\n"
    steps = [{"id": "check", "code": {"language": "typescript", "file": "steps/validate.ts"}}]
    body = {"definition": {"id": "validates", "steps": steps}, "files": {"steps/validate.ts": source}}
    acme.put("/api/v1/processes/validates", json=body).raise_for_status()
    acme.post("/api/v1/processes/validates/publish", json={}).raise_for_status()
    failed = acme.post("/api/v1/processes/validates/execute?wait=30", json={}).json()["data"]["execution_id"]
    place = 'href="/console/processes/validates/edit?file=steps/validate.ts#line=3&amp;column=13"'
    for address in (f"/console/executions/{failed}", f"/console/executions/{failed}/runs?path=check"):
        assert place in owner.get(owner.at("acme", address)).text


INLINE = """id: inline
steps:
  - id: first
    code: {language: typescript, source: "export default () => 1"}
  - id: "second & third"
    code:
      language: typescript
      source: |

        export default () => {
          throw new Error("no")
        }
"""


def test_the_editor_opens_at_the_line_of_a_source_in_the_definition(owner: Browser, acme: httpx.Client) -> None:
    acme.put("/api/v1/processes/inline", json={"id": "inline", "steps": []}).raise_for_status()
    edit = owner.at("acme", "/console/processes/inline/edit")
    stamp = re.search(r'name="stamp" value="([^"]*)"', owner.get(edit).text)
    assert stamp is not None
    owner.post(edit, {"file": "process.yaml", "text": INLINE, "stamp": stamp[1], "do": "save"})
    for query, place in (
        ("step=second+%26+third&line=3&column=9", "#line=11&column=17"),
        ("step=first&line=1&column=8", "#line=4&column=50"),
        ("step=first&line=x&column=-1", "#line=4&column=43"),
        ("step=gone&line=3&column=9", ""),
    ):
        owner.get(f"{edit}?{query}")
        assert owner.url.partition("/edit")[2] == f"?file=process.yaml{place}"
    code = {"language": "typescript", "source": "one\ntwo\n"}
    acme.put("/api/v1/processes/inline", json={"id": "inline", "steps": [{"id": "a", "code": code}]}).raise_for_status()
    owner.get(f"{edit}?step=a&line=2&column=3")
    assert owner.url.partition("#")[2] == "line=8&column=9", "a definition without a stored text is shown as YAML"


def first_version(page: str) -> str:
    """The version that the retry form preselects."""
    option = re.search(r'name="version"><option value="(\w+)"', page)
    return option[1] if option else ""


def test_a_retry_uses_the_original_version_by_default(owner: Browser, acme: httpx.Client) -> None:
    def publish(expression: str) -> None:
        body = {"id": "mends", "steps": [{"id": "one", "rule": {"expression": expression}}]}
        acme.put("/api/v1/processes/mends", json=body).raise_for_status()
        acme.post("/api/v1/processes/mends/publish", json={}).raise_for_status()

    publish("= input.no.thing")
    failed = acme.post("/api/v1/processes/mends/execute?wait=30", json={}).json()["data"]["execution_id"]
    publish("= 1")
    address = owner.at("acme", f"/console/executions/{failed}")
    page = owner.get(address).text
    assert (first_version(page), "Version 2 has been published since." in page) == ("original", True)
    assert 'value="original" selected' in owner.get(f"{address}/retry").text
    failures = owner.get(owner.at("acme", "/console/failures")).text
    assert first_version(failures[failures.index("/console/processes/mends") :]) == "original"

    owner.post(f"{address}/retry", {"from": "failed"})
    second = owner.url.rpartition("/")[2]
    acme.get(f"/api/v1/processes/mends/executions/{second}/events").raise_for_status()  # ends with the execution
    assert "input.no" in owner.get(owner.at("acme", f"/console/executions/{second}")).text, "the original version ran"
    page = owner.get(address).text
    assert ("Retried:" in page, f"/console/executions/{second}" in page, 'data-testid="retry"' in page) == (True, True, True)
    owner.post(owner.at("acme", f"/console/executions/{second}/retry"), {"from": "failed", "version": "published"})
    third = owner.url.rpartition("/")[2]
    acme.get(f"/api/v1/processes/mends/executions/{third}/events").raise_for_status()
    page = owner.get(address).text
    assert ("A retry succeeded:" in page, f"/console/executions/{third}" in page) == (True, True)
    assert 'data-testid="retry"' not in page, "nothing is left to retry"
    assert owner.get(owner.at("acme", "/console/failures")).text.count("/console/processes/mends") == 0, "its group is resolved"


def test_an_event_is_delivered_by_hand(owner: Browser, acme: httpx.Client) -> None:
    steps = [{"id": "paid", "wait": {"event": "= 'paid'", "timeout": "1h"}}]
    acme.put("/api/v1/processes/awaits", json={"id": "awaits", "steps": steps}).raise_for_status()
    acme.post("/api/v1/processes/awaits/publish", json={}).raise_for_status()
    started = acme.post("/api/v1/processes/awaits/execute?wait=1", json={}).json()["data"]["execution_id"]
    address = owner.at("acme", f"/console/executions/{started}")
    page = owner.get(address).text
    token = re.search(r'name="token" value="(wai_\w+)"', page)
    assert token is not None, page
    wrong = owner.post(f"{address}/resume", {"token": token[1], "data": "{"})
    assert (wrong.status_code, "data must be JSON" in wrong.text) == (400, True)
    assert owner.post(f"{address}/resume", {"token": token[1], "data": '{"sum": 12}'}).status_code == 200
    ended = acme.get(f"/api/v1/processes/awaits/executions/{started}/events").text
    assert "succeeded" in ended


def test_pages_report_their_server_time(owner: Browser, process: str) -> None:
    page = owner.get(owner.at("acme", "/console/executions"))
    assert re.search(r"app;dur=\d+\.\d", ", ".join(page.headers.get_list("Server-Timing")))
