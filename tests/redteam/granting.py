"""Processes that need grants, and helpers that read their grants and confirmations."""

from typing import Any

import httpx

from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import AuditFilter, audit
from appliance.tenants.grants import Confirmation, confirmations, grants

TENANT, PASSWORD = "granting", "correct horse battery"
CANARY = "canary-7f3a91-value"
FLOW = ("processflow.read", "processflow.write", "processflow.execute")
GRABBING = """export default async function (input, api) {
  const rows = await api.datapool.query('customers', {})
  return {names: rows.items.map(row => row.name), secret: await api.secrets.get('topsecret')}
}"""
GRANTS: dict[str, Any] = {"datapool": {"customers": ["read"]}, "secrets": ["topsecret"]}


def code(source: str = GRABBING) -> dict[str, Any]:
    return {"id": "grab", "code": {"language": "javascript", "source": source}}


def put_process(client: httpx.Client, process_id: str, definition: dict[str, Any]) -> None:
    body = {"definition": {"id": process_id, **definition}}
    client.put(f"/api/v1/processes/{process_id}", json=body).raise_for_status()


def publish(client: httpx.Client, process_id: str) -> httpx.Response:
    return client.post(f"/api/v1/processes/{process_id}/publish", json={})


def execute(client: httpx.Client, process_id: str, **query: Any) -> httpx.Response:
    return client.post(f"/api/v1/processes/{process_id}/execute", params={"wait": 20, **query}, json={})


def open_confirmations(scope: TenantScope, process_id: str) -> list[Confirmation]:
    return [each for each in confirmations.list_open(scope) if each.subject == f"process:{process_id}"]


def audit_actions(scope: TenantScope, process_id: str) -> list[str]:
    entries = audit.list_entries(scope, AuditFilter(subject=f"process:{process_id}"), PageRequest(50)).items
    return [each.action for each in reversed(entries)]


def only_grant(scope: TenantScope, process_id: str) -> str:
    (grant,) = grants.list_grants(scope, f"process:{process_id}")
    return grant.digest


REACHING: dict[str, tuple[dict[str, Any], list[str]]] = {
    "integration": ({"steps": [{"id": "a", "integration": {"use": "erp", "action": "get"}}]}, ["integrations.execute"]),
    "query": ({"steps": [{"id": "a", "datapool": {"collection": "customers", "query": {}}}]}, ["entities.read"]),
    "create": ({"steps": [{"id": "a", "datapool": {"collection": "customers", "create": {"values": {}}}}]}, ["entities.write"]),
    "batch": ({"steps": [{"id": "a", "datapool": {"batch": "= input.all"}}]}, ["entities.write"]),
    "parse": ({"steps": [{"id": "a", "file": {"operation": "parse", "document": "= input.id"}}]}, ["documents.read"]),
    "load": (
        {"steps": [{"id": "a", "file": {"operation": "parse", "document": "d", "to": {"collection": "customers"}}}]},
        ["documents.read", "entities.write"],
    ),
    "write": (
        {"steps": [{"id": "a", "file": {"operation": "write", "format": "text", "name": "a.txt", "data": "x"}}]},
        ["documents.write"],
    ),
    "ocr": ({"steps": [{"id": "a", "ocr": {"document": "= input.id"}}]}, ["documents.read"]),
    "llm": ({"steps": [{"id": "a", "llm": {"profile": "default", "prompt": "x"}}]}, ["integrations.execute"]),
    "llm-documents": (
        {"steps": [{"id": "a", "llm": {"profile": "default", "prompt": "x", "documents": "= input.ids"}}]},
        ["documents.read", "integrations.execute"],
    ),
    "human": ({"steps": [{"id": "a", "human": {"kind": "approval", "title": "Go?"}}]}, ["approvals.request"]),
    "undo": (
        {"steps": [{"id": "a", "rule": {"expression": "= 1"},
                    "undo": {"datapool": {"collection": "customers", "delete": {"id": "x"}}}}]},
        ["entities.write"],
    ),
    "on-failure": (
        {"steps": [{"id": "a", "rule": {"expression": "= 1"}}],
         "on_failure": {"steps": [{"id": "b", "datapool": {"collection": "customers", "query": {}}}]}},
        ["entities.read"],
    ),
    "in-a-loop": (
        {"steps": [{"id": "a", "for_each": {"items": [1], "steps": [
            {"id": "b", "datapool": {"collection": "customers", "query": {}}}]}}]},
        ["entities.read"],
    ),
    "grants-of-a-step": (
        {"steps": [{**code("export default () => 1"), "grants": {"secrets": ["topsecret"]}}]}, ["secrets.write"],
    ),
    "webhook": (
        {"steps": [{"id": "a", "rule": {"expression": "= 1"}}], "triggers": [
            {"webhook": {"path": "grab", "verify": {"kind": "header", "header": "X-Key", "secret": "= secrets.topsecret"}}}]},
        ["secrets.write"],
    ),
    "poll": (
        {"steps": [{"id": "a", "rule": {"expression": "= 1"}}], "triggers": [{"integration": {"use": "inbox", "trigger": "new"}}]},
        ["integrations.execute"],
    ),
    "changes": (
        {"steps": [{"id": "a", "rule": {"expression": "= 1"}}], "triggers": [{"datapool": {"collection": "customers"}}]},
        ["entities.read"],
    ),
    "document-changes": (
        {"steps": [{"id": "a", "rule": {"expression": "= 1"}}], "triggers": [{"document": {}}]}, ["documents.read"],
    ),
}  # fmt: skip
