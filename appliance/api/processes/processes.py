"""/api/v1/processes: processes with their drafts and versions; validate, publish, pause and roll back."""

from typing import Annotated, Any, Literal

from pydantic import Field

from appliance.api.frame.routing import Answer, Body, Call, Document, Json, Query, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import AlreadyExists, Conflict, DefinitionInvalid, GrantRequired, ValidationFailed, VersionConflict
from appliance.core.pages import Page
from appliance.core.sentences import Sentence
from appliance.processes import Process, ProcessVersion
from appliance.processes.definitions import Draft, PublishRequest, versions
from appliance.processes.triggers import parse_stored_triggers, preview_due_times

DRAFT = Json("document", "`{definition, files}`, or the definition alone; JSON or YAML.")
ProcessId = Annotated[str, Field(description=(
    "Identifies the process in the tenant: a slug of at most 63 lower-case letters, digits and single hyphens."
))]
ProcessName = Annotated[str, Field(description="The name for people, as the draft has it; by default the id.")]
DraftDigest = Annotated[str, Field(description=(
    "A hash of definition and files, 64 hexadecimal digits; formatting does not change it. The ETag of the draft."
))]
PublishedVersion = Annotated[
    int | None, Field(description="The number of the version that executes. Absent while none is published.")
]
CreatedAt = Annotated[str, Field(description="When the process was created; RFC 3339, UTC.")]
UpdatedAt = Annotated[str, Field(description="When the draft was last saved; RFC 3339, UTC.")]
PausedAt = Annotated[str | None, Field(description="When the process was paused; RFC 3339, UTC. Absent while it is not paused.")]


class ProcessView(View):
    """A process with its draft."""

    id: ProcessId
    name: ProcessName
    definition: Annotated[dict[str, Any], Field(description=(
        "The definition of the draft, which may be incomplete; its JSON Schema is `/api-docs/process.schema.json`."
    ))]
    files: Annotated[dict[str, str], Field(description="The texts of the draft's files, such as `steps/push.ts`, by path.")]
    draft_digest: DraftDigest
    published_version: PublishedVersion = None
    paused_at: PausedAt = None
    created_at: CreatedAt
    updated_at: UpdatedAt


class ProcessSummary(View):
    """A process without its draft."""

    id: ProcessId
    name: ProcessName
    draft_digest: DraftDigest
    published_version: PublishedVersion = None
    paused_at: PausedAt = None
    created_at: CreatedAt
    updated_at: UpdatedAt


class VersionView(View):
    """A published, immutable version of a process."""

    version: Annotated[
        int, Field(description="The number of the version: 1 for the first, then one more each time a changed draft is published.")
    ]
    draft_digest: Annotated[
        str, Field(description="The hash of the definition and files that were published, 64 hexadecimal digits.")
    ]
    message: Annotated[str, Field(description="What the publisher said about the version; empty if nothing.")]
    created_at: Annotated[str, Field(description="When the version was first published; RFC 3339, UTC.")]
    created_by: Annotated[str, Field(description="Who published it first: `user:<id>` or `key:<id>`.")]
    definition: Annotated[
        dict[str, Any] | None, Field(description="The definition as it was published. Absent in lists and after publishing.")
    ] = None
    files: Annotated[
        dict[str, str] | None, Field(description="The texts of its files, by path. Absent in lists and after publishing.")
    ] = None


class ProblemView(View):
    """One problem of a draft."""

    pointer: Annotated[str, Field(description="The JSON pointer to the place in the definition, such as `/steps/0/code`.")]
    code: Annotated[str, Field(description="What kind of problem it is, such as `type_error` or `action_unknown`; stable.")]
    message: Annotated[str, Field(description="What is wrong and what to do next.")]
    file: Annotated[
        str | None, Field(description="The path of the file that has the problem. Absent if it is the definition.")
    ] = None
    line: Annotated[
        int | None, Field(description="The line in `file`, or in the YAML that was sent, from 1. Absent where it is not known.")
    ] = None
    column: Annotated[int | None, Field(description="The column in `file`, from 1. Absent where it is not known.")] = None
    severity: Annotated[
        Literal["error", "warning"], Field(description="An `error` prevents publishing, a `warning` does not.")
    ] = "error"


class ValidationView(View):
    """A `valid` draft has no errors and can be published; warnings are listed as well.

    `due` lists the next times of a valid draft's schedules, by trigger.
    """

    valid: Annotated[bool, Field(description="Whether the draft has no errors and could be published.")]
    problems: Annotated[list[ProblemView], Field(description="Everything that was found, errors and warnings.")]
    due: Annotated[dict[str, list[str]], Field(description=(
        "The next due times of each schedule, at most 3, by trigger id; RFC 3339, UTC. Empty for an invalid draft."
    ))]


