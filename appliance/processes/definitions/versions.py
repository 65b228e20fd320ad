"""Drafts and numbered versions of processes: save, validate, publish, roll back."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import (
    AlreadyExists,
    Conflict,
    DefinitionInvalid,
    Detail,
    NotFound,
    ValidationFailed,
    VersionConflict,
)
from appliance.core.json_schema import SchemaInvalid, compile_schema
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.processes.engine import completion
from appliance.processes.engine.failures import raise_if_unchecked
from appliance.processes.engine.store import OPEN
from appliance.processes.host import version_grants
from appliance.processes.host.authority import subject_of
from appliance.processes.host.secret_use import bind_published
from appliance.processes.models import Execution, Process, ProcessVersion
from appliance.processes.triggers.registration import register_triggers
from appliance.sandbox import Pool
from appliance.tenants.grants import delete_grants, secret_bindings

from .action_inputs import action_problems
from .compiled import build_program
from .decisions import decision_problems
from .definition import Definition, DefinitionProblems, Problem, Step, parse_definition
from .dependencies import LoadDependencies
from .nodes import BLOCK_KINDS
from .template import Expression, Template
from .type_checking import BrokenParts, Checkable, has_typescript, load_used_dependencies, type_problems, unknown_agents

__all__ = ["Problem", "Process", "ProcessVersion"]
MAX_FILES = 200
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*)*", re.ASCII)


@dataclass(frozen=True)
class Draft:
    """What a builder saves: the definition as data and its files by path.

    `source` is the YAML that the definition was parsed from, kept for its comments; empty if there is none.
    """

    definition: Mapping[str, Any]
    files: Mapping[str, str]
    source: str = ""

    def digest(self) -> str:
        """A hash of the content that does not depend on the order of members."""
        text = json.dumps([self.definition, self.files], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf8", "surrogatepass")).hexdigest()


def source_stamp(row: Process) -> str:
    """A hash of a draft including its YAML text, so that a changed comment counts as a change."""
    return hashlib.sha256(f"{row.draft_digest}\0{row.source}".encode("utf8", "surrogatepass")).hexdigest()


def is_path(text: str) -> bool:
    """Whether `text` is a valid path for a file of a draft."""
    return len(text) <= 200 and _PATH.fullmatch(text) is not None


def validate_draft(process_id: str, draft: Draft) -> None:
    """Check what even an unfinished draft must satisfy: its id, and the number and paths of its files; ValidationFailed."""
    ids.check_slug(process_id, pointer="/definition/id")
    own_id = draft.definition.get("id", process_id)
    if own_id != process_id:
        raise ValidationFailed(
            Sentence(
                "the definition's id is %(given)s, the address says %(process_id)s", given=repr(own_id), process_id=repr(process_id)
            ),
            pointer="/definition/id",
        )
    if len(draft.files) > MAX_FILES:
        raise ValidationFailed(Sentence("a process has at most %(max_files)s files", max_files=MAX_FILES), pointer="/files")
    for path in draft.files:
        if not is_path(path):
            raise ValidationFailed(
                Sentence("%(path)s is not a valid file path; use one like steps/enrich.ts", path=repr(path[:80])), pointer="/files"
            )


def save_draft(
    scope: TenantScope, process_id: str, draft: Draft, *, create_only: bool = False, if_match: str | None = None,
    if_stamp: str | None = None,
) -> tuple[Process, bool]:
    """Create or replace the draft; answers the process and whether it is new.

    AlreadyExists with `create_only`; VersionConflict if the stored draft's digest is not `if_match`, or its `source_stamp` is not
    `if_stamp`.
    """
    validate_draft(process_id, draft)
    definition = {"id": process_id, **draft.definition}
    name = str(definition.get("name") or process_id)[:200]
    now = clock.now_ms()
    values = {
        "name": name, "definition": definition, "files": dict(draft.files), "source": draft.source, "draft_digest": draft.digest(),
        "updated_at": now,
    }  # fmt: skip

    def save() -> tuple[Process, bool]:
        row = scope.find(Process, id=process_id)
        if row is not None and create_only:
            raise AlreadyExists(
                Sentence("the process %(process_id)s already exists; use PUT to replace its draft", process_id=repr(process_id)),
                pointer="/id",
            )
        is_other = if_match is not None and (row is None or row.draft_digest != if_match)
        if is_other or (if_stamp is not None and (row is None or source_stamp(row) != if_stamp)):
            raise VersionConflict("the draft has changed since you read it; read it again and repeat your change")
        if row is None:
            scope.insert(Process, id=process_id, created_at=now, **values)
        else:
            scope.update(Process, **values).where(Process.id == process_id).execute()
        if row is None or row.draft_digest != values["draft_digest"]:
            digests = {"digest": values["draft_digest"], "previous": row.draft_digest if row else None}
            audit.record(scope, "process.change" if row else "process.create", process_id, digests)
        return scope.get(Process, id=process_id), row is None

    return db.write(save)


def get_process(scope: TenantScope, process_id: str) -> Process:
    """The process with its draft; NotFound otherwise."""
    return scope.get(Process, id=process_id)


def list_names(scope: TenantScope) -> list[tuple[str, str]]:
    """(id, name) of the first hundred processes by name, for a selection list."""
    sql = "SELECT id, name FROM process WHERE tenant_id = ? ORDER BY name, id LIMIT 100"
    return [(str(id_), str(name)) for id_, name in db.rows(sql, (scope.tenant_id,))]


def list_summaries(scope: TenantScope, page: PageRequest) -> Page[Process]:
    """Processes by name, without their drafts, which may be large."""
    columns = (Process.id, Process.name, Process.published_version, Process.created_at, Process.updated_at, Process.paused_at)
    return paginate(scope.select(Process, *columns), page, {"name": Process.name, "id": Process.id}, default="name")


def list_processes(scope: TenantScope, page: PageRequest) -> Page[Process]:
    """The tenant's processes by id."""
    fields = {"id": Process.id, "name": Process.name, "created_at": Process.created_at, "updated_at": Process.updated_at}
    return paginate(scope.narrow(scope.select(Process), "process", Process.id), page, fields, default="id")


