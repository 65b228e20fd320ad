"""Serves skills over MCP as resources, as prompts and through the skills extension.

Every read goes through the skill tools, so scopes and policies apply to it in the same way.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    Prompt,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParams,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)

from appliance.agents.skills import SKILL_FILE, Skill, Skills
from appliance.agents.tools import TRUNCATED, Caller, PendingResult, Toolbox
from appliance.core.errors import ApplianceError, NotFound, PayloadTooLarge
from appliance.core.pages import PageRequest
from appliance.core.sentences import Sentence
from appliance.web import in_thread, log_as

from .tools import Context, caller_of

T = TypeVar("T")

EXTENSION = "io.modelcontextprotocol/skills"
SCHEME = "skill://"
_LIST, _LOAD = "list_tenant_skills", "load_tenant_skill"
_PAGE = 50
_MOST_BYTES = 2 << 20  # fits the longest file with the longest instructions, as these methods cannot report a truncation
_TYPES = {"md": "text/markdown", "json": "application/json", "csv": "text/csv"}


class GetSkill(RequestParams):
    """The parameters of skills/get."""

    uri: str


@dataclass(frozen=True)
class SkillHandlers:
    """The handlers for skills; blocking work runs in `threads`."""

    skills: Skills
    toolbox: Toolbox
    threads: Executor

    def add_to(self, server: Server[Any]) -> None:
        """Register resources, prompts and the extension."""
        pages = PaginatedRequestParams
        server.add_request_handler("resources/list", pages, self.list_resources)
        server.add_request_handler("resources/templates/list", pages, self.list_templates)
        server.add_request_handler("resources/read", ReadResourceRequestParams, self.read_resource)
        server.add_request_handler("prompts/list", pages, self.list_prompts)
        server.add_request_handler("prompts/get", GetPromptRequestParams, self.get_prompt)
        server.add_request_handler("skills/list", pages, self.list_skills)
        server.add_request_handler("skills/get", GetSkill, self.get_skill)
        server.extensions[EXTENSION] = {}

    async def list_resources(self, ctx: Context, params: PaginatedRequestParams) -> ListResourcesResult:
        """List every skill's SKILL.md; the resource template gives access to the other files."""
        summaries = await self._run(ctx, self._summaries)
        resources = [
            Resource(
                uri=f"{SCHEME}{each['name']}/{SKILL_FILE}", name=each["name"], description=each["description"],
                mime_type="text/markdown",
            )
            for each in summaries
        ]  # fmt: skip
        return ListResourcesResult(resources=resources)

    async def list_templates(self, ctx: Context, params: PaginatedRequestParams) -> ListResourceTemplatesResult:
        """List the URI template of a skill's files."""
        template = ResourceTemplate(
            uri_template=f"{SCHEME}{{name}}/{{+path}}", name="skill-file", description="A text file of a skill, by its path."
        )
        return ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(self, ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        """Read a text file of a skill as a whole; one too long for a model is refused (`payload_too_large`)."""
        name, path = _parts_of(params.uri)
        loaded = await self._run(ctx, lambda caller: self._call(caller, _LOAD, {"name": name, "path": path}))
        kind = _TYPES.get(path.rpartition(".")[2], "text/plain")
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, mime_type=kind, text=loaded["content"])])

    async def list_prompts(self, ctx: Context, params: PaginatedRequestParams) -> ListPromptsResult:
        """List every skill as a prompt that a person can choose."""
        summaries = await self._run(ctx, self._summaries)
        return ListPromptsResult(prompts=[Prompt(name=each["name"], description=each["description"]) for each in summaries])

    async def get_prompt(self, ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        """Return the instructions of a skill as a prompt."""
        loaded = await self._run(ctx, lambda caller: self._call(caller, _LOAD, {"name": params.name}))
        message = PromptMessage(role="user", content=TextContent(type="text", text=loaded["instructions"]))
        return GetPromptResult(description=loaded["description"], messages=[message])

    async def list_skills(self, ctx: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        """List a page of skills with the digests of their files."""

        def read(caller: Caller) -> dict[str, Any]:
            self._call(caller, _LIST, {})
            page = self.skills.list_page(caller.scope, PageRequest(_PAGE, params.cursor))
            more = {"nextCursor": page.next_cursor} if page.next_cursor else {}
            return _complete(skills=[self._to_view(caller, each) for each in page.items], **more)

        return await self._run(ctx, read)

    async def get_skill(self, ctx: Context, params: GetSkill) -> dict[str, Any]:
        """Return one skill by the URI of its SKILL.md."""
        name, path = _parts_of(params.uri)

        def read(caller: Caller) -> dict[str, Any]:
            if path != SKILL_FILE:
                raise NotFound(Sentence("the URI of a skill must end in %(skill_file)s", skill_file=SKILL_FILE))
            self._call(caller, _LOAD, {"name": name})
            return _complete(skill=self._to_view(caller, self.skills.get_skill(caller.scope, name)))

        return await self._run(ctx, read)

    def _summaries(self, caller: Caller) -> list[dict[str, Any]]:
        """The summaries of all skills; empty if the key lacks the scope, so that clients which list everything do not fail."""
        if not self.toolbox.get(_LIST).scopes <= caller.scope.scopes:
            return []
        summaries: list[dict[str, Any]] = self._call(caller, _LIST, {})["items"]
        return summaries

    def _call(self, caller: Caller, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        result = self.toolbox.start(caller, tool, arguments, most=_MOST_BYTES)
        if isinstance(result, PendingResult):
            raise TypeError(f"{tool} must not return a pending result")
        if result.get(TRUNCATED):
            message = Sentence(
                "the result is larger than %(most_bytes)s MiB; load single files of the skill instead",
                most_bytes=_MOST_BYTES >> 20,
            )
            raise PayloadTooLarge(message)
        return result

    def _to_view(self, caller: Caller, skill: Skill) -> dict[str, Any]:
        files = self.skills.list_files(caller.scope, skill.name, skill.version_digest)
        front = {
            "name": skill.name, "description": skill.description, "license": skill.license, "compatibility": skill.compatibility,
            "metadata": dict(skill.metadata), "allowed-tools": " ".join(skill.requested_tools),
        }  # fmt: skip
        base = f"{SCHEME}{skill.name}/"
        return {
            "uri": f"{base}{SKILL_FILE}", "frontmatter": {name: value for name, value in front.items() if value},
            "resources": [{"uri": base + each.path, "digest": f"sha256:{each.sha256}", "size": each.size} for each in files],
        }  # fmt: skip

    async def _run(self, ctx: Context, work: Callable[[Caller], T]) -> T:
        caller = caller_of(ctx)
        try:
            return await in_thread(self.threads, log_as, caller.scope.request_id, work, caller)
        except ApplianceError as error:
            raise MCPError(INVALID_PARAMS, error.message, {"code": error.code, **error.extra}) from error


def _parts_of(uri: str) -> tuple[str, str]:
    name, _, path = uri.removeprefix(SCHEME).partition("/")
    if not uri.startswith(SCHEME) or not path:
        raise MCPError(INVALID_PARAMS, f"there is no resource {uri[:200]!r}; skills are at {SCHEME}<name>/<path>")
    return name, path


def _complete(**members: Any) -> dict[str, Any]:
    return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **members}
