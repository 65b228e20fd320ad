"""Stores agents; every change creates a numbered, immutable version."""

from dataclasses import dataclass
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, Conflict, VersionConflict
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit

from .definition import Definition, parse_definition
from .models import AgentRow, AgentRunRow, AgentVersionRow

OPEN = ("queued", "running", "waiting")


@dataclass(frozen=True)
class Agent:
    """An agent: `version` is its latest version, which new runs use.  Times are epoch milliseconds."""

    id: str
    name: str
    version: int
    digest: str
    created_at: int
    updated_at: int


@dataclass(frozen=True)
class Version:
    """One immutable version of an agent."""

    agent_id: str
    version: int
    definition: Definition
    digest: str
    created_at: int
    created_by: str


def list_agents(scope: TenantScope, page: PageRequest) -> Page[Agent]:
    """The tenant's agents, sorted by id unless the page says otherwise."""
    fields = {"id": AgentRow.id, "name": AgentRow.name, "created_at": AgentRow.created_at, "updated_at": AgentRow.updated_at}
    return paginate(scope.select(AgentRow), page, fields, default="id").map(_agent)


def get_agent(scope: TenantScope, agent_id: str) -> Agent:
    """One agent; raises NotFound."""
    return _agent(scope.get(AgentRow, id=agent_id))


def save_agent(
    scope: TenantScope, definition: Definition, *, create_only: bool = False, if_match: str | None = None
) -> tuple[Agent, bool]:
    """Create an agent, or its next version if the definition changed; returns the agent and whether it is new.

    Raises AlreadyExists with `create_only`; VersionConflict if the current digest differs from `if_match`.
    """
    now, digest = clock.now_ms(), definition.digest()

    def save() -> tuple[Agent, bool]:
        existing = scope.find(AgentRow, id=definition.id)
        if existing is not None and create_only:
            raise AlreadyExists(
                Sentence("the agent %(id)s already exists; use PUT to create its next version", id=repr(definition.id)),
                pointer="/id",
            )
        if if_match is not None and (existing is None or existing.digest != if_match):
            raise VersionConflict("the agent has changed since you read it; read it again and repeat your change")
        if existing is not None and existing.digest == digest:
            return _agent(existing), False
        version = 1 if existing is None else existing.version + 1
        values = {"name": definition.name, "version": version, "digest": digest, "updated_at": now}
        if existing is None:
            scope.insert(AgentRow, id=definition.id, created_at=now, **values)
        else:
            scope.update(AgentRow, **values).where(AgentRow.id == definition.id).execute()
        scope.insert(
            AgentVersionRow, agent_id=definition.id, version=version, definition=definition.document(), digest=digest,
            created_at=now, created_by=scope.actor,
        )  # fmt: skip
        audit.record(scope, "agent.change" if existing else "agent.create", definition.id, {"version": version, "digest": digest})
        return get_agent(scope, definition.id), existing is None

    return db.write(save)


def delete_agent(scope: TenantScope, agent_id: str) -> None:
    """Delete an agent with its versions and runs; raises NotFound, Conflict while one of its runs is not finished."""

    def delete() -> None:
        scope.get(AgentRow, id=agent_id)
        if (run_id := find_open_run(scope, agent_id)) is not None:
            raise Conflict(
                Sentence("the agent's run %(run_id)s is not finished; cancel it, or wait until it finishes", run_id=run_id)
            )
        scope.delete(AgentRow).where(AgentRow.id == agent_id).execute()
        audit.record(scope, "agent.delete", agent_id)

    db.write(delete)


def find_open_run(scope: TenantScope, agent_id: str) -> str | None:
    """The id of an unfinished run of the agent, or None."""
    running = (AgentRunRow.agent_id == agent_id) & AgentRunRow.status.in_(OPEN)
    row = scope.select(AgentRunRow, AgentRunRow.id).where(running).first()
    return None if row is None else str(row.id)


def list_versions(scope: TenantScope, agent_id: str, page: PageRequest) -> Page[Version]:
    """The versions of an agent, newest first; raises NotFound."""
    get_agent(scope, agent_id)
    query = scope.select(AgentVersionRow).where(AgentVersionRow.agent_id == agent_id)
    fields = {"version": AgentVersionRow.version, "created_at": AgentVersionRow.created_at}
    return paginate(query, page, fields, default="-version", tie="version").map(_version)


def get_version(scope: TenantScope, agent_id: str, version: int | None = None) -> Version:
    """One version, by default the latest; raises NotFound."""
    latest = get_agent(scope, agent_id).version
    return _version(scope.get(AgentVersionRow, agent_id=agent_id, version=version or latest))


def get_version_number(scope: TenantScope, agent_id: str, version: int | None = None) -> int:
    """The number of an existing version, by default the latest, without parsing its definition; raises NotFound."""
    latest = get_agent(scope, agent_id).version
    return int(scope.get(AgentVersionRow, agent_id=agent_id, version=version or latest).version)


def _agent(row: Any) -> Agent:
    return Agent(row.id, row.name, row.version, row.digest, row.created_at, row.updated_at)


def _version(row: Any) -> Version:
    definition = parse_definition(row.agent_id, row.definition)
    return Version(row.agent_id, row.version, definition, row.digest, row.created_at, row.created_by)
