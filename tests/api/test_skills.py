"""Skills over the REST API: stored from an archive or JSON, loaded, read file by file."""

import httpx
import pytest

from appliance.solutions import write_zip
from tests.api.resources import fresh

ABOUT = "---\nname: {name}\ndescription: How returns are handled.\nallowed-tools: query_entities\n---\nAsk before you write.\n"


def put_skill(client: httpx.Client, name: str, more: str = "", **headers: str) -> httpx.Response:
    files = {"SKILL.md": ABOUT.format(name=name) + more, "assets/logo.png": {"base64": "iVBORwA="}}
    return client.put(f"/api/v1/skills/{name}", json={"files": files}, headers=headers)


def test_a_skill_is_created_replaced_loaded_and_deleted(acme: httpx.Client) -> None:
    name = fresh("returns")
    answer = put_skill(acme, name)
    assert (answer.status_code, answer.headers["Location"]) == (201, f"/api/v1/skills/{name}")
    digest = answer.json()["data"]["version_digest"]
    assert answer.headers["ETag"] == f'"{digest}"'
    again = acme.put(
        f"/api/v1/skills/{name}", headers={"Content-Type": "application/zip"},
        content=write_zip({f"{name}/SKILL.md": ABOUT.format(name=name).encode(), f"{name}/assets/logo.png": b"\x89PNG\0"}),
    )  # fmt: skip
    assert (again.status_code, again.json()["data"]["version_digest"]) == (200, digest)
    loaded = acme.get(f"/api/v1/skills/{name}", params={"expected_digest": digest})
    data = loaded.json()["data"]
    assert loaded.headers["ETag"] == f'"{digest}"'
    assert data["instructions"] == "Ask before you write."
    assert [(file["path"], file["kind"]) for file in data["files"]] == [("SKILL.md", "text"), ("assets/logo.png", "binary")]
    assert (data["trust"], data["requested_tools"], data["granted_tools"]) == ("untrusted", ["query_entities"], [])
    assert name in [each["name"] for each in acme.get("/api/v1/skills", params={"limit": 500}).json()["data"]]
    assert acme.delete(f"/api/v1/skills/{name}").is_success
    assert acme.get(f"/api/v1/skills/{name}").status_code == 404


@pytest.mark.parametrize("path", ["assets/logo.png", "assets%2Flogo.png"])
def test_a_file_is_sent_so_that_no_browser_runs_it(acme: httpx.Client, path: str) -> None:
    name = fresh("returns")
    put_skill(acme, name)
    sent = acme.get(f"/api/v1/skills/{name}/files/{path}")
    assert (sent.status_code, sent.content, sent.headers["Content-Type"]) == (200, b"\x89PNG\0", "application/octet-stream")
    assert sent.headers["Content-Disposition"].startswith("attachment")
    assert "sandbox" in sent.headers["Content-Security-Policy"]
    assert acme.get(f"/api/v1/skills/{name}/files/SKILL.md").headers["Content-Type"] == "text/plain; charset=utf-8"


def test_a_wrong_digest_changes_and_loads_nothing(acme: httpx.Client) -> None:
    name = fresh("returns")
    before = put_skill(acme, name).json()["data"]["version_digest"]
    after = put_skill(acme, name, "More.", **{"If-Match": f'"{before}"'}).json()["data"]["version_digest"]
    late = put_skill(acme, name, "Yet more.", **{"If-Match": f'"{before}"'})
    other = acme.get(f"/api/v1/skills/{name}", params={"expected_digest": before})
    for refused in (late, other):
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["version_digest"]) == (412, "version_conflict", after)


@pytest.mark.parametrize(("content", "pointer"), [(1, "/files/SKILL.md"), ({"base64": 1}, "/files/SKILL.md/base64")])
def test_a_content_of_another_type_is_named_once(acme: httpx.Client, content: object, pointer: str) -> None:
    refused = acme.put(f"/api/v1/skills/{fresh('typed')}", json={"files": {"SKILL.md": content}})
    assert [each["pointer"] for each in refused.json()["error"]["details"]] == [pointer]


def test_every_problem_of_the_files_is_named_and_nothing_is_stored(acme: httpx.Client) -> None:
    name = fresh("returns")
    files = {"SKILL.md": ABOUT.format(name="other"), "../up.md": "x", "a.md": "pay\u200bnow"}
    refused = acme.put(f"/api/v1/skills/{name}", json={"files": files})
    assert refused.status_code == 422
    assert [each["pointer"] for each in refused.json()["error"]["details"]] == ["/files/../up.md", "/files/a.md", "/files/SKILL.md"]
    assert acme.get(f"/api/v1/skills/{name}").status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"not a zip", 400), (b"{", 400), (b'{"files": {}, "trust": "trusted"}', 422), (b'{"files": {"SKILL.md": 1}}', 422),
        (b'{"files": {"a": {"base64": "%"}}}', 422),
    ],
)  # fmt: skip
def test_an_invalid_set_of_files_is_refused(acme: httpx.Client, body: bytes, status: int) -> None:
    media = "application/json" if body.startswith(b"{") else "application/zip"
    assert acme.put(f"/api/v1/skills/{fresh('x')}", content=body, headers={"Content-Type": media}).status_code == status


def test_no_route_approves(acme: httpx.Client) -> None:
    name = fresh("returns")
    put_skill(acme, name)
    for verb in ("approve", "revoke", "grant"):
        assert acme.post(f"/api/v1/skills/{name}/{verb}", json={}).status_code == 404