def delete_process(scope: TenantScope, process_id: str, *, force: bool = False) -> None:
    """Delete a process with its versions and executions; Conflict while executions are active, unless forced."""

    def delete() -> None:
        scope.get(Process, id=process_id)
        active = scope.select(Execution, Execution.id).where((Execution.process_id == process_id) & Execution.status.in_(OPEN))
        open_ids = [row.id for row in active]
        if open_ids and not force:
            raise Conflict("the process has active executions; cancel them first or delete with ?force=true")
        for execution_id in open_ids:  # so that parents and callers waiting for one of them are notified
            completion.close_execution(scope, completion.Child(execution_id, process_id, "cancelled"))
        scope.delete(Process).where(Process.id == process_id).execute()
        delete_grants(scope, subject_of(process_id))
        secret_bindings.delete_bindings_to(scope, process_id, "process", "webhook")
        audit.record(scope, "process.delete", process_id)

    db.write(delete)


@dataclass(frozen=True)
class CheckContext:
    """What the checks of a draft use: the sandbox, and a loader of what its types depend on.

    `thorough` always checks types, otherwise they are only checked if a step is TypeScript.  `tests` also runs the test
    tables of decisions.
    """

    pool: Pool
    load_dependencies: LoadDependencies
    check_all_types: bool = True
    run_tests: bool = False


def find_problems(context: CheckContext, tenant_id: str, draft: Draft) -> list[Problem]:
    """Every problem of a draft: structure, schemas, expressions, code, decisions, tests, types, grants and inputs of
    integrations.  Parts that depend on a broken part are only checked once that part is fixed."""
    from appliance.processes.rehearsal.rule_tests import table_problems

    problems: list[Problem] = []
    try:
        definition = parse_definition(dict(draft.definition), draft.files)
    except DefinitionProblems as error:
        if error.partial is None:
            return error.problems
        definition, problems = error.partial, error.problems
    is_partial = bool(problems)
    problems = problems + _sandbox_problems(context.pool, tenant_id, definition, draft, [each.pointer for each in problems])
    problems += table_problems(context.pool, tenant_id, draft.files, run=context.run_tests)
    problems += unknown_agents(definition, context.load_dependencies)
    dependencies = load_used_dependencies(definition, context.load_dependencies)
    problems += action_problems(definition, dependencies)
    if not (context.check_all_types or has_typescript(definition)):
        return problems
    errors = [problem for problem in problems if problem.severity == "error"]
    broken = BrokenParts({each.pointer for each in errors}, {each.file for each in errors if each.file is not None}, is_partial)
    return problems + type_problems(context.pool, tenant_id, Checkable(definition, draft.files, dependencies, broken))


