"""Registers the triggers of the published version as rows; unchanged triggers keep their state."""

import hashlib
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import DefinitionInvalid, Detail, InvalidFilter, NotFound
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.processes.definitions.nodes import Problem, Trigger
from appliance.processes.definitions.reader import Reader
from appliance.tenants import service as tenants
from appliance.tenants.grants import SCOPE, SecretDestination, find_unbound

from .cron import Cron
from .kinds import parse_triggers
from .models import TriggerState

_ADD_IT = "have an owner or a builder publish it, or add the destination in the console (Secrets)"


def parse_stored_triggers(definition: Any) -> tuple[Trigger, ...]:
    """The triggers of a stored definition."""
    return parse_triggers(Reader({}), definition.get("triggers"))


def register_triggers(scope: TenantScope, process_id: str, definition: Any) -> None:
    """Activates the triggers of a version, inside the write that publishes it; raises DefinitionInvalid for a path in use."""
    triggers = parse_stored_triggers(definition)
    problems = find_path_conflicts(scope, process_id, triggers)
    if problems:
        raise DefinitionInvalid(problems[0].message, details=[Detail(each.pointer, each.code, each.message) for each in problems])
    rows = {row.trigger_id: row for row in scope.select(TriggerState).where(TriggerState.process_id == process_id)}
    db.execute("DELETE FROM trigger_source WHERE tenant_id = ? AND process_id = ?", (scope.tenant_id, process_id))
    for position, trigger in enumerate(triggers):
        _register(scope, process_id, position, trigger, rows.pop(trigger.id, None))
    for removed_id in rows:
        mine = (TriggerState.process_id == process_id) & (TriggerState.trigger_id == removed_id)
        scope.delete(TriggerState).where(mine).execute()


def _register(scope: TenantScope, process_id: str, position: int, trigger: Trigger, row: TriggerState | None) -> None:
    now = clock.now_ms()
    digest = hashlib.sha256(db.dump_json([trigger.kind, trigger.settings, trigger.sources]).encode()).hexdigest()
    mine = (TriggerState.process_id == process_id) & (TriggerState.trigger_id == trigger.id)
    if row is not None and row.digest == digest:
        scope.update(TriggerState, position=position).where(mine).execute()
    else:
        scope.delete(TriggerState).where(mine).execute()
        scope.insert(
            TriggerState, process_id=process_id, trigger_id=trigger.id, position=position, kind=trigger.kind,
            settings=trigger.settings, digest=digest, next_due=_first_due(trigger, now), failed_in_row=0, created_at=now,
        )  # fmt: skip
    for source in trigger.sources:
        db.execute(
            "INSERT INTO trigger_source (tenant_id, kind, source, process_id, trigger_id) VALUES (?, ?, ?, ?, ?)",
            (scope.tenant_id, trigger.kind, source, process_id, trigger.id),
        )


def _first_due(trigger: Trigger, now: int) -> int | None:
    if trigger.kind == "schedule":
        return Cron(trigger.settings["cron"], trigger.settings["timezone"]).next_after(now)
    return now if trigger.kind == "integration" else None


def find_tenant_problems(scope: TenantScope, definition: Any) -> list[Problem]:
    """Problems of a valid draft's triggers with the rest of the tenant: paths in use, missing secrets and collections."""
    reader = Reader({})
    triggers = parse_triggers(reader, definition.get("triggers"))
    if reader.problems:
        return []
    problems = find_path_conflicts(scope, str(definition.get("id", "")), triggers)
    for trigger in triggers:
        at = f"{trigger.pointer}/{trigger.kind}"
        secret = trigger.settings.get("verify", {}).get("secret")
        if secret and secret not in {stored.name for stored in tenants.list_secrets(scope)}:
            message = f"the secret {secret!r} is not set yet, so every request is refused: gos secret set {secret}"
            problems.append(Problem(f"{at}/verify/secret", "secret_missing", message, severity="warning"))
        elif secret and _lacks_binding(scope, secret, str(definition.get("id", ""))):
            message = f"the secret {secret!r} is not for webhooks of this process, so every request is refused: {_ADD_IT}"
            problems.append(Problem(f"{at}/verify/secret", "secret_not_bound", message, severity="warning"))
        if trigger.kind == "datapool":
            problems += _find_collection_problems(scope, trigger, at)
    return problems


def _lacks_binding(scope: TenantScope, secret: str, process_id: str) -> bool:
    """Whether the secret is not bound to the webhooks of the process and the actor may not bind it either."""
    return SCOPE not in scope.scopes and bool(find_unbound(scope, [secret], SecretDestination("webhook", process_id)))


def _find_collection_problems(scope: TenantScope, trigger: Trigger, at: str) -> list[Problem]:
    collection = trigger.settings["collection"]
    try:
        datapool.check_filter(scope, collection, trigger.settings.get("filter", {}), f"{at}/filter")
    except NotFound:
        message = f"there is no collection {collection!r} yet; the trigger fires only once there is"
        return [Problem(f"{at}/collection", "not_found", message, severity="warning")]
    except InvalidFilter as error:
        return [Problem(each.pointer, each.code, each.message) for each in error.details]
    return []


def find_path_conflicts(scope: TenantScope, process_id: str, triggers: tuple[Trigger, ...]) -> list[Problem]:
    """A problem for every webhook path that another process of the tenant uses."""
    problems = []
    for trigger in triggers:
        for path in trigger.sources if trigger.kind == "webhook" else ():
            rows = db.rows(
                "SELECT process_id FROM trigger_source WHERE tenant_id = ? AND kind = 'webhook' AND source = ? AND process_id <> ?",
                (scope.tenant_id, path, process_id),
            )
            if rows:
                message = f"the path {path!r} belongs to the process {rows[0][0]!r}; choose another"
                problems.append(Problem(f"{trigger.pointer}/webhook/path", "path_taken", message))
    return problems
