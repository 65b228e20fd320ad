"""Reads a connector's YAML file and reports all problems at once, each with its line."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, cast

from appliance.connectors.contract import Action, Trigger
from appliance.connectors.declarative import validation
from appliance.connectors.declarative.form import connector_schema
from appliance.connectors.declarative.plan import (
    ActionPlan,
    Auth,
    CheckPlan,
    ConnectorPlan,
    ErrorRule,
    PagesPlan,
    RequestPlan,
    Steps,
    TriggerPlan,
)
from appliance.connectors.declarative.templates import (
    Template,
    TemplateInvalid,
    parse_path,
    parse_template,
    parse_tree,
)
from appliance.core import yaml12
from appliance.core.json_schema import compile_schema, pointer_token

T = TypeVar("T")
Findings = list[tuple[str, str]]

_NOTHING = Template(("",))


class DocumentInvalid(ValueError):
    """The file is not a valid connector; `problems` are sentences that begin with the line."""

    def __init__(self, problems: list[str]) -> None:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{problems[0]}{more}")
        self.problems = problems


def read_document(text: str) -> ConnectorPlan:
    """Parse the YAML text of a connector; DocumentInvalid lists every problem with its line."""
    try:
        data, lines = yaml12.load_with_lines(text)
    except yaml12.YamlInvalid as error:
        raise DocumentInvalid([f"{error}."]) from error
    findings: Findings = [(each.pointer, each.message) for each in compile_schema(connector_schema()).problems(data)]
    plan = None
    if not findings:
        plan = _Reader(findings).connector(data)
        findings += validation.validate_plan(data, plan)
    if findings or plan is None:
        raise DocumentInvalid([_sentence(pointer, message, lines) for pointer, message in findings])
    return plan


def _sentence(pointer: str, message: str, lines: Mapping[str, int]) -> str:
    nearest = pointer
    while nearest and nearest not in lines:
        nearest = nearest.rpartition("/")[0]
    place = f", {pointer[1:].replace('/', '.')}" if pointer else ""
    return f"line {lines.get(nearest, 1)}{place}: {message}"


class _Reader:
    """Builds the plan of a document that matches the schema; problems of templates and paths are added to `findings`."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    def connector(self, data: Mapping[str, Any]) -> ConnectorPlan:
        roots = ("settings", "call")
        return ConnectorPlan(
            name=data["connector"], title=data["title"], version=data["version"], tested_against=data.get("tested_against", ""),
            settings=data["settings"], base_url=self.template(data["base_url"], "/base_url", ("settings",)),
            auth=self.auth(data.get("auth", {"kind": "none"})),
            headers=self.texts(data.get("headers", {}), "/headers", roots),
            query=self.tree(data.get("query", {}), "/query", roots),
            timeout_s=float(data.get("timeout_s", 30)),
            errors=self.errors(data.get("errors", []), "/errors"),
            check=CheckPlan(
                self.request(data["check"]["request"], "/check/request", roots),
                self.template(data["check"]["message"], "/check/message", ("answer",)),
                self.errors(data["check"].get("errors", []), "/check/errors"),
            ),
            actions={name: self.action(name, each) for name, each in data["actions"].items()},
            triggers={name: self.trigger(name, each) for name, each in data.get("triggers", {}).items()},
        )  # fmt: skip

    def action(self, name: str, data: Mapping[str, Any]) -> ActionPlan:
        at = f"/actions/{pointer_token(name)}"
        declared = Action(name, data["summary"], data["input"], data["output"], data["effect"], data.get("sample", {}))
        roots = ("settings", "input", "call", "page")
        results = ("answer", "items", "complete", "input")
        return ActionPlan(
            declared,
            self.request(data["request"], f"{at}/request", roots),
            self.pages(data["pages"], f"{at}/pages", ("input",)) if "pages" in data else None,
            self.tree(data["item"], f"{at}/item", ("item", "input")) if "item" in data else None,
            self.tree(data["result"], f"{at}/result", results) if "result" in data else None,
            self.errors(data.get("errors", []), f"{at}/errors"),
        )

    def trigger(self, name: str, data: Mapping[str, Any]) -> TriggerPlan:
        at = f"/triggers/{pointer_token(name)}"
        roots = ("settings", "query", "cursor", "call", "page")
        return TriggerPlan(
            trigger=Trigger(name, data["summary"], data["query"], data["item"], data.get("sample", {})),
            request=self.request(data["request"], f"{at}/request", roots),
            newest=self.request(data["newest"], f"{at}/newest", roots) if "newest" in data else None,
            pages=self.pages(data["pages"], f"{at}/pages", ("query",)),
            shape=self.tree(data["map"], f"{at}/map", ("item", "query")) if "map" in data else None,
            key=self.path(data["key"], f"{at}/key"),
            cursor=self.path(data["cursor"], f"{at}/cursor"),
            ascending=data.get("ascending", False),
            begin=data.get("begin", "now"),
            errors=self.errors(data.get("errors", []), f"{at}/errors"),
        )

    def request(self, data: Mapping[str, Any], at: str, roots: Collection[str]) -> RequestPlan:
        kind = next((each for each in ("json", "form") if each in data), "none")
        return RequestPlan(
            method=data.get("method", "GET"),
            path=self.template(data["path"], f"{at}/path", roots),
            query=self.tree(data.get("query", {}), f"{at}/query", roots),
            headers=self.texts(data.get("headers", {}), f"{at}/headers", roots),
            body_kind=cast(Any, kind),
            body=self.tree(data.get(kind), f"{at}/{kind}", roots),
            timeout_s=data.get("timeout_s"),
        )

    def pages(self, data: Mapping[str, Any], at: str, roots: Collection[str]) -> PagesPlan:
        most = data.get("max_items", 10_000)
        return PagesPlan(
            kind=data["kind"],
            items=self.path(data["items"], f"{at}/items"),
            next=self.path(data["next"], f"{at}/next") if "next" in data else None,
            more=self.path(data["more"], f"{at}/more") if "more" in data else None,
            size=data.get("size"),
            first=data.get("first", 1),
            max_pages=data.get("max_pages", 100),
            max_items=self.template(most, f"{at}/max_items", roots) if isinstance(most, str) else most,
        )

    def auth(self, data: Mapping[str, Any]) -> Auth:
        first = {"bearer": "token", "basic": "username"}.get(data["kind"], "value")
        templates = [
            self.template(data[name], f"/auth/{name}", ("settings",)) if name in data else _NOTHING for name in (first, "password")
        ]
        return Auth(data["kind"], data.get("name", ""), *templates)

    def errors(self, rules: list[Mapping[str, Any]], at: str) -> tuple[ErrorRule, ...]:
        return tuple(
            ErrorRule(
                _statuses(rule["status"]),
                tuple((self.path(path, f"{at}/{place}/when"), value) for path, value in rule.get("when", {}).items()),
                rule["class"],
                self.template(rule["message"], f"{at}/{place}/message", ("answer", "status")),
                rule.get("outcome"),
                rule.get("retry_after_header"),
            )
            for place, rule in enumerate(rules)
        )

    # -- the small parts

    def template(self, text: str, at: str, roots: Collection[str]) -> Template:
        return self._read(lambda: parse_template(text, roots), at, _NOTHING)

    def path(self, text: str, at: str) -> Steps:
        return self._read(lambda: parse_path(text), at, ())

    def texts(self, data: Mapping[str, str], at: str, roots: Collection[str]) -> dict[str, Template]:
        return {name: self.template(text, f"{at}/{pointer_token(name)}", roots) for name, text in data.items()}

    def tree(self, data: Any, at: str, roots: Collection[str]) -> Any:
        """Parse every text of a tree separately, so that a finding points to the exact line."""
        if isinstance(data, Mapping):
            return {name: self.tree(inner, f"{at}/{pointer_token(name)}", roots) for name, inner in data.items()}
        if isinstance(data, list):
            return [self.tree(inner, f"{at}/{place}", roots) for place, inner in enumerate(data)]
        return self._read(lambda: parse_tree(data, roots), at, None)

    def _read(self, parse: Callable[[], T], at: str, instead: T) -> T:
        try:
            return parse()
        except TemplateInvalid as error:
            self.findings.append((at, f"{error}."))
            return instead


def _statuses(status: int | str | list[int]) -> frozenset[int]:
    if isinstance(status, str):
        return frozenset(range(int(status[0]) * 100, int(status[0]) * 100 + 100))
    return frozenset(status if isinstance(status, list) else [status])
