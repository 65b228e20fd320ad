"""An app with routes of every kind, and the processes behind them."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

from appliance.solutions import write_zip

PATIENCE = 30.0
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 40
SAME: dict[str, str] = {"Sec-Fetch-Site": "same-origin"}
CODE = """
export default async function (input, api) {
  if (input.name === "reject") throw Object.assign(new Error("This is <sold out>"), { code: "rejected" });
  if (input.name === "crash") throw new Error("the password of db-7 is hunter2");
  if (input.name === "pretend") throw Object.assign(new Error("hunter2"), { code: "rejected", failure_class: "connector" });
  if (input.name === "page") {
    return { $response: { status: 201, headers: { "Content-Type": "text/html", "X-Shop": "1" }, body: "<b>hi</b>" } };
  }
  if (input.name === "away") return { $response: { status: 303, headers: { Location: "https://pay.example/x" } } };
  if (input.name === "cookie") return { $response: { headers: { "Set-Cookie": "a=b" }, body: 1 } };
  const known = await api.datapool.create("route-orders", { name: input.name });
  return { stored: (await api.datapool.find("route-orders", known.id)).name, input };
}
"""
ORDER_INPUT = {
    "type": "object", "required": ["name"], "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1}, "quantity": {"type": "integer"}, "id": {"type": "string"},
        "by": {"type": "string"}, "photo": {"type": ["string", "array"]}, "q": {"type": "string"},
    },
}  # fmt: skip
PROCESSES: dict[str, dict[str, Any]] = {
    "route-order": {
        "input": ORDER_INPUT, "grants": {"datapool": {"route-orders": ["read", "write"]}},
        "steps": [{"id": "keep", "code": {"language": "javascript", "source": CODE}}],
    },
    "route-slow": {
        "steps": [{"id": "pause", "wait": {"event": "go"}}, {"id": "said", "rule": {"expression": "= {said: steps.pause}"}}]
    },
}  # fmt: skip
ROUTES: list[dict[str, Any]] = [
    {"path": "/api/orders", "method": "POST", "process": "route-order", "wait": 30, "access": "public", "then": "/thanks.html"},
    {"path": "/api/orders/:id", "method": "PUT", "process": "route-order", "wait": 30, "access": "public",
     "input": {"name": "$body.name", "id": "$path.id", "q": "$query.q", "by": "$visitor.email"}},
    {"path": "/api/find", "method": "GET", "process": "route-order", "wait": 30, "access": "public"},
    {"path": "/api/slow", "method": "POST", "process": "route-slow", "wait": 0.2, "access": "public"},
    {"path": "/api/patient", "method": "POST", "process": "route-slow", "wait": 30, "access": "public"},
    {"path": "/api/photos", "method": "POST", "process": "route-order", "wait": 30, "access": "public",
     "upload": {"folder": "from/visitors", "max_mb": 0.1, "types": ["image/*"]}},
    {"path": "/api/few", "method": "POST", "process": "route-order", "wait": 30, "access": "public",
     "rate_limit": {"requests": 2, "window_s": 600}},
]  # fmt: skip


def deploy(api: httpx.Client, app: str, routes: list[dict[str, Any]], **settings: Any) -> httpx.Response:
    """A new app with these routes; the answer to publishing it."""
    api.post("/api/v1/webapps", json={"id": app}).raise_for_status()
    files = {"app.yaml": json.dumps({"routes": routes, "spa": True, **settings}).encode(), "public/index.html": b"<h1>Shop</h1>"}
    path = f"/api/v1/webapps/{app}/versions"
    api.post(path, content=write_zip(files), headers={"Content-Type": "application/zip"}).raise_for_status()
    return api.post(f"{path}/1/publish", json={})


def build(api: httpx.Client) -> None:
    """The processes and the collection that the routes lead to."""
    fields = [{"name": "name", "type": "text"}]
    api.post("/api/v1/datapool", json={"name": "route-orders", "fields": fields}).raise_for_status()
    for name, definition in PROCESSES.items():
        api.put(f"/api/v1/processes/{name}", json={"id": name, **definition}).raise_for_status()
        api.post(f"/api/v1/processes/{name}/publish", json={}).raise_for_status()


def executions(api: httpx.Client, process: str = "route-order") -> list[dict[str, Any]]:
    response = api.get(f"/api/v1/processes/{process}/executions", params={"limit": 500}).raise_for_status()
    return list(response.json()["data"])


def wait_for(look: Callable[[], Any]) -> Any:
    ends = time.monotonic() + PATIENCE
    while not (result := look()):
        assert time.monotonic() < ends, "it never came"
        threading.Event().wait(0.05)
    return result


def resume(acme: httpx.Client, execution_id: str, word: str) -> None:
    """The event that the slow process waits for has come."""
    path = f"/api/v1/processes/route-slow/executions/{execution_id}"

    def token() -> str:
        waits = (acme.get(path).raise_for_status().json()["data"].get("waiting_for") or {}).get("waits") or []
        return waits[0]["token"] if waits else ""

    acme.post(f"{path}/resume", json={"token": wait_for(token), "input": word}).raise_for_status()
