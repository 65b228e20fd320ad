"""Agents over REST: versions, conflicts, and what a solution folder does with them."""

import httpx

from appliance.testing.running import Running
from tests.agents.test_definition import WHOLE
from tests.api.resources import fresh


def make(api: httpx.Client, **more: object) -> str:
    name = fresh("agent")
    api.put(f"/api/v1/agents/{name}", json={**WHOLE, "id": name, **more}).raise_for_status()
    return name


def test_a_change_is_a_version_and_the_same_again_is_none(running: Running) -> None:
    with running.api("acme") as api:
        name = make(api)
        assert api.put(f"/api/v1/agents/{name}", json={**WHOLE, "id": name}).json()["data"]["version"] == 1
        changed = api.put(f"/api/v1/agents/{name}", json={**WHOLE, "id": name, "name": "Other"})
        assert (changed.status_code, changed.json()["data"]["version"]) == (200, 2)
        listed = api.get(f"/api/v1/agents/{name}/versions").json()["data"]
        assert [(each["version"], each["definition"]["name"]) for each in listed] == [(2, "Other"), (1, "Triage")]
        assert api.get(f"/api/v1/agents/{name}/versions/1").json()["data"]["digest"] != changed.json()["data"]["digest"]


def test_a_stale_etag_does_not_change_the_agent(running: Running) -> None:
    with running.api("acme") as api:
        name = make(api)
        etag = api.get(f"/api/v1/agents/{name}").headers["ETag"]
        make_other = api.put(f"/api/v1/agents/{name}", json={**WHOLE, "id": name, "name": "B"}, headers={"If-Match": etag})
        late = api.put(f"/api/v1/agents/{name}", json={**WHOLE, "id": name, "name": "C"}, headers={"If-Match": etag})
        assert (make_other.status_code, late.status_code) == (200, 412)
        assert api.post("/api/v1/agents", json={**WHOLE, "id": name}).json()["error"]["code"] == "already_exists"


def test_problems_are_reported_with_pointers(running: Running) -> None:
    with running.api("acme") as api:
        refused = api.put("/api/v1/agents/wrong", json={**WHOLE, "id": "wrong", "tools": ["no_such"]})
        assert refused.status_code == 422
        assert refused.json()["error"]["details"][0]["pointer"] == "/tools/0"
        assert api.get("/api/v1/agents/wrong").status_code == 404