def _sandbox_problems(pool: Pool, tenant_id: str, definition: Definition, draft: Draft, broken: list[str]) -> list[Problem]:
    """The problems that only the sandbox can find, without the steps whose own member is in `broken`."""
    problems = []
    if definition.input_schema is not None:
        try:
            compile_schema(definition.input_schema)
        except SchemaInvalid as error:
            problems.append(Problem("/input", "schema_invalid", f"the input's JSON Schema is not valid: {error}"))
    steps = [step for step in definition.all_steps() if not _is_broken(step, broken)]
    for expression in _expressions(definition, steps):
        failure = pool.check_expression(expression.text) if expression.path is None else None
        if failure is not None:
            column = failure.position.column if failure.position else None
            problems.append(Problem(expression.pointer, "expression_invalid", failure.message, column=column))
    for step in steps:
        problems += _step_problems(pool, tenant_id, definition, step, draft.files)
    return problems


def _is_broken(step: Step, broken: list[str]) -> bool:
    """Whether the member of the step's kind could not be parsed; steps that contain steps are always checked."""
    if step.kind in BLOCK_KINDS:
        return False
    return any(f"{pointer}/".startswith(f"{step.pointer}/{step.kind}/") for pointer in broken)


def _expressions(definition: Definition, steps: list[Step]) -> list[Expression]:
    templates: list[Template | None] = [definition.output, *(trigger.input for trigger in definition.triggers)]
    for step in steps:
        templates += [*step.option_templates, *step.templates.values(), *(t for b in step.blocks for t in (b.when, b.collect))]
    return [expression for template in templates if template is not None for expression in template.expressions]


def _step_problems(pool: Pool, tenant_id: str, definition: Definition, step: Step, files: Mapping[str, str]) -> list[Problem]:
    if step.kind == "code":
        return [
            Problem(
                f"{step.pointer}/code", failure.code or "code_invalid", failure.message,
                failure.position.file if failure.position else None,
                failure.position.line if failure.position else None,
                failure.position.column if failure.position else None,
            )
            for failure in pool.compile(build_program(tenant_id, step, files))
        ]  # fmt: skip
    if step.kind == "rule" and "decision" in step.settings:
        return decision_problems(pool, definition, step, files)
    return []


def raise_problems(problems: list[Problem], lines: Mapping[str, int] | None = None) -> None:
    """Raise DefinitionInvalid with every error, and line numbers where known; do nothing if there are only warnings.

    Overloaded if the sandbox could not check the definition: unchecked does not mean invalid.
    """
    problems = [problem for problem in problems if problem.severity == "error"]
    if not problems:
        return
    raise_if_unchecked(problem.code for problem in problems)
    details = [Detail(p.pointer, p.code, describe_problem(p, lines or {})) for p in problems]
    count = Sentence("%(problems)s problems, the first: ", problems=len(problems)) if len(problems) > 1 else ""
    raise DefinitionInvalid(
        Sentence("the definition is not valid; %(count)s%(message)s", count=count, message=details[0].message), details=details
    )


def line_of(pointer: str, lines: Mapping[str, int]) -> int | None:
    """The line of the nearest enclosing value that is known."""
    while pointer and pointer not in lines:
        pointer = pointer.rpartition("/")[0]
    return lines.get(pointer)


def describe_problem(problem: Problem, lines: Mapping[str, int]) -> str:
    """The problem's sentence, prefixed with its place."""
    if problem.file is not None:
        place = ":".join(str(part) for part in (problem.file, problem.line, problem.column) if part is not None)
        return Sentence("%(place)s: %(message)s", place=place, message=problem.message)
    line = line_of(problem.pointer, lines)
    return (
        Sentence("line %(line)s, %(pointer)s: %(message)s", line=line, pointer=problem.pointer, message=problem.message)
        if line
        else Sentence("%(pointer)s: %(message)s", pointer=problem.pointer or "/", message=problem.message)
    )


