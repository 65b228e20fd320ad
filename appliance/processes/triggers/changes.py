"""Events of the appliance itself (changed entities and documents, ended executions), recorded in their transactions."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from appliance import conditions
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import InvalidFilter
from appliance.core.events import hub
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.documents import service as documents
from appliance.processes.engine import completion
from appliance.processes.engine.failures import from_appliance_error

from .firings import Event, Firings, TriggerKey


class ChangeListener:
    """Listens for the changes that can fire triggers."""

    def __init__(self, firings: Firings) -> None:
        self._firings = firings
        self._unsubscribe: list[Callable[[], None]] = []

    def start(self) -> None:
        """Subscribes to the changes."""
        self._unsubscribe = [
            hub.subscribe(datapool.EntitiesChanged, self.record_changes),
            hub.subscribe(documents.DocumentChanged, self.record_document),
            hub.subscribe(completion.ExecutionEnding, self.look_ahead),
            hub.subscribe(completion.ExecutionEnded, self.record_end),
        ]

    def stop(self) -> None:
        while self._unsubscribe:
            self._unsubscribe.pop()()

    def record_changes(self, changed: datapool.EntitiesChanged) -> None:
        """Records events for changed entities; inside the write that changes them."""
        scope, changes = changed.scope, changed.changes
        listening = {name: _find_listening(scope, "datapool", name) for name in {change.collection for change in changes}}
        depth = _depth_behind(scope) if any(listening.values()) else 0
        for change in changes:
            for mark, settings in listening[change.collection]:
                if change.event in settings["events"]:
                    self._record_change(scope, mark, change, settings.get("filter"), depth)

    def _record_change(
        self, scope: TenantScope, mark: TriggerKey, change: datapool.ChangeResult, entity_filter: Any, depth: int
    ) -> None:
        data = {"event": change.event, "collection": change.collection, "entity": change.entity}
        event = Event(f"{change.entity['id']}:{change.entity['_version']}:{change.event}", data, depth=depth)
        try:
            if entity_filter is not None and not datapool.matches_filter(scope, change.collection, entity_filter, change.entity):
                return
        except InvalidFilter as error:
            self._firings.record_failure(scope, mark, event, from_appliance_error(error).error)
            return
        self._firings.record(scope, mark, event)

    def record_document(self, changed: documents.DocumentChanged) -> None:
        """Records events for a changed document; inside the write that changes it."""
        scope, event, document = changed.scope, changed.event, changed.document
        for mark, settings in _find_listening(scope, "document", ""):
            if event not in settings["events"]:
                continue
            view = _to_view(document)
            if "filter" in settings and not _matches_filter(settings["filter"], view):
                continue
            key = f"{document.id}:{event}" if event == "deleted" else f"{document.id}:{event}:{document.version}"
            self._firings.record(scope, mark, Event(key, {"event": event, "document": view}, depth=_depth_behind(scope)))

    def look_ahead(self, ending: completion.ExecutionEnding) -> None:
        """Announces the query that `record_end` will run."""
        db.look_ahead(_LISTENING, (ending.scope.tenant_id, "process", ending.process_id))

    def record_end(self, ended: completion.ExecutionEnded) -> None:
        """Records events for an ended execution; inside the write that ends it."""
        scope, child = ended.scope, ended.execution
        for mark, settings in _find_listening(scope, "process", child.process_id):
            if child.status not in settings["on"]:
                continue
            execution = {"id": child.execution_id, "process_id": child.process_id, "status": child.status}
            data = {"execution": {**execution, "output": child.output, "error": child.error}}
            event = Event(child.execution_id, data, depth=_depth_of(scope, child.execution_id) + 1)
            self._firings.record(scope, mark, event)


_LISTENING = (
    "SELECT s.process_id, s.trigger_id, s.settings FROM trigger_source t "
    "JOIN trigger_state s ON s.tenant_id = t.tenant_id AND s.process_id = t.process_id AND s.trigger_id = t.trigger_id "
    "JOIN process p ON p.tenant_id = t.tenant_id AND p.id = t.process_id "
    "WHERE t.tenant_id = ? AND t.kind = ? AND t.source = ? AND p.paused_at IS NULL ORDER BY s.process_id, s.position"
)


def _find_listening(scope: TenantScope, kind: str, source: str) -> list[tuple[TriggerKey, dict[str, Any]]]:
    """The triggers on this source, without those of paused processes."""
    rows = db.rows(_LISTENING, (scope.tenant_id, kind, source))
    return [(TriggerKey(row[0], row[1], kind), json.loads(row[2])) for row in rows]


def _depth_behind(scope: TenantScope) -> int:
    """The depth of an event caused by the actor: one more than that of an execution, 0 for any other actor."""
    kind, _, actor_id = scope.actor.partition(":")
    return _depth_of(scope, actor_id) + 1 if kind == "execution" else 0


def _depth_of(scope: TenantScope, execution_id: str) -> int:
    rows = db.rows("SELECT depth FROM execution WHERE tenant_id = ? AND id = ?", (scope.tenant_id, execution_id))
    return int(rows[0][0]) if rows else 0


def _matches_filter(document_filter: Any, view: Mapping[str, Any]) -> bool:
    condition = conditions.bind(conditions.parse(document_filter), {"now": clock.rfc3339(clock.now_ms())})
    return conditions.matches(condition, view)


def _to_view(document: documents.Document) -> dict[str, Any]:
    return {
        "id": document.id, "name": document.name, "folder": document.folder, "tags": list(document.tags),
        "media_type": document.media_type, "size": document.size, "sha256": document.sha256, "revision": document.revision,
    }  # fmt: skip