class Publish(Body):
    """How to publish the draft."""

    message: Annotated[
        str, Field(max_length=500, description="What changed, for the list of versions; at most 500 characters.")
    ] = ""
    if_current: Annotated[int | None, Field(ge=0, le=10**9, description=(
        "Refuse with `version_conflict` unless this version is published now; 0 stands for none. Default: no such check."
    ))] = None
    tests: Annotated[
        bool, Field(description="Run the test tables of decisions first, and refuse to publish if a case fails.")
    ] = False


class RollBack(Body):
    """The version to return to."""

    version: Annotated[int, Field(ge=1, le=10**9, description="The number of the version to publish again.")]


class DeleteQuery(Query):
    force: Annotated[bool, Field(description="Delete even while executions are active; they end as cancelled.")] = False


class ValidateQuery(Query):
    tests: Annotated[bool, Field(description="Run the test tables of decisions as well; a case that fails is an error.")] = False


def read_draft(body: Document) -> Draft:
    """Parse a draft from a body in either form; ValidationFailed if the outer members are wrong."""
    data = body.data
    if "definition" not in data:
        return Draft(data, {})
    if unknown := sorted(set(data) - {"definition", "files"}):
        raise ValidationFailed(
            Sentence("%(unknown)s is not known here; the body has `definition` and `files`", unknown=repr(unknown[0][:60])),
            pointer=f"/{unknown[0]}",
        )
    if not isinstance(data["definition"], dict):
        raise ValidationFailed("`definition` must be an object", pointer="/definition")
    files = data.get("files") or {}
    if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
        raise ValidationFailed("`files` must be an object whose members are texts, by path", pointer="/files")
    return Draft(data["definition"], files)


def process_view(row: Process) -> ProcessView:
    return ProcessView(
        id=row.id, name=row.name, definition=row.definition, files=row.files, draft_digest=row.draft_digest,
        published_version=row.published_version, paused_at=clock.optional_rfc3339(row.paused_at),
        created_at=clock.rfc3339(row.created_at), updated_at=clock.rfc3339(row.updated_at),
    )  # fmt: skip


def process_summary(row: Process) -> ProcessSummary:
    return ProcessSummary(
        id=row.id, name=row.name, draft_digest=row.draft_digest, published_version=row.published_version,
        paused_at=clock.optional_rfc3339(row.paused_at), created_at=clock.rfc3339(row.created_at),
        updated_at=clock.rfc3339(row.updated_at),
    )  # fmt: skip


def version_view(row: ProcessVersion, *, with_content: bool = False) -> VersionView:
    return VersionView(
        version=row.version, draft_digest=row.draft_digest, message=row.message, created_at=clock.rfc3339(row.created_at),
        created_by=row.created_by, definition=row.definition if with_content else None, files=row.files if with_content else None,
    )  # fmt: skip


@route("GET", "/processes", scope="processflow.read", returns=ProcessSummary, listed=True)
def list_processes(call: Call) -> Page[ProcessSummary]:
    """List the tenant's processes.

    Sorted by `id`; `sort` also takes `name`, `created_at` and `updated_at`. Definitions and files are shown with the process
    itself.
    """
    return versions.list_processes(call.scope, call.query.page).map(process_summary)


@route("POST", "/processes", scope="processflow.write", body=DRAFT, returns=ProcessView, status=201, errors=(AlreadyExists,))
def create_process(call: Call) -> Answer:
    """Create a process from a draft.

    An existing process with this id is left unchanged.
    """
    draft = read_draft(call.body)
    process_id = draft.definition.get("id")
    if not isinstance(process_id, str):
        raise ValidationFailed("the definition needs an `id`, which is a text", pointer="/definition/id")
    row, _ = versions.save_draft(call.scope, process_id, draft, create_only=True)
    return Answer(process_view(row), headers={"Location": f"/api/v1/processes/{row.id}"}, etag=row.draft_digest)


@route("GET", "/processes/{process_id}", scope="processflow.read", returns=ProcessView)
def get_process(call: Call, process_id: str) -> Answer:
    """Show a process with its draft.

    The ETag is the digest of the draft, which conditional changes name.
    """
    row = versions.get_process(call.scope, process_id)
    return Answer(process_view(row), etag=row.draft_digest)


@route("PUT", "/processes/{process_id}", scope="processflow.write", body=DRAFT, returns=ProcessView, also={201: ProcessView})
def put_process(call: Call, process_id: str) -> Answer:
    """Create a process or replace its draft.

    The draft may be incomplete; `validate` and `publish` report what is missing. With If-Match, the draft must still have
    that ETag.
    """
    row, new = versions.save_draft(call.scope, process_id, read_draft(call.body), if_match=call.if_match)
    headers = {"Location": f"/api/v1/processes/{row.id}"} if new else {}
    return Answer(process_view(row), status=201 if new else 200, headers=headers, etag=row.draft_digest)