@dataclass(frozen=True)
class PublishRequest:
    """`if_current`: the published version (0 for none) that must still be current; `tests`: run its test tables first."""

    message: str = ""
    if_current: int | None = None
    tests: bool = False


def publish_process(scope: TenantScope, context: CheckContext, process_id: str, request: PublishRequest) -> ProcessVersion:
    """Publish the draft as the next version; an unchanged draft republishes and answers the existing version."""
    row = scope.get(Process, id=process_id)
    raise_problems(find_problems(context, scope.tenant_id, Draft(row.definition, row.files)))
    return db.write(lambda: publish_checked(scope, process_id, row.draft_digest, request))


def publish_checked(scope: TenantScope, process_id: str, digest: str, request: PublishRequest) -> ProcessVersion:
    """Inside a write: publish the draft with this digest, which the caller has checked for problems."""
    current = scope.get(Process, id=process_id)
    if current.draft_digest != digest:
        raise Conflict("the draft changed while it was being checked; publish again")
    if request.if_current is not None and request.if_current != (current.published_version or 0):
        raise VersionConflict(Sentence(
            "version %(published_version)s has been published in the meantime; review it before publishing",
            published_version=current.published_version or 0,
        ))
    versions = scope.select(ProcessVersion).where(ProcessVersion.process_id == process_id)
    newest: ProcessVersion | None = versions.order_by(ProcessVersion.version.desc()).first()
    if newest is not None and newest.draft_digest == current.draft_digest:
        _make_current(scope, process_id, newest.version)
        _record_publication(scope, current, newest.version)
        return newest
    number = (newest.version if newest else 0) + 1
    scope.insert(
        ProcessVersion, process_id=process_id, version=number, definition=current.definition, files=current.files,
        draft_digest=current.draft_digest, message=request.message[:500], created_at=clock.now_ms(), created_by=scope.actor,
    )  # fmt: skip
    _make_current(scope, process_id, number)
    _record_publication(scope, current, number)
    return get_version(scope, process_id, number)


def _record_publication(scope: TenantScope, before: Process, version: int) -> None:
    """Inside a write."""
    fields = {"version": version, "previous": before.published_version, "digest": before.draft_digest}
    audit.record(scope, "process.publish", before.id, fields)


def _make_current(scope: TenantScope, process_id: str, version: int) -> None:
    """Inside a write: make this the published version and register its triggers.

    GrantRequired unless the publisher has every permission it uses, or an owner has granted them.
    """
    row = get_version(scope, process_id, version)
    version_grants.require_grant(scope, row)
    register_triggers(scope, process_id, row.definition)
    bind_published(scope, process_id, row.definition, row.files)
    scope.update(Process, published_version=version).where(Process.id == process_id).execute()


def roll_back(scope: TenantScope, process_id: str, version: int) -> ProcessVersion:
    """Publish an older version again; the draft stays as it is."""

    def point() -> ProcessVersion:
        row = get_version(scope, process_id, version)
        _make_current(scope, process_id, version)
        audit.record(scope, "process.rollback", process_id, {"version": version})
        return row

    return db.write(point)


def get_version(scope: TenantScope, process_id: str, version: int) -> ProcessVersion:
    """One version; NotFound, for the process first."""
    row = scope.find(ProcessVersion, process_id=process_id, version=version)
    if row is None:
        scope.get(Process, id=process_id)
        raise NotFound(
            Sentence("the process %(process_id)s has no version %(version)s", process_id=repr(process_id), version=version)
        )
    return row


def list_versions(scope: TenantScope, process_id: str, page: PageRequest) -> Page[ProcessVersion]:
    """The versions of a process, newest first."""
    scope.get(Process, id=process_id)
    query = scope.select(ProcessVersion).where(ProcessVersion.process_id == process_id)
    fields = {"version": ProcessVersion.version, "created_at": ProcessVersion.created_at}
    return paginate(query, page, fields, default="-version", tie="version")
