"""/api/v1/skills: skills and their files."""

import base64
import binascii
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from appliance.agents.skills import LARGEST_SET, Skill, SkillFile, file_document, read_archive
from appliance.api.frame.contents import CACHE
from appliance.api.frame.errors import from_pydantic
from appliance.api.frame.fields import AS_OBJECT, AS_TEXT, TEXT_OR_OBJECT
from appliance.api.frame.routing import Acts, Answer, Body, Call, Json, Pieces, Query, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import ApiKeyLeaked, Conflict, InvalidJson, PayloadTooLarge, ValidationFailed, VersionConflict
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

    path: Annotated[str, Field(description="The path of the file in the skill, such as `references/returns.md`.")]
    sha256: Annotated[str, Field(description="The SHA-256 of the content, 64 hexadecimal digits.")]
    size: Annotated[int, Field(description="The size of the content in bytes, at most 5 MiB.")]
    kind: Annotated[Literal["text", "binary"], Field(description="Whether the content is UTF-8 text or anything else.")]


class SkillGrantView(View):
    """The latest approval by a person; it applies only while `version_digest` equals the skill's digest."""

    version_digest: Annotated[str, Field(description="The digest of the files that were approved; `sha256:…`.")]
    tools: Annotated[list[str], Field(description="The tools that were granted, some or all of those the skill requested.")]
    approved_by: Annotated[str, Field(description="The sign-in name of the person who approved it.")]
    approved_at: Annotated[str, Field(description="When it was approved; RFC 3339, UTC.")]


class SkillView(View):
    """The current state of a skill.  An untrusted skill has no granted tools, even if `grant` approved an earlier digest."""

    name: Annotated[
        str, Field(description="Identifies the skill in the tenant: at most 64 lower-case letters, digits and single hyphens.")
    ]
    description: Annotated[
        str, Field(description="What the skill does and when to use it, at most 1,024 characters; the model chooses by it.")
    ]
    version_digest: Annotated[
        str, Field(description="A hash over the paths and contents of all files; `sha256:…`. The ETag of the skill.")
    ]
    trust: Annotated[Literal["trusted", "untrusted"], Field(description="Whether a person has approved exactly this digest.")]
    requested_tools: Annotated[
        list[str], Field(description="The tools that the skill asks for in `allowed-tools` of SKILL.md, at most 64.")
    ]
    granted_tools: Annotated[
        list[str], Field(description="The requested tools that a person has granted; empty while the skill is untrusted.")
    ]
    grant: Annotated[
        SkillGrantView | None, Field(description="The latest approval, also of an earlier digest. Absent if there was none.")
    ] = None
    license: Annotated[
        str | None, Field(description="The licence that SKILL.md names, at most 500 characters. Absent if it names none.")
    ] = None
    compatibility: Annotated[str | None, Field(description=(
        "What SKILL.md says about the environment it needs, at most 500 characters. Absent if it says nothing."
    ))] = None
    metadata: Annotated[
        dict[str, str], Field(description="The `metadata` of SKILL.md: at most 64 names with texts of up to 1,024 characters.")
    ]
    bytes: Annotated[int, Field(description="The size of all files together in bytes, at most 20 MiB.")]
    created_at: Annotated[str, Field(description="When the skill was created; RFC 3339, UTC.")]
    updated_at: Annotated[str, Field(description="When its files were last replaced; RFC 3339, UTC.")]
    updated_by: Annotated[str, Field(description="Who last replaced its files, such as `user:<id>` or `key:<id>`.")]


class WholeSkillView(SkillView):
    """A skill with its instructions and the list of its files."""

    instructions: Annotated[str, Field(description="The text of SKILL.md without its front matter, in Markdown.")]
    files: Annotated[list[SkillFileView], Field(description="All files of the skill, SKILL.md included, by path; at most 200.")]


class LoadQuery(Query):
    """The call is refused when the skill's digest is no longer `expected_digest`."""

    expected_digest: Annotated[
        str | None, Field(description="The digest that the skill must have, `sha256:…`; default: any.")
    ] = None


class Base64Content(Body):
    base64: str


class NewFiles(Body):
    files: dict[str, Annotated[Annotated[str, AS_TEXT] | Annotated[Base64Content, AS_OBJECT], TEXT_OR_OBJECT]]


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
    """List the skills of the tenant.

    Sorted by `name`; `sort` also takes `created_at` and `updated_at`. Instructions and files are loaded skill by skill.
    """
    return call.services.agents.skills.list_page(call.scope, call.query.page).map(skill_view)


@route(
    "GET", "/skills/{name}", scope="skills.read", query=LoadQuery, returns=WholeSkillView, acts=Acts("load_tenant_skill"),
    errors=(VersionConflict,),
)  # fmt: skip
def get_skill(call: Call, name: str) -> Answer:
    """Load a skill.

    The answer has the instructions and the list of the files. The ETag is the skill's digest, which covers all of them.
    """
    loaded = call.services.agents.skills.load_skill(call.scope, name, expected_digest=call.query.expected_digest)
    files = [SkillFileView(**file_document(file)) for file in loaded.files]
    members = skill_view(loaded.skill).model_dump()
    return Answer(WholeSkillView(**members, instructions=loaded.instructions, files=files), etag=loaded.version_digest)


@route("GET", "/skills/{name}/files/{path}", scope="skills.read", media="*/*", acts=Acts("load_tenant_skill"))
def get_skill_file(call: Call, name: str, path: str) -> Answer:
    """Download a file of a skill.

    It is sent as an attachment that browsers do not run. `path` may contain slashes. The ETag is the file's sha256.
    """
    file, pieces = call.services.agents.skills.open_file(call.scope, name, path)
    headers = {
        "ETag": f'"{file.sha256}"', "Cache-Control": CACHE, "Content-Type": _media_type(file),
        "Content-Disposition": disposition(path.rpartition("/")[2], "attachment"),
        "Content-Security-Policy": "default-src 'none'; sandbox", "X-Content-Type-Options": "nosniff",
    }  # fmt: skip
    return Answer(Pieces(pieces, file.size), 200, headers)


def _media_type(file: SkillFile) -> str:
    return "text/plain; charset=utf-8" if file.is_text else "application/octet-stream"


@route(
    "PUT", "/skills/{name}", scope="skills.write", body=FILES, returns=SkillView, also={201: SkillView}, atomic=False,
    errors=(ApiKeyLeaked, Conflict, InvalidJson),
)  # fmt: skip
def put_skill(call: Call, name: str) -> Answer:
    """Create a skill or replace its files.

    All files are replaced in one step. Takes If-Match with the digest. The new content is untrusted until another person, signed
    in to the console, approves exactly this digest. If files are invalid, the error lists every problem.
    """
    skill, is_new = call.services.agents.skills.put_skill(call.scope, name, _read_files(call), call.if_match)
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
    """Delete a skill.

    Its versions and the grants to it are deleted as well.
    """
    call.services.agents.skills.delete_skill(call.scope, name)
    return DeletedView(deleted=name)
