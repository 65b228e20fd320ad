"""Parses and validates agent definitions, reporting every problem at once.  Pure: no database access."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from appliance.core import clock, ids
from appliance.core.errors import ApplianceError, DefinitionInvalid, Detail, ValidationFailed
from appliance.core.json_schema import SchemaInvalid, compile_schema
from appliance.core.sentences import Sentence

MEMBERS = ("id", "name", "description", "model", "instructions", "tools", "skills", "policy", "budget", "output")
MOST_TEXT = {"name": 200, "description": 2_000, "instructions": 60_000}
MOST_NAMES = 100
MOST_SCHEMA_BYTES = 32 << 10
# The tools of docs/contract.md § 12 that a definition may list. Waiting for people is automatic, and skills are in `skills`.
TOOLS = (
    "list_tenant_integrations", "execute_tenant_integration", "request_human_input", "execute_process", "get_execution",
    "query_entities", "write_entities", "search_documents", "read_document", "read_logs", "publish_webapp",
)  # fmt: skip
LOAD_SKILL, LIST_SKILLS = "load_tenant_skill", "list_tenant_skills"
LIST_ACTIONS, CALL_ACTION = "list_tenant_integrations", "execute_tenant_integration"
UNLISTED = {
    LIST_SKILLS: "the agent's skills are part of its prompt; list them in skills",
    LOAD_SKILL: "it is added automatically; list the agent's skills in skills",
    "get_human_input": "a run waits for answers automatically",
    CALL_ACTION: "list each operation as integration:operation",
    LIST_ACTIONS: "it is added automatically with integration:operation",
}
OPERATION = r"[A-Za-z][A-Za-z0-9_.-]{0,99}"
MOST_COST = 1_000.0


@dataclass(frozen=True)
class Budget:
    """The limits of one run: model turns, tool calls, input plus output tokens, cost in the currency of the model's prices,
    and seconds of active time (waiting does not count)."""

    turns: int = 20
    tool_calls: int = 50
    tokens: int = 200_000
    cost: float = 1.0
    seconds: int = 600


MOST_BUDGET = {"turns": 200, "tool_calls": 1_000, "tokens": 10_000_000, "seconds": 86_400}


@dataclass(frozen=True)
class Definition:
    """An agent's definition: `model` names an LLM profile; `tools` are tool names; `actions` are pairs of integration and
    operation (or `*`); `policies` must be active for a run to start or continue; `output` is the JSON Schema of the answer,
    None for plain text."""

    id: str
    name: str
    model: str
    instructions: str
    description: str = ""
    tools: tuple[str, ...] = ()
    actions: tuple[tuple[str, str], ...] = ()
    skills: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)
    output: Mapping[str, Any] | None = None

    def document(self) -> dict[str, Any]:
        """The definition in the form users write; parsing it yields an equal definition."""
        return {
            "id": self.id, "name": self.name, "model": self.model, "instructions": self.instructions,
            **({"description": self.description} if self.description else {}),
            "tools": [*self.tools, *(f"{slug}:{operation}" for slug, operation in self.actions)],
            "skills": list(self.skills), "policy": list(self.policies), "budget": asdict(self.budget),
            **({"output": dict(self.output)} if self.output is not None else {}),
        }  # fmt: skip

    def digest(self) -> str:
        """SHA-256 of the canonical definition, independent of formatting and member order."""
        text = json.dumps(self.document(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def may_call(self, integration: str, operation: str) -> bool:
        """Whether the definition allows this operation."""
        return (integration, operation) in self.actions or (integration, "*") in self.actions


def parse_definition(agent_id: str, data: Any) -> Definition:
    """Parse the definition of the agent `agent_id`; raises DefinitionInvalid with a pointer for every problem."""
    reader = _Reader(data if isinstance(data, Mapping) else {})
    if not isinstance(data, Mapping):
        reader.add_problem("", "a definition must be an object")
    definition = reader.definition(agent_id)
    if reader.problems:
        more = (
            Sentence(" (and %(problems)s more, see details)", problems=len(reader.problems) - 1) if len(reader.problems) > 1 else ""
        )
        first = reader.problems[0]
        raise DefinitionInvalid(
            Sentence(
                "the agent is not valid: %(pointer)s %(message)s%(more)s",
                pointer=first.pointer or "/", message=first.message, more=more,
            ),
            details=reader.problems,
        )
    return definition


class _Reader:
    """Parses a definition member by member and collects its problems."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data
        self.problems: list[Detail] = []

    def add_problem(self, pointer: str, message: str, code: str = "validation_failed") -> None:
        self.problems.append(Detail(pointer, code, message))

    def definition(self, agent_id: str) -> Definition:
        for member in self.data:
            if member not in MEMBERS:
                known = Sentence("is not a known member; use one of %(members)s", members=", ".join(MEMBERS))
                self.add_problem(
                    f"/{str(member)[:60]}",
                    Sentence("%(member)s %(known)s", member=repr(str(member)[:60]), known=known),
                    "unknown_member",
                )
        self.slug(agent_id, "")
        if self.data.get("id", agent_id) != agent_id:
            self.add_problem(
                "/id",
                Sentence(
                    "the id is %(id)s, but the URL names %(agent_id)s", id=repr(str(self.data["id"])[:80]), agent_id=repr(agent_id)
                ),
            )
        tools, actions = self.tools()
        policy = self.data.get("policy")
        return Definition(
            id=agent_id, name=self.text("name", agent_id), model=self.model(), instructions=self.text("instructions"),
            description=self.text("description", ""), tools=tools, actions=actions, skills=self.slugs("skills"),
            policies=self.slugs("policy", [policy] if isinstance(policy, str) else policy), budget=self.budget(),
            output=self.output(),
        )  # fmt: skip

    def text(self, member: str, default: str | None = None) -> str:
        if member not in self.data and default is not None:
            return default
        value = self.data.get(member)
        if not isinstance(value, str) or (not value.strip() and default is None) or len(value) > MOST_TEXT[member] or "\0" in value:
            self.add_problem(
                f"/{member}",
                Sentence("%(member)s must be a text of 1 to %(most_text)s characters", member=member, most_text=MOST_TEXT[member]),
            )
            return ""
        return value

    def slug(self, name: Any, pointer: str) -> bool:
        try:
            ids.check_slug(name if isinstance(name, str) else str(name))
        except ValidationFailed as error:
            self.add_problem(pointer, error.message)
            return False
        return isinstance(name, str)

    def model(self) -> str:
        name = self.data.get("model", "default")
        return str(name) if self.slug(name, "/model") else ""

    def names(self, member: str, names: Any) -> list[Any]:
        if names is None:
            return []
        if not isinstance(names, list) or len(names) > MOST_NAMES:
            self.add_problem(
                f"/{member}",
                Sentence("%(member)s must be a list of at most %(most_names)s names", member=member, most_names=MOST_NAMES),
            )
            return []
        for index, name in enumerate(names):
            if not isinstance(name, str) or name in names[:index]:
                self.add_problem(f"/{member}/{index}", "each name must be a text and appear only once")
                return []
        return names

    def slugs(self, member: str, value: Any = None) -> tuple[str, ...]:
        names = self.names(member, self.data.get(member) if value is None else value)
        return tuple(name for index, name in enumerate(names) if self.slug(name, f"/{member}/{index}"))

    def tools(self) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        tools: list[str] = []
        actions: list[tuple[str, str]] = []
        for index, name in enumerate(self.names("tools", self.data.get("tools"))):
            slug, colon, operation = name.partition(":")
            pointer = f"/tools/{index}"
            if colon:
                if self.slug(slug, pointer) and (operation == "*" or re.fullmatch(OPERATION, operation)):
                    actions.append((slug, operation))
                else:
                    self.add_problem(
                        pointer,
                        Sentence(
                            "%(name)s must be integration:operation, or integration:* for every operation", name=repr(name[:80])
                        ),
                    )
            elif name in UNLISTED:
                self.add_problem(pointer, Sentence("%(name)s cannot be listed: %(unlisted)s", name=name, unlisted=UNLISTED[name]))
            elif name not in TOOLS:
                names = ", ".join(tool for tool in TOOLS if tool not in UNLISTED)
                self.add_problem(
                    pointer,
                    Sentence(
                        "%(name)s is not a tool; use %(known)s or integration:operation", name=repr(name[:80]), known=names
                    ),
                )
            else:
                tools.append(name)
        return tuple(tools), tuple(actions)

    def budget(self) -> Budget:
        data = self.data.get("budget")
        if data is None:
            return Budget()
        if not isinstance(data, Mapping):
            self.add_problem(
                "/budget", Sentence("budget must be an object with any of %(budget)s", budget=", ".join(asdict(Budget())))
            )
            return Budget()
        values: dict[str, Any] = {}
        for member, value in data.items():
            amount = self.amount(str(member), value)
            if amount is not None:
                values[str(member)] = amount
        return Budget(**values)

    def amount(self, member: str, value: Any) -> int | float | None:
        pointer = f"/budget/{member[:60]}"
        if member == "cost":
            if type(value) in (int, float) and 0 < value <= MOST_COST:
                return float(value)
            self.add_problem(
                pointer,
                Sentence(
                    "cost must be greater than 0 and at most %(most_cost)s, in the currency of the model's prices",
                    most_cost=f"{MOST_COST:g}",
                ),
            )
        elif member not in MOST_BUDGET:
            self.add_problem(
                pointer, Sentence("a budget may contain only %(budget)s", budget=', '.join(asdict(Budget()))), "unknown_member"
            )
        elif member == "seconds" and isinstance(value, str):
            return self.span(value, pointer)
        elif type(value) is int and 1 <= value <= MOST_BUDGET[member]:
            return value
        else:
            self.add_problem(
                pointer,
                Sentence(
                    "%(member)s must be a whole number from 1 to %(most_budget)s", member=member, most_budget=MOST_BUDGET[member]
                ),
            )
        return None

    def span(self, text: str, pointer: str) -> int | None:
        try:
            seconds = clock.parse_duration(text, pointer=pointer) // 1000
        except ApplianceError as error:
            self.add_problem(pointer, error.message)
            return None
        if not 1 <= seconds <= MOST_BUDGET["seconds"]:
            self.add_problem(pointer, "seconds must be a duration from 1s to 24h")
            return None
        return seconds

    def output(self) -> Mapping[str, Any] | None:
        schema = self.data.get("output")
        if schema is None:
            return None
        if not isinstance(schema, Mapping) or schema.get("type") != "object":
            self.add_problem("/output", 'output must be a JSON Schema with "type": "object"')
            return None
        try:
            if len(json.dumps(schema)) > MOST_SCHEMA_BYTES:
                raise SchemaInvalid(f"it is larger than {MOST_SCHEMA_BYTES >> 10} KB")
            compile_schema(dict(schema))
        except (SchemaInvalid, ValueError, RecursionError) as error:
            self.add_problem("/output", Sentence("output is not a usable JSON Schema: %(error)s", error=str(error)[:300]))
            return None
        return schema
