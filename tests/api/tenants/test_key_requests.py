"""Requests of a key that records them, over REST and MCP, with templates for paths."""

import httpx

from appliance.testing.running import Running
from tests.api.resources import Resources
from tests.mcp.client import call_tool


def test_requests_are_recorded_only_where_it_is_switched_on(running: Running, ours: Resources) -> None:
    body = {"name": "recorded", "scopes": ["keys.read", "entities.read", "logs.read"], "kind": "agent"}
    on, off = ours.ask("POST", "/keys", {**body, "records_requests": True}), ours.ask("POST", "/keys", body)
    for key in (on, off):
        with running.client("acme.localhost", {"X-API-Key": key["key"]}) as client:
            assert client.get(f"/api/v1/keys/{key['id']}?secret=value").status_code in (200, 400)
            assert client.get("/api/v1/webapps").status_code == 403
        call_tool(running, key["key"], "query_entities", collection="none")
    running.services.limits.key_requests.flush()
    rows = ours.ask("GET", f"/keys/{on['id']}/requests")
    assert ("POST", "/mcp", 200) in {(row["method"], row["path"], row["status"]) for row in rows}
    over_rest = [(row["method"], row["path"], row["status"]) for row in rows if row["path"] != "/mcp"]
    assert [path for _, path, _ in over_rest] == ["/api/v1/webapps", "/api/v1/keys/{key_id}"]
    assert {row["address"] for row in rows} == {"127.0.0.1"}
    assert all(row["duration_ms"] > 0 for row in rows)
    assert [row["status"] for row in ours.ask("GET", f"/keys/{on['id']}/requests?failed=true&path=/api/v1/webapps")] == [403]
    assert ours.ask("GET", f"/keys/{off['id']}/requests") == []
    page: httpx.Response = ours.client.get(f"/api/v1/keys/{on['id']}/requests?limit=1")
    assert len(page.json()["data"]) == 1
    assert page.json()["meta"]["next_cursor"]
    assert ours.ask("PATCH", f"/keys/{on['id']}", {"records_requests": False})["records_requests"] is False
