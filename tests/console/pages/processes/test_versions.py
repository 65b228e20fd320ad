"""Pages of a process's versions: the list, differences, publishing the reviewed draft, and restoring a version."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.console.browser import Browser

ADDRESS = "/api/v1/processes/numbered"


def rule(name: str, expression: str) -> dict[str, Any]:
    return {"id": name, "rule": {"expression": expression}}


def save(acme: httpx.Client, *steps: dict[str, Any], files: dict[str, str] | None = None) -> None:
    definition = {"id": "numbered", "name": "Numbered", "steps": list(steps)}
    acme.put(ADDRESS, json={"definition": definition, "files": files or {}}).raise_for_status()


@pytest.fixture
def numbered(acme: httpx.Client) -> Iterator[httpx.Client]:
    """A process with two versions and a draft that is newer; version 1 has run twice and failed once."""
    save(acme, rule("one", "= input.a.b"), rule("two", "= 2"), files={"notes.json": '{"limit": 100}\n'})
    acme.post(f"{ADDRESS}/publish", json={"message": "the first"}).raise_for_status()
    for input_ in ({"a": {"b": 1}}, {}):
        acme.post(f"{ADDRESS}/execute?wait=20", json=input_).raise_for_status()
    save(acme, rule("one", "= 1"), rule("two", "= 2"), files={"notes.json": '{"limit": 250}\n'})
    acme.post(f"{ADDRESS}/publish", json={"message": "it <never> fails"}).raise_for_status()
    save(acme, rule("one", "= 1"), rule("three", "= 3"))
    yield acme
    acme.delete(f"{ADDRESS}?force=true").raise_for_status()


def at(browser: Browser, path: str) -> str:
    return browser.at("acme", f"/console/processes/numbered{path}")


def text_of(html: str) -> str:
    """What a reader sees, without the tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html))


def get_published_version(acme: httpx.Client) -> int:
    number: int = acme.get(ADDRESS).json()["data"]["published_version"]
    return number


def test_the_list_shows_the_active_version_and_its_results(owner: Browser, numbered: httpx.Client) -> None:
    page = owner.get(at(owner, "/versions")).text
    rows = [text_of(row) for row in re.findall(r'<tr data-testid="row">(.*?)</tr>', page, re.DOTALL)]
    assert [row.split()[:2] for row in rows] == [["v2", "active"], ["v1", "the"]]
    assert "it &lt;never&gt; fails" in page
    assert re.search(r"v1 the first.* 2 1 Restore this version", rows[1])
    assert "The draft differs from version 2" in page


def test_two_versions_are_compared_line_by_line_with_the_words_marked(owner: Browser, numbered: httpx.Client) -> None:
    page = owner.get(at(owner, "/diff?from=1&to=2")).text
    assert "From version 1 to version 2" in page
    assert '{&#34;limit&#34;: <del>100</del>}' in page
    assert '{&#34;limit&#34;: <ins>250</ins>}' in page
    assert "step <strong>one</strong>" in page
    assert 'action="/console/processes/numbered/publish"' not in page
    back = owner.get(at(owner, "/diff?from=2&to=1")).text
    assert '{&#34;limit&#34;: <del>250</del>}' in back
    assert "From nothing to version 1" in owner.get(at(owner, "/diff?from=0&to=1")).text


@pytest.mark.parametrize(("query", "status"), [("from=x&to=1", 400), ("from=1&to=99", 404), ("from=2&to=2", 422)])
def test_an_invalid_comparison_is_refused(owner: Browser, numbered: httpx.Client, query: str, status: int) -> None:
    assert owner.get(at(owner, f"/diff?{query}")).status_code == status


def test_only_the_reviewed_draft_is_published(owner: Browser, numbered: httpx.Client) -> None:
    page = owner.get(at(owner, "/diff")).text
    assert "New executions will use the draft as a new version instead of version 2" in page
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="(\w+)">', page))
    save(numbered, rule("one", "= 1"), rule("four", "= 4"))
    refused = owner.post(at(owner, "/publish"), {**fields, "message": "late"})
    assert refused.status_code == 422
    assert "The draft has changed since you opened this page" in refused.text
    assert get_published_version(numbered) == 2
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="(\w+)">', refused.text))
    assert "a third one" in owner.post(at(owner, "/publish"), {**fields, "message": "a third one"}).text
    assert get_published_version(numbered) == 3
    assert "No changes" in owner.get(at(owner, "/diff")).text


def test_an_older_version_can_be_restored(owner: Browser, numbered: httpx.Client) -> None:
    page = owner.post(at(owner, "/rollback"), {"version": "1"})
    assert page.status_code == 200
    assert get_published_version(numbered) == 1
    assert "The draft differs from version 1" in page.text
    assert owner.post(at(owner, "/rollback"), {"version": "7"}).status_code == 404
    assert owner.post(at(owner, "/rollback"), {"version": ""}).status_code == 422
    assert get_published_version(numbered) == 1


def test_an_operator_sees_versions_and_cannot_change_them(signed_in: Callable[[str], Browser], numbered: httpx.Client) -> None:
    operator = signed_in("operator@acme.test")
    assert "Restore this version" not in operator.get(at(operator, "/versions")).text
    assert 'action="/console/processes/numbered/publish"' not in operator.get(at(operator, "/diff")).text
    assert operator.post(at(operator, "/rollback"), {"version": "1"}).status_code == 403
    assert get_published_version(numbered) == 2
