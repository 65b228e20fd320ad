"""Content from outside: what a tool's result carries into a run, and the run's subject afterwards.

Whatever people of the tenant did not write themselves may hold instructions: answers of foreign systems, documents and
records that came in from somewhere, logs and results that quote them, skills that nobody has granted.  A run that has read
such a thing is tainted for good; policies see it, and hold its writes to an approval.

Summaries and schemas of actions do not taint, although a connector may have discovered them in the foreign system: an agent
cannot call what it has not looked up, so every run would be tainted and the mark mean nothing.  What protects instead: an
administrator imports such a system, tools of MCP servers are listed one by one and pinned to the texts they had, and whatever
a text talks an agent into meets the same rules as any other call.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from appliance.governance.policies.decision import ToolAction
from appliance.governance.subjects import Subject

MOST_SOURCES = 50
"""Of more sources a run names no more; it is tainted all the same."""
_OWN = frozenset(
    {
        "list_tenant_integrations", "request_human_input", "get_human_input", "publish_webapp",
    }
)  # fmt: skip
"""Tools that answer what the appliance itself, or a person of the tenant, says."""
_TOLD = ("output", "error", "waiting_for", "aftermath")
"""Members of an execution that may quote content from outside."""
_NAMED = {
    "read_document": ("document", "document_id"), "search_documents": ("documents", ""),
    "query_entities": ("collection", "collection"),
    "write_entities": ("collection", "collection"), "get_execution": ("execution", "execution_id"), "read_logs": ("logs", ""),
}  # fmt: skip


def source_of(action: ToolAction, result: Mapping[str, Any] | None = None) -> str:
    """Where the content of a tool's result comes from, `integration:erp` or `document:doc_1`; empty when from nowhere outside."""
    if action.integration:
        return f"integration:{action.integration}"
    if action.tool in _OWN:
        return ""
    if action.tool == "load_tenant_skill":
        trust = (result or {}).get("trust")
        return "" if trust == "trusted" else source_of_skill(action.input.get("name"))
    if action.tool == "list_tenant_skills":
        items = (result or {}).get("items", ())
        return "skills" if any(each.get("trust") != "trusted" for each in items) else ""
    if action.tool == "execute_process":
        return _source_of_start(result or {})
    kind, member = _NAMED.get(action.tool, ("tool", ""))
    name = _text(action.input.get(member)) if member else ("" if kind != "tool" else action.tool)
    return f"{kind}:{name}" if name else kind


def source_of_skill(name: Any) -> str:
    """What a skill is called as a source, while nobody trusts it."""
    return f"skill:{_text(name)}"


def tainted(subject: Subject, *sources: str) -> Subject:
    """The subject once its run has read these; an empty source is none."""
    new = [each for each in dict.fromkeys(sources) if each and each not in subject.tainted_by]
    return replace(subject, tainted_by=(*subject.tainted_by, *new)[:MOST_SOURCES]) if new else subject


def _source_of_start(result: Mapping[str, Any]) -> str:
    """What an execution answers or says may quote what it has read; that it has begun says nothing."""
    told = any(result.get(name) is not None for name in _TOLD)
    return f"execution:{_text(result.get('execution_id'))}" if told else ""


def _text(value: Any) -> str:
    return value[:100] if isinstance(value, str) else ""
