"""Checks of a connector's file beyond its schema: unknown names, secrets that could leak, effects that contradict the method."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from appliance.connectors.declarative.plan import ConnectorPlan, RequestPlan
from appliance.connectors.declarative.templates import Placeholder, Template, placeholders_in
from appliance.core.json_schema import SchemaInvalid, compile_schema, pointer_token

Finding = tuple[str, str]

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OWN_HEADERS = {
    "accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding",
    "upgrade",
}  # fmt: skip
_CHANGING = {"PUT", "PATCH", "DELETE"}


def validate_plan(data: Mapping[str, Any], plan: ConnectorPlan) -> list[Finding]:
    """Return pointers with messages; empty when the file is valid."""
    if broken := list(_schemas(data)):
        return broken
    findings = [*_addresses(plan), *_headers(plan.headers, "/headers"), *_unknown_settings(plan)]
    for at, request in _requests(plan):
        findings += _headers(request.headers, f"{at}/headers")
        if any(isinstance(part, str) and re.search(r"[?#\\\s\x00-\x1f\x7f]", part) for part in request.path.parts):
            findings.append((f"{at}/path", "A path holds no ?, #, backslash or space; parameters go into `query`."))
    findings += _bodies(data)
    for name, action in plan.actions.items():
        at = f"/actions/{pointer_token(name)}"
        if action.action.effect == "read" and action.request.method in _CHANGING:
            findings.append((f"{at}/effect", f"A {action.request.method} changes something; its effect is not `read`."))
        if action.pages and action.request.method in _CHANGING:
            findings.append((f"{at}/pages", f"A {action.request.method} is sent once; pages are for reading."))
        if action.item is not None and action.pages is None:
            findings.append((f"{at}/item", "`item` is for actions with `pages`; without them write `result`."))
        findings += _unknown_members(data["actions"][name], "input", at)
    for name in plan.triggers:
        findings += _unknown_members(data["triggers"][name], "query", f"/triggers/{pointer_token(name)}")
    return findings


def _bodies(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Report requests with more than one body."""
    for group in ("actions", "triggers"):
        for name, each in data.get(group, {}).items():
            if {"json", "form"} <= each["request"].keys():
                yield f"/{group}/{pointer_token(name)}/request/form", "A request has one body: `json` or `form`."


def _schemas(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Report invalid schemas, and samples that are invalid against theirs."""
    places: list[tuple[str, Any, Any]] = [("/settings", data["settings"], None)]
    for name, action in data["actions"].items():
        at = f"/actions/{pointer_token(name)}"
        places += [(f"{at}/input", action["input"], action.get("sample", {})), (f"{at}/output", action["output"], None)]
    for name, trigger in data.get("triggers", {}).items():
        at = f"/triggers/{pointer_token(name)}"
        places += [(f"{at}/query", trigger["query"], trigger.get("sample", {})), (f"{at}/item", trigger["item"], None)]
    for at, schema, sample in places:
        try:
            compiled = compile_schema(schema)
        except SchemaInvalid as error:
            yield at, f"It is no JSON Schema: {error}."
            continue
        for problem in compiled.problems(sample) if sample is not None else ():
            yield f"{at.rpartition('/')[0]}/sample{problem.pointer}", f"The sample breaks its schema: {problem.message}"


def _addresses(plan: ConnectorPlan) -> Iterator[Finding]:
    """Report settings in the base URL that are not marked `secret_target`.

    Changing where requests go must require entering the secrets again.
    """
    properties: Mapping[str, Any] = plan.settings.get("properties", {})
    literal = plan.base_url.parts[0] if isinstance(plan.base_url.parts[0], str) else ""
    if literal and not re.match(r"https?://", literal):
        yield "/base_url", "It begins with https:// (or http://), or with a setting that does."
    for hole in plan.base_url.holes:
        name = str(hole.steps[0]) if hole.steps else ""
        part = properties.get(name, {})
        if isinstance(part, dict) and part.get("secret") is True:
            yield "/base_url", f"{hole} is a secret, which an address must not hold."
        elif len(hole.steps) != 1 or not isinstance(part, dict) or part.get("secret_target") is not True:
            yield "/base_url", f"{hole} decides where secrets are sent; give the setting `secret_target: true`."


def _unknown_settings(plan: ConnectorPlan) -> Iterator[Finding]:
    places: list[tuple[str, Any]] = [("/base_url", plan.base_url), ("/auth", [plan.auth.first, plan.auth.second])]
    places += [("/headers", dict(plan.headers)), ("/query", plan.query)]
    for at, request in _requests(plan):
        places += [(at, [request.path, request.query, dict(request.headers), request.body])]
    for at, tree in places:
        for hole in placeholders_in(tree):
            if hole.root == "settings" and (unknown := _unknown(plan.settings, hole)):
                yield at, f"{hole}: the settings have no member {unknown!r}."
    if plan.auth.kind == "header" and not _TOKEN.fullmatch(plan.auth.name):
        yield "/auth/name", f"{plan.auth.name[:40]!r} cannot be the name of a header."


def _unknown_members(data: Mapping[str, Any], root: str, at: str) -> Iterator[Finding]:
    """Report placeholders such as {{ input.idd }} that name a member the schema does not declare."""
    for pointer, text in _texts({name: inner for name, inner in data.items() if name in _FILLED}, at):
        for match in re.finditer(r"\{\{\s*" + root + r"\.([A-Za-z_@$][A-Za-z0-9_@$-]*)", text):
            if _unknown(data[root], Placeholder(root, (match[1],))):
                yield pointer, f"{{{{ {root}.{match[1]} }}}}: `{root}` declares no member {match[1]!r}."


_FILLED = {"request", "newest", "pages", "item", "result", "map"}


def _texts(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, f"{at}/{pointer_token(name)}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _texts(inner, f"{at}/{place}")


def _unknown(schema: Mapping[str, Any], hole: Placeholder) -> str | None:
    """Return the first step that is not among the schema's `properties`; None where the schema does not list them."""
    part: Any = schema
    for step in hole.steps:
        properties = part.get("properties") if isinstance(part, Mapping) else None
        if not isinstance(properties, Mapping) or not isinstance(step, str):
            return None
        if step not in properties:
            return step
        part = properties[step]
    return None


def _requests(plan: ConnectorPlan) -> Iterator[tuple[str, RequestPlan]]:
    yield "/check/request", plan.check.request
    for name, action in plan.actions.items():
        yield f"/actions/{pointer_token(name)}/request", action.request
    for name, trigger in plan.triggers.items():
        yield f"/triggers/{pointer_token(name)}/request", trigger.request
        if trigger.newest is not None:
            yield f"/triggers/{pointer_token(name)}/newest", trigger.newest


def _headers(headers: Mapping[str, Template], at: str) -> Iterator[Finding]:
    for name in headers:
        if not _TOKEN.fullmatch(name):
            yield f"{at}/{pointer_token(name)}", f"{name[:40]!r} cannot be the name of a header."
        elif name.lower() in _OWN_HEADERS or name.lower().startswith("proxy-"):
            yield f"{at}/{pointer_token(name)}", f"The header {name} is set by the appliance itself; leave it out."
