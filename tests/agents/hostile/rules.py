"""The policy of a careful tenant, and one that allows everything."""

import re
from pathlib import Path
from typing import Any

from appliance.core import yaml12

_READERS = [
    "query_entities", "read_document", "search_documents", "read_logs", "get_execution", "list_tenant_integrations",
    "list_tenant_skills", "load_tenant_skill", "request_human_input", "get_human_input",
]  # fmt: skip
_TRIAGE = {"agents": ["triage"]}
GUARD: list[dict[str, Any]] = [
    {"id": "reads", "effect": "allow", "subject": _TRIAGE, "tools": _READERS, "reason": "triage looks things up"},
    {"id": "own-reads", "effect": "allow", "subject": {"agents": ["triage", "reader"]}, "integrations": ["erp", "site", "mail"],
     "effects": ["read"], "reason": "triage reads the ERP, the site and the mail"},
    {"id": "outside-reads", "effect": "allow", "subject": {**_TRIAGE, "tainted": False}, "integrations": ["outside"],
     "effects": ["read"], "reason": "triage asks outside before it has read anything"},
    {"id": "orders", "effect": "allow", "subject": _TRIAGE, "integrations": ["erp"], "operations": ["post"],
     "effects": ["write"], "reason": "triage orders"},
    {"id": "no-doing-by-get", "effect": "deny", "subject": {"via": ["agent", "mcp"]}, "integrations": ["erp"], "effects": ["read"],
     "when": {"input": {"url": {"_starts_with": "/do/"}}}, "reason": "the ERP acts on what is got under /do/"},
    {"id": "rows", "effect": "allow", "subject": _TRIAGE, "tools": ["write_entities"], "reason": "triage files"},
]  # fmt: skip
"""The agent may even order by itself, as long as nothing from outside has spoken to it."""
OPEN: list[dict[str, Any]] = [
    {"id": "open", "effect": "allow", "reason": "governance taken out"},
    {"id": "open-tainted", "effect": "allow", "subject": {"tainted": True}, "reason": "governance taken out"},
]


def outward() -> Any:
    """The policy that docs/integrations.md shows, under which models send nothing out."""
    page = (Path(__file__).parents[3] / "docs" / "integrations.md").read_text("utf-8")
    (text,) = re.findall(r"^# policies/outward.yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return yaml12.load(text)
