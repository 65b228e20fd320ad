"""Events of the appliance itself: changed entities and documents, ended executions, each noted in the transaction it is in."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from appliance import conditions
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import InvalidFilter
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.documents import service as documents
from appliance.processes.engine import ending
from appliance.processes.engine.failing import from_coded

from .firing import Event, Firings, Mark


class Changes:
    """Listens to what triggers can wait for."""

    def __init__(self, firings: Firings) -> None:
        self._firings = firings
        self._withdraw: list[Callable[[], None]] = []

    def start(self) -> None:
        """From now on changes are noted."""
        self._withdraw = [
            datapool.on_change(self.note_changes),
            documents.on_change(self.note_document),
            ending.on_end(self.note_end),
        ]

    def stop(self) -> None:
        while self._withdraw:
            self._withdraw.pop()()

    def note_changes(self, scope: TenantScope, changes: Sequence[datapool.Outcome]) -> None:
        """Inside the write that changes entities."""
        listening = {name: _listening(scope, "datapool", name) for name in {change.collection for change in changes}}
        depth = _depth_behind(scope) if any(listening.values()) else 0
        for change in changes:
            for mark, settings in listening[change.collection]:
                if change.event in settings["events"]:
                    self._note_change(scope, mark, change, settings.get("filter"), depth)

    def _note_change(self, scope: TenantScope, mark: Mark, change: datapool.Outcome, chosen: Any, depth: int) -> None:
        data = {"event": change.event, "collection": change.collection, "entity": change.entity}
        event = Event(f"{change.entity['id']}:{change.entity['_version']}:{change.event}", data, depth=depth)
        try:
            if chosen is not None and not datapool.fulfils(scope, change.collection, chosen, change.entity):
                return
        except InvalidFilter as error:
            self._firings.note_failure(scope, mark, event, from_coded(error).error)
            return
        self._firings.note(scope, mark, event)

    def note_document(self, scope: TenantScope, event: documents.Event, document: documents.Document) -> None:
        """Inside the write that changes a document."""
        for mark, settings in _listening(scope, "document", ""):
            if event not in settings["events"]:
                continue
            told = _document(document)
            if "filter" in settings and not _suits(settings["filter"], told):
                continue
            key = f"{document.id}:{event}" if event == "deleted" else f"{document.id}:{event}:{document.version}"
            self._firings.note(scope, mark, Event(key, {"event": event, "document": told}, depth=_depth_behind(scope)))

    def note_end(self, scope: TenantScope, ended: ending.Child) -> None:
        """Inside the write that ends an execution."""
        for mark, settings in _listening(scope, "process", ended.process_id):
            if ended.status not in settings["on"]:
                continue
            about = {"id": ended.execution_id, "process_id": ended.process_id, "status": ended.status}
            data = {"execution": {**about, "output": ended.output, "error": ended.error}}
            event = Event(ended.execution_id, data, depth=_generation(scope, ended.execution_id) + 1)
            self._firings.note(scope, mark, event)


def _listening(scope: TenantScope, kind: str, source: str) -> list[tuple[Mark, dict[str, Any]]]:
    """The triggers that wait for events of this source, of processes that are not paused."""
    found = db.rows(
        "SELECT s.process_id, s.trigger_id, s.settings FROM trigger_source t "
        "JOIN trigger_state s ON s.tenant_id = t.tenant_id AND s.process_id = t.process_id AND s.trigger_id = t.trigger_id "
        "JOIN process p ON p.tenant_id = t.tenant_id AND p.id = t.process_id "
        "WHERE t.tenant_id = ? AND t.kind = ? AND t.source = ? AND p.paused_at IS NULL ORDER BY s.process_id, s.position",
        (scope.tenant_id, kind, source),
    )
    return [(Mark(row[0], row[1], kind), json.loads(row[2])) for row in found]


def _depth_behind(scope: TenantScope) -> int:
    """One more than the execution that does this; 0 when somebody else does."""
    kind, _, actor_id = scope.actor.partition(":")
    return _generation(scope, actor_id) + 1 if kind == "execution" else 0


def _generation(scope: TenantScope, execution_id: str) -> int:
    found = db.rows("SELECT depth FROM execution WHERE tenant_id = ? AND id = ?", (scope.tenant_id, execution_id))
    return int(found[0][0]) if found else 0


def _suits(document_filter: Any, told: Mapping[str, Any]) -> bool:
    condition = conditions.bind(conditions.parse(document_filter), {"now": clock.rfc3339(clock.now_ms())})
    return conditions.matches(condition, told)


def _document(document: documents.Document) -> dict[str, Any]:
    return {
        "id": document.id, "name": document.name, "folder": document.folder, "tags": list(document.tags),
        "media_type": document.media_type, "size": document.size, "sha256": document.sha256, "revision": document.revision,
    }  # fmt: skip
