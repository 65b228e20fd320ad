"""The tools that list and load skills."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from appliance.agents.skills.service import Skills

from .shapes import COUNT, TEXT, inputs, listed, outputs
from .tool import Caller, Tool

_TRUST = {"enum": ["trusted", "untrusted"], "description": "untrusted: no person has approved this digest."}
_TEXTS = {"type": "array", "items": TEXT}


@dataclass(frozen=True)
class SkillTools:
    """Tools for skills."""

    skills: Skills

    def tools(self) -> list[Tool]:
        """`list_tenant_skills` and `load_tenant_skill`."""
        summary = {
            "type": "object",
            "required": ["name", "description", "version_digest", "trust"],
            "properties": {"name": TEXT, "description": TEXT, "version_digest": TEXT, "trust": _TRUST},
        }
        file = {
            "type": "object",
            "required": ["path", "sha256", "size", "kind"],
            "properties": {"path": TEXT, "sha256": TEXT, "size": COUNT, "kind": {"enum": ["text", "binary"]}},
        }
        loaded = outputs(
            ("name", "description", "version_digest", "instructions", "files", "requested_tools", "granted_tools", "trust"),
            name=TEXT, description=TEXT, version_digest=TEXT, instructions=TEXT, content=TEXT,
            files={"type": "array", "items": file}, requested_tools=_TEXTS, granted_tools=_TEXTS, trust=_TRUST,
        )  # fmt: skip
        load = inputs(
            ("name",), name=TEXT, path={"type": "string", "description": "A text file of the skill, returned as `content`."},
            expected_digest={"type": "string", "description": "Fail if the version_digest is another one."},
        )  # fmt: skip
        scopes = frozenset({"skills.read"})
        return [
            Tool(
                name="list_tenant_skills", title="List skills",
                description="Lists the tenant's skills and their purpose. Load one before you follow it.", input_schema=inputs(),
                output_schema=listed(summary), effect="read", scopes=scopes, call=self.list, long=("items",),
                reaches=lambda *_: (),
            ),
            Tool(
                name="load_tenant_skill", title="Load a skill",
                description=(
                    "Loads a skill's instructions and the list of its files, or one of its files. `requested_tools` "
                    "grants nothing; a "
                    "run that follows the skill may use `granted_tools` to make changes without asking a person, if policies allow "
                    "it."
                ),
                input_schema=load, output_schema=loaded, effect="read", scopes=scopes, call=self.load,
                long=("content", "instructions"), reaches=lambda *_: (),
            ),
        ]  # fmt: skip

    def list(self, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Like GET /skills, in the shortest form."""
        return {"items": [asdict(each) for each in self.skills.list_skills(caller.scope)]}

    def load(self, caller: Caller, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Like GET /skills/{name}."""
        parameters = arguments["name"], arguments.get("path"), arguments.get("expected_digest")
        return self.skills.load_skill(caller.scope, *parameters).document()
