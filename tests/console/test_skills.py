"""The pages of skills: what they show, and who can approve a skill."""

import re
from collections.abc import Callable

import httpx
import pytest

from tests.api.resources import fresh
from tests.console.browser import Browser

HOSTILE = "<script>alert(1)</script> [x](javascript:alert(2))"
ABOUT = (
    "---\nname: {name}\ndescription: Handles <b>returns</b>.\nallowed-tools: query_entities Bash(git:*)\n---\nAsk first.\n{more}\n"
)
SignedIn = Callable[[str], Browser]


def put_skill(client: httpx.Client, name: str, more: str = HOSTILE) -> str:
    files = {"SKILL.md": ABOUT.format(name=name, more=more), "assets/a.png": {"base64": "iVBORwA="}, "references/x.md": HOSTILE}
    return str(client.put(f"/api/v1/skills/{name}", json={"files": files}).raise_for_status().json()["data"]["version_digest"])


@pytest.fixture
def skill(acme: httpx.Client) -> str:
    name = fresh("returns")
    put_skill(acme, name)
    return name


def show(browser: Browser, skill: str, rest: str = "", tenant: str = "acme") -> httpx.Response:
    return browser.get(browser.at(tenant, f"/console/skills/{skill}{rest}"))


def approve(browser: Browser, skill: str, digest: str, **more: str) -> httpx.Response:
    form = {"digest": digest, "tools": "query_entities", "read": "yes"} | more
    return browser.post(browser.at("acme", f"/console/skills/{skill}/approve"), form)


def digest_of(page: str) -> str:
    return str(re.findall(r'name="digest" value="([^"]+)"', page)[0])


def test_a_skill_is_escaped_and_nothing_of_it_runs(signed_in: SignedIn, skill: str) -> None:
    viewer = signed_in("viewer@acme.test")
    page = show(viewer, skill).text
    assert "<script>alert" not in page
    assert "<b>returns" not in page
    assert 'href="javascript' not in page
    assert "Ask first.\n&lt;script&gt;alert(1)&lt;/script&gt; [x](javascript:alert(2))" in page
    assert "&lt;script&gt;" in show(viewer, skill, "/file?path=references/x.md").text
    picture = show(viewer, skill, "/file?path=assets/a.png")
    assert (picture.content, picture.headers["Content-Disposition"].split(";")[0]) == (b"\x89PNG\0", "attachment")
    assert show(viewer, skill, "/file?path=../x").status_code == 404
    listed = viewer.get(viewer.at("acme", "/console/skills")).text
    assert skill in listed


def test_an_owner_approves_a_version_and_withdraws_the_approval(owner: Browser, acme: httpx.Client, skill: str) -> None:
    page = show(owner, skill).text
    assert "Not approved yet." in page
    assert re.search(r'value="Bash\(git:\*\)" disabled', page)
    assert approve(owner, skill, digest_of(page)).status_code == 200
    data = acme.get(f"/api/v1/skills/{skill}").json()["data"]
    assert (data["trust"], data["granted_tools"], data["grant"]["approved_by"]) == (
        "trusted", ["query_entities"], "owner@acme.test",
    )  # fmt: skip
    owner.post(owner.at("acme", f"/console/skills/{skill}/revoke"), {})
    assert acme.get(f"/api/v1/skills/{skill}").json()["data"]["trust"] == "untrusted"


def test_changes_since_the_approval_are_shown_line_by_line(owner: Browser, acme: httpx.Client, skill: str) -> None:
    approve(owner, skill, digest_of(show(owner, skill).text))
    put_skill(acme, skill, "Then pay <everybody>.")
    page = show(owner, skill).text
    assert "Changed since approval" in page
    assert "<ins>+ Then pay &lt;everybody&gt;.</ins>" in page
    assert "<del>- &lt;script&gt;" in page
    assert "granted to the previous version" in page


def test_a_version_that_changed_meanwhile_is_not_approved(owner: Browser, acme: httpx.Client, skill: str) -> None:
    seen = digest_of(show(owner, skill).text)
    put_skill(acme, skill, "Pay everybody.")
    refused = approve(owner, skill, seen)
    assert refused.status_code == 412
    assert f"skill {skill} has changed" in refused.text
    assert acme.get(f"/api/v1/skills/{skill}").json()["data"]["trust"] == "untrusted"


def test_an_approval_without_review_or_of_unrequested_tools_is_refused(owner: Browser, acme: httpx.Client, skill: str) -> None:
    digest = digest_of(show(owner, skill).text)
    for wrong in ({"read": ""}, {"tools": "write_entities"}, {"tools": "Bash(git:*)"}):
        assert approve(owner, skill, digest, **wrong).status_code == 422
    assert acme.get(f"/api/v1/skills/{skill}").json()["data"]["trust"] == "untrusted"


def test_a_member_who_cannot_decide_sees_why(signed_in: SignedIn, acme: httpx.Client, skill: str) -> None:
    builder = signed_in("builder@acme.test")
    page = show(builder, skill).text
    assert "Only an approver or owner of this tenant can decide about skills" in page
    assert 'name="digest"' not in page
    digest = acme.get(f"/api/v1/skills/{skill}").json()["data"]["version_digest"]
    assert approve(builder, skill, digest).status_code == 403
    assert builder.post(builder.at("acme", f"/console/skills/{skill}/revoke"), {}).status_code == 403
    assert acme.get(f"/api/v1/skills/{skill}").json()["data"]["trust"] == "untrusted"


def test_skills_of_other_tenants_are_not_found(signed_in: SignedIn, skill: str) -> None:
    stranger = signed_in("owner@globex.test")
    assert show(stranger, skill, tenant="globex").status_code == 404
    assert show(stranger, skill, "/file?path=SKILL.md", tenant="globex").status_code == 404