@route("DELETE", "/processes/{process_id}", scope="processflow.write", query=DeleteQuery, returns=DeletedView, errors=(Conflict,))
def delete_process(call: Call, process_id: str) -> DeletedView:
    """Delete a process with its versions and executions.

    It is refused while executions are active, unless `force` is true.
    """
    call.services.processes.delete_process(call.scope, process_id, force=call.query.force)
    return DeletedView(deleted=process_id)


@route(
    "POST", "/processes/{process_id}/validate", scope="processflow.read", returns=ValidationView, atomic=False, query=ValidateQuery,
    body=Json("document", "A draft to check; default (also for `{}`): the stored draft.", optional=True),
)  # fmt: skip
def validate_process(call: Call, process_id: str) -> ValidationView:
    """Validate a draft and list all problems.

    Each has a JSON pointer and, where known, a line. With `tests`, the test tables of its decisions run as well; a case that
    fails is an error.
    """
    row = versions.get_process(call.scope, process_id)
    body: Document = call.body
    draft = read_draft(body) if body.data else Draft(row.definition, row.files)
    prefix = "/definition" if "definition" in body.data else ""
    problems = [
        ProblemView(
            pointer=p.pointer, code=p.code, message=p.message, file=p.file, column=p.column,
            severity=p.severity, line=p.line if p.file is not None else versions.line_of(prefix + p.pointer, body.lines),
        )
        for p in call.services.processes.find_problems(call.scope, draft, tests=call.query.tests)
    ]  # fmt: skip
    valid = all(problem.severity == "warning" for problem in problems)
    forecast = preview_due_times(parse_stored_triggers(draft.definition)) if valid else {}
    due = {trigger: [clock.rfc3339(each) for each in times] for trigger, times in forecast.items()}
    return ValidationView(valid=valid, problems=problems, due=due)


@route(
    "POST", "/processes/{process_id}/publish", scope="processflow.write", body=Publish, returns=VersionView, atomic=False,
    errors=(Conflict, DefinitionInvalid, GrantRequired, VersionConflict),
)  # fmt: skip
def publish_process(call: Call, process_id: str) -> VersionView:
    """Publish the draft as the next version.

    That version then executes; an unchanged draft returns the existing version. With `tests`, the test tables of its decisions
    run first, and publishing is refused if a case fails.
    """
    body: Publish = call.body
    request = PublishRequest(body.message, body.if_current, body.tests)
    return version_view(call.services.processes.publish_process(call.scope, process_id, request))


@route(
    "POST", "/processes/{process_id}/rollback", scope="processflow.write", body=RollBack, returns=VersionView,
    errors=(DefinitionInvalid, GrantRequired),
)  # fmt: skip
def roll_back_process(call: Call, process_id: str) -> VersionView:
    """Roll back to an older version.

    That version then executes. The draft stays as it is.
    """
    return version_view(versions.roll_back(call.scope, process_id, call.body.version))


@route("POST", "/processes/{process_id}/pause", scope="processflow.execute", returns=ProcessView)
def pause_process(call: Call, process_id: str) -> ProcessView:
    """Pause a process.

    Its triggers do not fire and queued executions do not start; running executions continue. New executions are still accepted;
    they are `queued` with the wait reason `paused` until the process resumes.
    """
    return process_view(call.services.processes.pause_process(call.scope, process_id))


@route("POST", "/processes/{process_id}/resume-triggers", scope="processflow.execute", returns=ProcessView)
def resume_triggers(call: Call, process_id: str) -> ProcessView:
    """Resume a paused process.

    Queued executions start in order, and its triggers fire again.
    """
    return process_view(call.services.processes.resume_process(call.scope, process_id))


@route("GET", "/processes/{process_id}/versions", scope="processflow.read", returns=VersionView, listed=True)
def list_versions(call: Call, process_id: str) -> Page[VersionView]:
    """List the versions of a process.

    The newest come first, without definitions and files; `sort` takes `version` and `created_at`.
    """
    return versions.list_versions(call.scope, process_id, call.query.page).map(version_view)


@route(
    "GET", "/processes/{process_id}/versions/{version}", scope="processflow.read", returns=VersionView, errors=(ValidationFailed,)
)
def get_version(call: Call, process_id: str, version: str) -> VersionView:
    """Show one version with its definition and files.

    A version does not change, and is kept until the process is deleted.
    """
    return version_view(versions.get_version(call.scope, process_id, version_number(version)), with_content=True)


def version_number(version: str) -> int:
    """Parse a version number from an address."""
    if not version.isascii() or not version.isdigit() or len(version) > 9:
        raise ValidationFailed("the version must be a number", pointer="/version")
    return int(version)
