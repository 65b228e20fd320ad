"""Pages of recordings: the journal of a step and the replay of an execution."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.console.browser import Browser

ADDRESS = "/api/v1/processes/recorded"


def definition(sort: str, name: str) -> dict[str, Any]:
    source = f"""export default async function (input, api) {{
      const at = Date.now();
      await api.datapool.query('none-such', {{sort: '{sort}'}}).catch(() => null);
      return {{name: '{name}', at, dice: Math.random(), then: Date.now()}};
    }}"""
    steps = [{"id": "ask", "code": {"language": "javascript", "source": source}}, {"id": "size", "rule": {"expression": "= 1"}}]
    return {"id": "recorded", "name": "Recorded", "grants": {"datapool": {"none-such": ["read"]}}, "steps": steps}


@pytest.fixture(scope="module")
def execution(acme: httpx.Client) -> str:
    """An execution of version 1; version 2 makes another query, and the draft returns another result."""
    for sort in ("one", "other"):
        acme.put(ADDRESS, json=definition(sort, "<Ada>")).raise_for_status()
        acme.post(f"{ADDRESS}/publish", json={}).raise_for_status()
    acme.put(ADDRESS, json=definition("one", "Grace")).raise_for_status()
    answer = acme.post(f"{ADDRESS}/execute?wait=20&version=1", json={}).json()["data"]
    assert answer["status"] == "succeeded", answer
    return str(answer["execution_id"])


def replay(browser: Browser, execution: str, **form: str) -> httpx.Response:
    return browser.post(browser.at("acme", f"/console/executions/{execution}/replay"), form)


def test_its_own_version_is_the_same_as_recorded(owner: Browser, execution: str) -> None:
    page = owner.get(owner.at("acme", f"/console/executions/{execution}")).text
    assert f'action="/console/executions/{execution}/replay"' in page
    text = replay(owner, execution).text
    assert "Identical to the recording." in text
    assert "version 1 (as it ran)" in text
    assert "version 2 (published)" in text


def test_another_version_shows_the_call_that_differs_and_the_draft_the_changes(owner: Browser, execution: str) -> None:
    text = replay(owner, execution, version="2").text
    assert "1 of 2 step runs differs from the recording." in text
    assert "at call 1" in text
    assert "&#34;sort&#34;: &#34;one&#34;" in text
    assert "&#34;sort&#34;: &#34;other&#34;" in text
    text = replay(owner, execution, version="draft").text
    assert "<del>&#34;&lt;Ada&gt;&#34;</del>" in text
    assert "<ins>&#34;Grace&#34;</ins>" in text
    assert "&lt;Ada&gt;" in replay(owner, execution, version="draft", step="ask").text
    assert "Identical to the recording." in replay(owner, execution, version="draft", step="size").text


@pytest.mark.parametrize(
    ("form", "status", "message"),
    [({"version": "9"}, 404, "has no version 9"), ({"version": "x"}, 400, "choose one from the list")],
)
def test_an_unknown_version_cannot_be_replayed(
    owner: Browser, execution: str, form: dict[str, str], status: int, message: str
) -> None:
    answer = replay(owner, execution, **form)
    assert (answer.status_code, message in answer.text) == (status, True)


def test_a_viewer_reads_the_journal_and_does_not_replay(signed_in: Callable[[str], Browser], execution: str) -> None:
    viewer = signed_in("viewer@acme.test")
    page = viewer.get(viewer.at("acme", f"/console/executions/{execution}"))
    assert "/replay" not in page.text
    assert replay(viewer, execution).status_code == 403
    journal = viewer.get(viewer.at("acme", f"/console/executions/{execution}/journal?path=ask&iteration=")).text
    assert "datapool.query" in journal
    assert "Seed of Math.random" in journal
    assert "(not used)" not in journal
    assert "Clock reads after the last call" in journal
    empty = viewer.get(viewer.at("acme", f"/console/executions/{execution}/journal?path=size&iteration=")).text
    assert "No calls" in empty
    missing = viewer.get(viewer.at("acme", f"/console/executions/{execution}/journal?path=none&iteration="))
    assert missing.status_code == 404


def test_another_tenant_sees_neither(signed_in: Callable[[str], Browser], execution: str) -> None:
    other = signed_in("owner@globex.test")
    assert other.get(other.at("globex", f"/console/executions/{execution}/journal?path=ask&iteration=")).status_code == 404
    assert other.post(other.at("globex", f"/console/executions/{execution}/replay"), {}).status_code == 404
