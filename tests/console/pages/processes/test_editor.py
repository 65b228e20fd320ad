"""The editor of drafts as a form: what is stored, what is refused, and what its script gets."""

import html
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.console.browser import Browser

ADDRESS = "/api/v1/processes/edited"
SOURCE = "# Why it is so\nname: Edited\nsteps:\n  - id: one\n    code: {language: typescript, file: steps/one.ts}\n"
GOOD = "export default async function () { return 1; }\n"


@pytest.fixture
def draft_api(acme: httpx.Client) -> httpx.Client:
    steps = [{"id": "one", "code": {"language": "typescript", "file": "steps/one.ts"}}]
    draft = {"definition": {"id": "edited", "name": "Edited", "steps": steps}, "files": {"steps/one.ts": GOOD}}
    acme.put(ADDRESS, json=draft).raise_for_status()
    return acme


def get_draft(acme: httpx.Client) -> dict[str, Any]:
    data: dict[str, Any] = acme.get(ADDRESS).json()["data"]
    return data


def get_stamp(browser: Browser) -> str:
    """The stamp by which the page identifies the stored draft."""
    match = re.search(r'name="stamp" value="(\w+)"', browser.get(browser.at("acme", "/console/processes/edited/edit")).text)
    assert match
    return match[1]


def send(browser: Browser, text: str, **form: str) -> httpx.Response:
    """A file of the draft as the page sends it."""
    fields = {"file": "process.yaml", "stamp": get_stamp(browser), "do": "save", "text": text, **form}
    return browser.post(browser.at("acme", "/console/processes/edited/edit"), fields)


def test_a_definition_keeps_its_comments(owner: Browser, draft_api: httpx.Client) -> None:
    text = send(owner, SOURCE.replace("Edited", "Edited twice")).text
    assert "# Why it is so" in text
    assert "No problems" in text
    assert "data-unsaved" not in text
    assert get_draft(draft_api)["name"] == "Edited twice"
    definition = get_draft(draft_api)["definition"]
    draft_api.put(ADDRESS, json={"definition": definition, "files": {"steps/one.ts": GOOD}}).raise_for_status()
    assert "# Why it is so" not in owner.get(owner.at("acme", "/console/processes/edited/edit")).text


def test_invalid_yaml_is_not_stored_and_stays_in_the_form(owner: Browser, draft_api: httpx.Client) -> None:
    before = get_draft(draft_api)["draft_digest"]
    answer = send(owner, "name: [open\nsteps: []\n")
    assert answer.status_code == 422
    assert "name: [open" in answer.text
    assert "process.yaml:2" in answer.text
    assert get_draft(draft_api)["draft_digest"] == before
    assert send(owner, "- a list\n").status_code == 422
    assert send(owner, "id: other\nsteps: []\n").status_code == 422
    assert get_draft(draft_api)["draft_digest"] == before


def test_a_check_stores_nothing_and_locates_problems(owner: Browser, draft_api: httpx.Client) -> None:
    before = get_draft(draft_api)["draft_digest"]
    wrong = "\nexport default async function () { const n: number = 'x'; return n; }\n"
    response = send(owner, wrong, **{"file": "steps/one.ts", "do": "check", "as": "data"}).json()
    (problem,) = response["problems"]
    assert (problem["file"], problem["line"], problem["severity"]) == ("steps/one.ts", 2, "error")
    assert "not assignable" in problem["message"]
    unknown = send(owner, SOURCE + "colour: red\n", **{"do": "check", "as": "data"}).json()
    assert [(each["file"], each["line"]) for each in unknown["problems"]] == [("process.yaml", 6)]
    assert get_draft(draft_api)["draft_digest"] == before


def test_a_concurrent_change_is_not_overwritten(owner: Browser, draft_api: httpx.Client) -> None:
    old = get_stamp(owner)
    saved = send(owner, "export default () => 2;\n", **{"file": "steps/one.ts", "as": "data"}).json()
    assert saved == {"stamp": get_stamp(owner), "is_published": False}
    assert saved["stamp"] != old
    answer = send(owner, "export default () => 3;\n", stamp=old, **{"file": "steps/one.ts", "as": "data"})
    assert answer.status_code == 412
    assert "read it again" in answer.json()["refusal"]
    assert get_draft(draft_api)["files"]["steps/one.ts"] == "export default () => 2;\n"
    refused = send(owner, SOURCE, stamp=old)
    assert refused.status_code == 412
    assert "data-unsaved" in refused.text
    before = get_stamp(owner)
    assert send(owner, SOURCE, stamp=before).status_code == 200
    again = get_stamp(owner)
    assert send(owner, SOURCE.replace("Why", "How"), stamp=again).status_code == 200
    assert send(owner, SOURCE, stamp=again).status_code == 412, "comments of another author are not overwritten either"


