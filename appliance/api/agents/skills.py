"""/api/v1/skills: skills and their files."""

import base64
import binascii
from typing import Literal

from pydantic import ValidationError

from appliance.agents.skills import LARGEST_SET, Skill, SkillFile, file_document, read_archive
from appliance.api.frame.contents import CACHE
from appliance.api.frame.errors import from_pydantic
from appliance.api.frame.routing import Acts, Answer, Body, Call, Json, Pieces, Query, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import PayloadTooLarge, ValidationFailed
from appliance.core.json_text import load_json
from appliance.core.sentences import Sentence
from appliance.documents import disposition

FILES = Json(
    "archive",
    "A zip, tar or tar.gz of the skill's files, with SKILL.md at the top or inside a single top-level folder; or "
    "`application/json`: `{files: {path: text, or {base64}}}`.",
)
LARGEST_JSON = LARGEST_SET * 2


class SkillFileView(View):
    """A file of a skill; models receive only text files."""

    path: str
    sha256: str
    size: int
    kind: Literal["text", "binary"]


class SkillGrantView(View):
    """The latest approval by a person; it applies only while `version_digest` equals the skill's digest."""

    version_digest: str
    tools: list[str]
    approved_by: str
    approved_at: str


class SkillView(View):
    """The current state of a skill.  An untrusted skill has no granted tools, even if `grant` approved an earlier digest."""

    name: str
    description: str
    version_digest: str
    trust: Literal["trusted", "untrusted"]
    requested_tools: list[str]
    granted_tools: list[str]
    grant: SkillGrantView | None = None
    license: str | None = None
    compatibility: str | None = None
    metadata: dict[str, str]
    bytes: int
    created_at: str
    updated_at: str
    updated_by: str


class WholeSkillView(SkillView):
    """A skill with its instructions and the list of its files."""

    instructions: str
    files: list[SkillFileView]


class LoadQuery(Query):
    """The call is refused when the skill's digest is no longer `expected_digest`."""

    expected_digest: str | None = None


class Base64Content(Body):
    base64: str


class NewFiles(Body):
    files: dict[str, str | Base64Content]


def skill_view(skill: Skill) -> SkillView:
    grant = None
    if skill.grant is not None:
        approval = skill.grant
        grant = SkillGrantView(
            version_digest=approval.digest, tools=list(approval.tools), approved_by=approval.login,
            approved_at=clock.rfc3339(approval.at),
        )  # fmt: skip
    return SkillView(
        name=skill.name, description=skill.description, version_digest=skill.version_digest, trust=skill.trust,
        requested_tools=list(skill.requested_tools), granted_tools=list(skill.granted_tools), grant=grant,
        license=skill.license or None, compatibility=skill.compatibility or None, metadata=dict(skill.metadata), bytes=skill.bytes,
        created_at=clock.rfc3339(skill.created_at), updated_at=clock.rfc3339(skill.updated_at), updated_by=skill.updated_by,
    )  # fmt: skip


@route("GET", "/skills", scope="skills.read", returns=SkillView, listed=True, acts=Acts("list_tenant_skills"))
def list_skills(call: Call) -> object:
    """List skills, by name."""
    return call.services.skills.list_page(call.scope, call.query.page).map(skill_view)


@route("GET", "/skills/{name}", scope="skills.read", query=LoadQuery, returns=WholeSkillView, acts=Acts("load_tenant_skill"))
def get_skill(call: Call, name: str) -> Answer:
    """Load a skill: instructions and the list of its files. The ETag is its digest, which covers all of them."""
    loaded = call.services.skills.load_skill(call.scope, name, expected_digest=call.query.expected_digest)
    files = [SkillFileView(**file_document(file)) for file in loaded.files]
    members = skill_view(loaded.skill).model_dump()
    return Answer(WholeSkillView(**members, instructions=loaded.instructions, files=files), etag=loaded.version_digest)


@route("GET", "/skills/{name}/files/{path}", scope="skills.read", media="*/*", acts=Acts("load_tenant_skill"))
def get_skill_file(call: Call, name: str, path: str) -> Answer:
    """Download a file of a skill as an attachment that browsers do not run. `path` may contain slashes. The ETag is its sha256."""
    file, pieces = call.services.skills.open_file(call.scope, name, path)
    headers = {
        "ETag": f'"{file.sha256}"', "Cache-Control": CACHE, "Content-Type": _media_type(file),
        "Content-Disposition": disposition(path.rpartition("/")[2], "attachment"),
        "Content-Security-Policy": "default-src 'none'; sandbox", "X-Content-Type-Options": "nosniff",
    }  # fmt: skip
    return Answer(Pieces(pieces, file.size), 200, headers)


def _media_type(file: SkillFile) -> str:
    return "text/plain; charset=utf-8" if file.is_text else "application/octet-stream"


@route("PUT", "/skills/{name}", scope="skills.write", body=FILES, returns=SkillView, also={201: SkillView}, atomic=False)
def put_skill(call: Call, name: str) -> Answer:
    """Create a skill or replace all its files in one step. Takes If-Match with the digest.

    The new content is untrusted until another person, signed in to the console, approves exactly this digest. If files are
    invalid, the error lists every problem.
    """
    skill, is_new = call.services.skills.put_skill(call.scope, name, _read_files(call), call.if_match)
    headers = {"Location": f"/api/v1/skills/{name}"} if is_new else {}
    return Answer(skill_view(skill), 201 if is_new else 200, headers, etag=skill.version_digest)


def _read_files(call: Call) -> dict[str, bytes]:
    received = call.body.received
    media = (call.body.media_type or "").partition(";")[0].strip().lower()
    with received.open() as file:
        if media != "application/json":
            return read_archive(file)
        if received.size > LARGEST_JSON:
            raise PayloadTooLarge(
                Sentence(
                    "a skill may have at most %(largest_json)s MiB as JSON; remove files it does not need",
                    largest_json=LARGEST_JSON >> 20,
                )
            )
        raw = file.read()
    load_json(raw, call.services.config.limits.json_depth)
    try:
        body = NewFiles.model_validate_json(raw)
    except ValidationError as error:
        raise from_pydantic(error) from error
    return {path: _decode(path, content) for path, content in body.files.items()}


def _decode(path: str, content: str | Base64Content) -> bytes:
    if isinstance(content, str):
        return content.encode("utf8")
    try:
        return base64.b64decode(content.base64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValidationFailed("the content is not valid base64", pointer=f"/files/{path[:200]}/base64") from error


@route("DELETE", "/skills/{name}", scope="skills.write", returns=DeletedView)
def delete_skill(call: Call, name: str) -> DeletedView:
    """Delete a skill with its versions and grants."""
    call.services.skills.delete_skill(call.scope, name)
    return DeletedView(deleted=name)
