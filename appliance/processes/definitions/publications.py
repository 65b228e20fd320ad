"""Published versions: who published them, because they keep running when a member leaves, and which contain a text."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.processes.engine.store import OPEN
from appliance.processes.host import version_grants
from appliance.processes.host.authority import subject_of
from appliance.processes.models import Process, ProcessVersion
from appliance.processes.triggers.models import TriggerState
from appliance.tenants.grants import grants


@dataclass(frozen=True)
class Publication:
    """The published version of a process.

    `triggers` are `kind id`, or `kind` alone; `unfinished` counts unfinished executions; `granted_by` is who granted what it
    may access, empty if no grant was needed.
    """

    process_id: str
    name: str
    version: int
    published_by: str
    granted_by: str
    triggers: tuple[str, ...]
    is_paused: bool
    unfinished: int


@dataclass(frozen=True)
class PublishedInput:
    """A published process and the JSON Schema of its input, if it has one."""

    process_id: str
    name: str
    schema: Mapping[str, Any] | None


def list_published_inputs(scope: TenantScope, most: int) -> list[PublishedInput]:
    """The first `most` published processes by name."""
    rows = db.rows(
        "SELECT process.id, process.name, process_version.definition FROM process JOIN process_version "
        "ON process_version.tenant_id = process.tenant_id AND process_version.process_id = process.id "
        "AND process_version.version = process.published_version WHERE process.tenant_id = ? "
        "ORDER BY process.name, process.id LIMIT ?", (scope.tenant_id, most),
    )  # fmt: skip
    return [PublishedInput(str(id_), str(name), json.loads(definition).get("input")) for id_, name, definition in rows]


def list_publications(scope: TenantScope) -> list[Publication]:
    """Every published version of the tenant, by process."""
    published = scope.select(Process, Process.id, Process.name, Process.published_version, Process.paused_at)
    processes = list(published.where(Process.published_version.is_null(False)).order_by(Process.id))
    fields = (ProcessVersion.process_id, ProcessVersion.version, ProcessVersion.created_by, ProcessVersion.grant_digest)
    versions = {(row.process_id, row.version): row for row in scope.select(ProcessVersion, *fields)}
    triggers: dict[str, list[str]] = {}
    for row in scope.select(TriggerState, TriggerState.process_id, TriggerState.kind, TriggerState.trigger_id):
        triggers.setdefault(row.process_id, []).append(_trigger_name(row.kind, row.trigger_id))
    granted, unfinished = grants.list_valid(scope), _count_unfinished(scope)
    publications = []
    for row in processes:
        version = versions[row.id, row.published_version]
        grant = granted.get((subject_of(row.id), version.grant_digest))
        publication = Publication(
            process_id=row.id, name=row.name, version=version.version, published_by=version.created_by,
            granted_by=grant.granted_by if grant else "", triggers=tuple(sorted(triggers.get(row.id, ()))),
            is_paused=row.paused_at is not None, unfinished=unfinished.get(row.id, 0),
        )  # fmt: skip
        publications.append(publication)
    return publications


def _trigger_name(kind: str, trigger_id: str) -> str:
    """`kind id`; a trigger without an id of its own is named by its kind alone."""
    return kind if trigger_id == kind else f"{kind} {trigger_id}"


def _count_unfinished(scope: TenantScope) -> dict[str, int]:
    """The number of unfinished executions by process."""
    # One query per status, because the index on the status is not used for a list of them.
    unfinished = " UNION ALL ".join(f"SELECT process_id FROM execution WHERE tenant_id = ? AND status = '{each}'" for each in OPEN)  # noqa: S608
    sql = f"SELECT process_id, count(*) FROM ({unfinished}) AS unfinished GROUP BY process_id"  # noqa: S608  our own words
    return {str(process_id): int(count) for process_id, count in db.rows(sql, (scope.tenant_id,) * len(OPEN))}


def adopt_publication(scope: TenantScope, process_id: str) -> None:
    """Inside a write: take over the published version of a process and record its grant anew; see `version_grants.adopt`."""
    row = scope.get(Process, id=process_id)
    version_grants.adopt(scope, process_id, row.published_version)
    audit.record(scope, "process.adopt", process_id, {"version": row.published_version})


def list_published_mentions(scope: TenantScope, text: str) -> list[tuple[str, Any, dict[str, str]]]:
    """(process, definition, files) of every published version whose definition contains this text; the case may differ.

    Like `list_mentions`, so that not every process has to be parsed.
    """
    rows = db.rows(
        "SELECT process.id, process_version.definition, process_version.files FROM process "
        "JOIN process_version ON process_version.tenant_id = process.tenant_id AND process_version.process_id = process.id "
        "AND process_version.version = process.published_version "
        "WHERE process.tenant_id = ? AND process_version.definition LIKE ? ORDER BY process.id",
        (scope.tenant_id, f"%{text}%"),
    )
    return [(str(process_id), json.loads(definition), json.loads(files)) for process_id, definition, files in rows]


_MENTIONS = """
SELECT id, name, definition FROM process WHERE tenant_id = ? AND definition LIKE ?
UNION ALL
SELECT process.id, process.name, process_version.definition FROM process
JOIN process_version ON process_version.tenant_id = process.tenant_id AND process_version.process_id = process.id
AND process_version.version = process.published_version
WHERE process.tenant_id = ? AND process_version.definition LIKE ?
ORDER BY 1
"""


def list_mentions(scope: TenantScope, slug: str) -> list[tuple[str, str, Any]]:
    """(id, name, definition) of the drafts and published versions whose text contains this slug, by process.

    A text search, so that not every process has to be parsed; the caller decides whether the match is a reference.
    """
    rows = db.rows(_MENTIONS, (scope.tenant_id, f"%{slug}%") * 2)
    return [(str(process_id), str(name), json.loads(definition)) for process_id, name, definition in rows]