def test_a_review_saves_the_draft_and_shows_its_changes(owner: Browser, draft_api: httpx.Client) -> None:
    answer = send(owner, SOURCE + "output: = steps.none\n", do="review")
    assert owner.url.endswith("/console/processes/edited/diff")
    assert "steps.none" in answer.text
    assert get_draft(draft_api)["definition"]["output"] == "= steps.none"
    refused = owner.post(owner.at("acme", "/console/processes/edited/publish"), {"message": "with an output"})
    assert refused.status_code == 422
    assert 'href="/console/processes/edited/edit?file=process.yaml#line=6">process.yaml:6</a>' in refused.text
    assert "published_version" not in get_draft(draft_api)
    send(owner, SOURCE + "output: = steps.one\n", do="review")
    owner.post(owner.at("acme", "/console/processes/edited/publish"), {"message": "with an output"})
    (version,) = draft_api.get(f"{ADDRESS}/versions").json()["data"]
    assert version["message"] == "with an output"
    draft_api.delete(ADDRESS).raise_for_status()


INLINE = """steps:
  - id: one
    code: {language: typescript, file: steps/one.ts}
  - id: two
    code:
      language: typescript
      source: |
        export default () => {
          return none;
        }
"""


def test_problems_of_inline_code_are_located_in_the_definition(owner: Browser, draft_api: httpx.Client) -> None:
    (problem,) = send(owner, INLINE, **{"do": "check", "as": "data"}).json()["problems"]
    assert "Cannot find name 'none'" in problem["message"]
    assert (problem["file"], problem["line"], problem["column"]) == ("process.yaml", 9, 18)
    steps = [{"id": "two", "code": {"language": "typescript", "source": "export default () => {\n  return none;\n}\n"}}]
    draft = {"definition": {"id": "edited", "steps": steps}, "files": {"steps/one.ts": GOOD}}
    draft_api.put(ADDRESS, json=draft).raise_for_status()
    sent = {"do": "check", "as": "data", "file": "steps/one.ts"}
    (problem,) = send(owner, GOOD, **sent).json()["problems"]
    assert problem["file"] == "process.yaml"
    page = owner.get(owner.at("acme", "/console/processes/edited/edit")).text
    text = html.unescape(page.partition("<textarea")[2].partition(">\n")[2]).splitlines()
    assert text[problem["line"] - 1][problem["column"] - 1 :].startswith("none;")
    draft_api.delete(f"{ADDRESS}?force=true").raise_for_status()


def test_an_open_editor_learns_whether_the_draft_is_published(owner: Browser, draft_api: httpx.Client) -> None:
    send(owner, SOURCE)
    draft_api.post(f"{ADDRESS}/publish").raise_for_status()
    address = owner.at("acme", "/console/processes/edited/edit")
    assert re.search(r"<p data-published>Matches the published.*<p data-unpublished hidden>", owner.get(address).text, re.DOTALL)
    assert send(owner, SOURCE.replace("Edited", "Changed"), **{"as": "data"}).json()["is_published"] is False
    assert re.search(r"<p data-published hidden>Matches the published.*<p data-unpublished>", owner.get(address).text, re.DOTALL)
    assert send(owner, SOURCE, **{"as": "data"}).json()["is_published"] is True
    draft_api.delete(f"{ADDRESS}?force=true").raise_for_status()


def test_renaming_a_file_updates_the_steps_that_use_it(owner: Browser, draft_api: httpx.Client) -> None:
    send(owner, SOURCE)
    at = owner.at("acme", "/console/processes/edited/files")
    page = owner.get(owner.at("acme", "/console/processes/edited/edit?file=steps/one.ts")).text
    assert "Step one uses it" in page
    assert "No problems" in owner.post(at, {"file": "steps/one.ts", "to": "steps/first.ts", "do": "rename"}).text
    assert owner.url.endswith("edit?file=steps/first.ts")
    assert get_draft(draft_api)["files"] == {"steps/first.ts": GOOD}
    assert "# Why it is so" in owner.get(owner.at("acme", "/console/processes/edited/edit")).text
    assert owner.post(at, {"file": "steps/first.ts", "to": "process.yaml", "do": "rename"}).status_code == 409
    assert owner.post(at, {"file": "steps/first.ts", "to": "../x", "do": "rename"}).status_code == 422
    assert owner.post(at, {"file": "none.ts", "to": "x.ts", "do": "rename"}).status_code == 404
    assert get_draft(draft_api)["files"] == {"steps/first.ts": GOOD}


