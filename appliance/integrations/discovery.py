"""Discovered actions of integrations: stored as rows, loaded one at a time, searched by words."""

import hashlib
import json
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from appliance.connectors.contract import Action, Effect, TransientError
from appliance.connectors.registry import Installed
from appliance.core import clock
from appliance.core.database import db
from appliance.core.pages import Page, PageRequest, check_limit, decode_cursor, encode_cursor
from appliance.core.scope import TenantScope
from appliance.integrations.models import ActionRow, DiscoveryRow, IntegrationRow
from appliance.monitor import audit

_INSERT = (
    "INSERT INTO integration_action (tenant_id, integration_id, name, summary, effect, packed, withheld) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_ORDER = "action"


@dataclass(frozen=True)
class ActionSummary:
    """An action as shown in a list."""

    name: str
    summary: str
    effect: Effect


def basis_of(installed: Installed, settings: Mapping[str, Any]) -> str:
    """The digest a discovery depends on: the connector's release and the stored settings, with markers instead of secrets."""
    connector = installed.connector
    return hashlib.sha256(f"{connector.name} {connector.version}\0{db.dump_json(settings)}".encode()).hexdigest()


class StoredActions(Mapping[str, Action]):
    """The actions of an integration: declared ones, and stored ones, which are loaded on access.

    A withheld action can be loaded by its name, to see the reason, but is not listed.
    """

    def __init__(self, scope: TenantScope, slug: str, declared: Mapping[str, Action]) -> None:
        self._scope, self._slug, self._declared = scope, slug, declared

    def __getitem__(self, name: str) -> Action:
        if name in self._declared:
            return self._declared[name]
        row = self._scope.find(ActionRow, integration_id=self._slug, name=name)
        if row is None:
            raise KeyError(name)
        return _unpack(row)

    def __iter__(self) -> Iterator[str]:
        return iter(self._summaries)

    def __len__(self) -> int:
        return len(self._summaries)

    def __contains__(self, name: object) -> bool:
        return name in self._summaries

    def summaries(self) -> Sequence[ActionSummary]:
        """Every action by name, without its schemas."""
        return list(self._summaries.values())

    @cached_property
    def _summaries(self) -> dict[str, ActionSummary]:
        rows = self._scope.select(ActionRow, ActionRow.name, ActionRow.summary, ActionRow.effect)
        stored = rows.where((ActionRow.integration_id == self._slug) & (ActionRow.withheld == "")).order_by(ActionRow.name).tuples()
        listed = [*(ActionSummary(*each) for each in stored), *map(_summarize, self._declared.values())]
        return {each.name: each for each in sorted(listed, key=lambda each: each.name)}


def is_current(scope: TenantScope, slug: str, basis: str) -> bool:
    """Whether the stored actions were discovered with these settings and this release of the connector."""
    row = scope.find(DiscoveryRow, integration_id=slug)
    return row is not None and row.basis == basis


def has_discovery(scope: TenantScope, slug: str) -> bool:
    """Whether any actions were ever discovered, with whatever settings."""
    return scope.find(DiscoveryRow, integration_id=slug) is not None


def store_actions(scope: TenantScope, slug: str, installed: Installed, basis: str, actions: Sequence[Action]) -> None:
    """Replace the stored actions in one transaction; TransientError if the settings have changed since."""
    packed = [(scope.tenant_id, slug, each.name, each.summary, each.effect, _pack(each), each.withheld) for each in actions]
    digest = hashlib.sha256(repr([row[2:] for row in sorted(packed)]).encode()).hexdigest()
    values = {"basis": basis, "digest": digest, "discovered_at": clock.now_ms()}

    def store() -> None:
        row = scope.find(IntegrationRow, id=slug)
        if row is None or basis_of(installed, row.settings) != basis:
            raise TransientError(f"The settings of {slug} changed while its actions were discovered; try again.")
        existing = scope.find(DiscoveryRow, integration_id=slug)
        if existing is None:
            scope.insert(DiscoveryRow, integration_id=slug, **values)
        else:
            scope.update(DiscoveryRow, **values).where(DiscoveryRow.integration_id == slug).execute()
        if existing is None or existing.digest != digest:
            scope.delete(ActionRow).where(ActionRow.integration_id == slug).execute()
            for each in packed:
                db.execute(_INSERT, each)

    db.write(store)


def withhold(scope: TenantScope, slug: str, name: str, reason: str) -> None:
    """Inside a write: stop offering an action until the next discovery; the audit trail records the reason."""
    rows = scope.update(ActionRow, withheld=reason).where((ActionRow.integration_id == slug) & (ActionRow.name == name))
    if rows.execute():
        # Clear the digest, so that the next discovery is stored even if it equals the last one.
        scope.update(DiscoveryRow, digest="").where(DiscoveryRow.integration_id == slug).execute()
        audit.record(scope, "integration.withhold", f"{slug}/{name}", {"reason": reason})


def search(actions: Mapping[str, Action], words: str, page: PageRequest) -> Page[ActionSummary]:
    """The actions whose name and summary together contain every word, by name; other sort orders are not available."""
    check_limit(page)
    terms = words.lower().split()
    listed = actions.summaries() if isinstance(actions, StoredActions) else [_summarize(actions[name]) for name in sorted(actions)]
    matches = [each for each in listed if _matches(each, terms)]
    total = len(matches) if page.count else None
    if page.cursor:
        after = decode_cursor(page.cursor, _ORDER, 1)[0]
        matches = [each for each in matches if each.name > str(after)]
    more = len(matches) > page.limit
    return Page(matches[: page.limit], encode_cursor([matches[page.limit - 1].name], _ORDER) if more else None, total)


def _matches(listed: ActionSummary, terms: Sequence[str]) -> bool:
    text = f"{listed.name} {listed.summary}".lower()
    return all(word in text for word in terms)


def _summarize(action: Action) -> ActionSummary:
    return ActionSummary(action.name, action.summary, action.effect)


def _pack(action: Action) -> bytes:
    """The parts a list does not need, compressed: a thousand actions share most of their words."""
    parts = {"input": action.input, "output": action.output, "sample": action.sample, "plan": action.plan}
    return zlib.compress(db.dump_json(parts).encode(), 6)


def _unpack(row: ActionRow) -> Action:
    parts = json.loads(zlib.decompress(bytes(row.packed)))
    return Action(
        name=row.name, summary=row.summary, input=parts["input"], output=parts["output"], effect=row.effect,
        sample=parts["sample"], plan=parts["plan"], withheld=row.withheld,
    )  # fmt: skip


class DiscoveryLocks:
    """Allows one discovery per integration at a time in this process; whoever waited finds it done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, str], tuple[threading.Lock, int]] = {}

    @contextmanager
    def acquire(self, key: tuple[str, str], seconds: float) -> Iterator[None]:
        """Wait for the lock; TransientError after `seconds`."""
        with self._lock:
            lock, users = self._locks.get(key, (threading.Lock(), 0))
            self._locks[key] = (lock, users + 1)
        try:
            if not lock.acquire(timeout=seconds):
                raise TransientError(f"The actions of {key[1]} are still being discovered; try again later.")
            try:
                yield
            finally:
                lock.release()
        finally:
            with self._lock:
                lock, users = self._locks[key]
                if users > 1:
                    self._locks[key] = (lock, users - 1)
                else:
                    del self._locks[key]
