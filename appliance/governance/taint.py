"""Taint tracking: which outside sources a tool's result brings into a run, and the run's subject afterwards.

Content that people of the tenant did not write may contain instructions: answers of foreign systems, imported documents and
records, logs and results that quote them, skills that are not trusted.  A run that has read such content stays tainted;
policies see this and require approval for its writes.

Summaries and schemas of actions do not taint, although a connector may have discovered them in the foreign system: an agent
must look up an action before calling it, so every run would be tainted and the flag meaningless.  The protection is elsewhere:
an administrator imports such a system, tools of MCP servers are listed one by one and pinned to their texts, and whatever a
text makes an agent do is subject to the same rules as any other call.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from appliance.governance.policies.decision import ToolAction
from appliance.governance.subjects import Subject

MAX_SOURCES = 50
"""The maximum number of sources recorded for a run; more do not change that it is tainted."""
_TRUSTED_TOOLS = frozenset(
    {
        "list_tenant_integrations", "request_human_input", "get_human_input", "publish_webapp",
    }
)  # fmt: skip
"""Tools whose results come from the appliance itself or from a person of the tenant."""
_QUOTING_MEMBERS = ("output", "error", "waiting_for", "aftermath")
"""Members of an execution's view that may quote content from outside."""
_SOURCE_MEMBERS = {
    "read_document": ("document", "document_id"), "search_documents": ("documents", ""),
    "query_entities": ("collection", "collection"),
    "write_entities": ("collection", "collection"), "get_execution": ("execution", "execution_id"), "read_logs": ("logs", ""),
}  # fmt: skip


def source_of(action: ToolAction, result: Mapping[str, Any] | None = None) -> str:
    """The outside source of a tool's result, such as `integration:erp` or `document:doc_1`; empty if it has none."""
    if action.integration:
        return f"integration:{action.integration}"
    if action.tool in _TRUSTED_TOOLS:
        return ""
    if action.tool == "load_tenant_skill":
        trust = (result or {}).get("trust")
        return "" if trust == "trusted" else source_of_skill(action.input.get("name"))
    if action.tool == "list_tenant_skills":
        items = (result or {}).get("items", ())
        return "skills" if any(each.get("trust") != "trusted" for each in items) else ""
    if action.tool == "execute_process":
        return _source_of_start(result or {})
    kind, member = _SOURCE_MEMBERS.get(action.tool, ("tool", ""))
    name = _text(action.input.get(member)) if member else ("" if kind != "tool" else action.tool)
    return f"{kind}:{name}" if name else kind


def source_of_skill(name: Any) -> str:
    """The source name of an untrusted skill."""
    return f"skill:{_text(name)}"


def add_taint(subject: Subject, *sources: str) -> Subject:
    """The subject after its run has read these sources; empty ones are ignored."""
    new = [each for each in dict.fromkeys(sources) if each and each not in subject.tainted_by]
    return replace(subject, tainted_by=(*subject.tainted_by, *new)[:MAX_SOURCES]) if new else subject


def _source_of_start(result: Mapping[str, Any]) -> str:
    """An execution's output or error may quote what it has read; the mere fact that it started does not taint."""
    quotes = any(result.get(name) is not None for name in _QUOTING_MEMBERS)
    return f"execution:{_text(result.get('execution_id'))}" if quotes else ""


def _text(value: Any) -> str:
    return value[:100] if isinstance(value, str) else ""