def test_files_are_added_and_deleted(owner: Browser, draft_api: httpx.Client) -> None:
    at = owner.at("acme", "/console/processes/edited/files")
    assert "rules/new.json" in owner.post(at, {"file": "rules/new.json", "do": "add"}).text
    assert get_draft(draft_api)["files"]["rules/new.json"] == ""
    assert owner.post(at, {"file": "rules/new.json", "do": "add"}).status_code == 409
    assert owner.post(at, {"file": "../etc/passwd", "do": "add"}).status_code == 422
    owner.post(at, {"file": "rules/new.json", "do": "delete"})
    assert list(get_draft(draft_api)["files"]) == ["steps/one.ts"]
    assert owner.post(at, {"file": "rules/new.json", "do": "delete"}).status_code == 404
    assert owner.get(owner.at("acme", "/console/processes/edited/edit?file=none.ts")).status_code == 404


def test_a_file_changed_meanwhile_is_not_deleted(owner: Browser, draft_api: httpx.Client) -> None:
    at, seen = owner.at("acme", "/console/processes/edited/files"), get_stamp(owner)
    page = owner.get(owner.at("acme", "/console/processes/edited/edit?file=steps/one.ts")).text
    assert re.search(r'<button[^>]*form="draft"[^>]*formaction="/console/processes/edited/files"[^>]*value="delete"', page)
    send(owner, "export default () => 2;\n", file="steps/one.ts")
    refused = owner.post(at, {"file": "steps/one.ts", "stamp": seen, "do": "delete"})
    assert (refused.status_code, "read it again" in refused.text) == (412, True)
    assert "() =&gt; 2;" in refused.text
    assert get_draft(draft_api)["files"] == {"steps/one.ts": "export default () => 2;\n"}
    assert owner.post(at, {"file": "steps/one.ts", "stamp": get_stamp(owner), "do": "other"}).status_code == 422
    assert owner.post(at, {"file": "steps/one.ts", "stamp": get_stamp(owner)}).status_code == 422
    assert list(get_draft(draft_api)["files"]) == ["steps/one.ts"]


def test_a_text_is_not_lost_when_its_file_was_deleted_meanwhile(owner: Browser, draft_api: httpx.Client) -> None:
    old, at = get_stamp(owner), owner.at("acme", "/console/processes/edited/files")
    owner.post(at, {"file": "steps/one.ts", "to": "steps/first.ts", "do": "rename"})
    refused = send(owner, "export default () => 3;\n", stamp=old, file="steps/one.ts")
    assert (refused.status_code, "() =&gt; 3;" in refused.text, "data-unsaved" in refused.text) == (412, True, True)
    assert "The draft no longer has a file steps/one.ts" in refused.text
    answer = send(owner, "export default () => 3;\n", stamp=old, **{"file": "steps/one.ts", "as": "data"})
    assert (answer.status_code, "no longer has" in answer.json()["refusal"]) == (412, True)
    assert list(get_draft(draft_api)["files"]) == ["steps/first.ts"]
    assert send(owner, "x", file="../none.ts").status_code == 404


def test_a_process_begins_from_an_example(owner: Browser, acme: httpx.Client) -> None:
    at = owner.at("acme", "/console/processes/-/new")
    assert "A decision table" in owner.get(at).text
    refused = owner.post(at, {"id": "Not A Slug", "name": "x", "template": "decision"})
    assert refused.status_code == 422
    assert 'value="Not A Slug"' in refused.text
    assert owner.post(at, {"id": "begun", "name": "Begun", "template": "none"}).status_code == 404
    assert "rules/shipping.json" in owner.post(at, {"id": "begun", "name": "Be: gun", "template": "decision"}).text
    assert acme.get("/api/v1/processes/begun").json()["data"]["name"] == "Be: gun"
    assert owner.post(at, {"id": "begun", "name": "Begun", "template": "decision"}).status_code == 409
    assert owner.post(at, {"id": "", "name": "Begun", "template": "decision"}).status_code == 409, "the id is derived from the name"
    assert owner.post(at, {"id": "", "name": "", "template": "decision"}).status_code == 422
    acme.delete("/api/v1/processes/begun").raise_for_status()


def test_a_viewer_cannot_save(signed_in: Callable[[str], Browser], draft_api: httpx.Client) -> None:
    viewer = signed_in("viewer@acme.test")
    assert viewer.get(viewer.at("acme", "/console/processes/edited/edit")).status_code == 403
    assert "edited/edit" not in viewer.get(viewer.at("acme", "/console/processes/edited")).text


def test_problems_are_translated_for_the_script_of_the_editor(owner: Browser, draft_api: httpx.Client) -> None:
    german = {"Accept-Language": "de"}
    at = owner.at("acme", "/console/processes/edited/edit")
    assert "nicht gespeichert" in owner.get(at, **german).text
    form = {"file": "process.yaml", "text": "id: edited\nsteps: []\n", "do": "check", "as": "data"}
    assert owner.post(at, form, **german).json()["title"] == "1 Problem"
