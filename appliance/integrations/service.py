"""Manages integrations: settings with sealed secrets, tests, and discovered actions."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from appliance.connectors.contract import Action, AddressNotAllowed, ConnectorError
from appliance.connectors.registry import Installed, Registry
from appliance.core import clock, ids, logs
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import (
    AlreadyExists,
    Conflict,
    ConnectorFailed,
    Detail,
    NotFound,
    ValidationFailed,
    VersionConflict,
)
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.integrations import audit_changes, discovery, gate
from appliance.integrations.calls import Calls
from appliance.integrations.connections import OpenedIntegration
from appliance.integrations.destinations import destination_of
from appliance.integrations.discovery import ActionSummary, DiscoveryLocks, StoredActions
from appliance.integrations.gate import MAX_CONCURRENCY, Health
from appliance.integrations.models import CallRow, IntegrationRow
from appliance.integrations.sealed_settings import OpenSecret, SealedSettings, SecretUse
from appliance.integrations.settings import ExtractedSecrets, OpenedSettings, Sealed, extract_secrets, to_view
from appliance.integrations.spec import Check, Integration, IntegrationSpec
from appliance.monitor import audit
from appliance.tenants.grants import SecretDestination, secret_bindings

DISCOVERY_SECONDS = 60.0


class Integrations:
    """Operations on integrations.

    `load` returns the installed connectors when they are first needed together, `load_one` one of them before that: all take half
    a second and 20 MB.  `open_secret` returns a tenant's secret by name, NotFound if it is not set.
    """

    def __init__(
        self,
        load: Callable[[], Registry],
        sealer: Sealer,
        open_secret: OpenSecret,
        calls: Calls,
        load_one: Callable[[str], Installed | None] = lambda name: None,
    ) -> None:
        self._load, self._load_one = load, load_one
        self._loaded: dict[str, Installed] = {}
        self.sealer = sealer
        self.calls = calls
        self._sealed = SealedSettings(sealer, open_secret)
        self._discovery_locks = DiscoveryLocks()

    # -- catalogue

    @cached_property
    def registry(self) -> Registry:
        """The installed connectors."""
        return self._load()

    def find_connector(self, name: str) -> Installed | None:
        """The connector of that name; None when it is not installed or not usable."""
        if "registry" not in vars(self):
            installed = self._loaded.get(name) or self._load_one(name)
            if installed is not None:
                return self._loaded.setdefault(name, installed)
        return self.registry.find(name)

    def get_connector(self, name: str) -> Installed:
        """An installed connector; NotFound."""
        installed = self.find_connector(name)
        if installed is None:
            raise NotFound(Sentence(
                "there is no connector %(name)s; GET /connectors lists what is installed", name=repr(name[:80])
            ))
        return installed

    # -- integrations

    def list_integrations(self, scope: TenantScope, page: PageRequest) -> Page[Integration]:
        """The tenant's integrations, by slug unless sorted otherwise."""
        fields = {"id": IntegrationRow.id, "created_at": IntegrationRow.created_at, "name": IntegrationRow.name}
        result = paginate(scope.narrow(scope.select(IntegrationRow), "integration", IntegrationRow.id), page, fields, default="id")
        return result.map(lambda row: self._view(scope, row))

    def get_integration(self, scope: TenantScope, slug: str) -> Integration:
        """One integration; NotFound."""
        return self._view(scope, scope.get(IntegrationRow, id=slug))

    def health(self, scope: TenantScope, slug: str) -> Health:
        """The state of the integration's foreign system: its circuit and rate limit."""
        return gate.health(scope, slug)

    def find_actions(self, scope: TenantScope, slug: str) -> Mapping[str, Action] | None:
        """The actions of an integration, with the latest discovered ones.

        None if they are unknown: there is no such integration, its connector is missing, or nothing was discovered yet.
        """
        row = scope.find(IntegrationRow, id=slug)
        installed = self.find_connector(row.connector) if row is not None else None
        if installed is None or not installed.discovers:
            return installed.actions if installed is not None else None
        return StoredActions(scope, slug, installed.actions) if discovery.has_discovery(scope, slug) else None

    def search_actions(self, scope: TenantScope, slug: str, words: str, page: PageRequest) -> Page[ActionSummary]:
        """The integration's actions whose name and summary contain every word; NotFound (integration)."""
        return discovery.search(self._actions_of(scope, slug), words, page)

    def get_action(self, scope: TenantScope, slug: str, name: str) -> Action:
        """One action of an integration with its schemas; NotFound."""
        action = self._actions_of(scope, slug).get(name)
        if action is None:
            raise NotFound(Sentence(
                "%(slug)s has no action %(name)s; GET /api/v1/integrations/%(slug)s/actions lists them",
                slug=slug, name=repr(name[:80]),
            ))
        return action

    def destination(self, scope: TenantScope, slug: str) -> SecretDestination:
        """Where the integration sends its secrets; NotFound, also if its connector is missing."""
        row = scope.get(IntegrationRow, id=slug)
        return destination_of(self.get_connector(row.connector), slug, row.settings)

    def _actions_of(self, scope: TenantScope, slug: str) -> Mapping[str, Action]:
        installed = self.get_connector(scope.get(IntegrationRow, id=slug).connector)
        return StoredActions(scope, slug, installed.actions) if installed.discovers else installed.actions

    def create_integration(self, scope: TenantScope, slug: str, spec: IntegrationSpec) -> Integration:
        """Create an integration.  ValidationFailed lists every error in the settings; AlreadyExists."""
        ids.check_slug(slug, pointer="/slug")
        values, use = self._to_columns(scope, slug, spec, {})
        now = clock.now_ms()

        def insert() -> Integration:
            if scope.find(IntegrationRow, id=slug) is not None:
                raise AlreadyExists(Sentence("there is already an integration %(slug)s", slug=repr(slug)), pointer="/slug")
            scope.insert(IntegrationRow, id=slug, version=1, created_at=now, updated_at=now, **values)
            use.bind(scope)
            audit_changes.record_change(scope, "create", slug, {}, self._audit_view(scope, slug, values))
            return self.get_integration(scope, slug)

        return db.write(insert)

    def replace_integration(
        self, scope: TenantScope, slug: str, spec: IntegrationSpec, *, if_version: int | None = None
    ) -> Integration:
        """Replace an integration's settings; markers keep their secrets.  VersionConflict if it has changed.

        Without changes the version stays the same.
        """

        def update() -> Integration:
            row = scope.get(IntegrationRow, id=slug)
            if if_version is not None and row.version != if_version:
                raise VersionConflict(Sentence(
                    "the integration %(slug)s is at version %(version)s; read it and decide again",
                    slug=slug, version=row.version,
                ))
            values, use = self._to_columns(scope, slug, spec, self._surviving_secrets(scope, row, spec))
            use.bind(scope)
            if self._is_same(scope, row, values):
                return self.get_integration(scope, slug)
            changed = {"version": row.version + 1, "updated_at": clock.now_ms(), "checked_at": None, **values}
            scope.update(IntegrationRow, **changed).where(IntegrationRow.id == slug).execute()
            audit_changes.record_change(
                scope, "change", slug, self._audit_view(scope, slug, row.__data__), self._audit_view(scope, slug, values)
            )
            gate.reset_circuit(scope, slug)
            return self.get_integration(scope, slug)

        return db.write(update)

    def save_integration(self, scope: TenantScope, slug: str, spec: IntegrationSpec) -> tuple[Integration, bool]:
        """Inside a write: create or replace an integration; the flag says whether it is new."""
        if scope.find(IntegrationRow, id=slug) is None:
            return self.create_integration(scope, slug, spec), True
        return self.replace_integration(scope, slug, spec), False

    def delete_integration(self, scope: TenantScope, slug: str) -> None:
        """Delete an integration with its call records; Conflict while one of them waits to be settled."""

        def delete() -> None:
            row = scope.get(IntegrationRow, id=slug)
            if waiting := scope.find(CallRow, integration_id=slug, status="waiting"):
                raise Conflict(Sentence(
                    "the outcome of the call %(id)s is unknown; settle it before you delete %(slug)s", id=waiting.id, slug=slug
                ))
            scope.delete(IntegrationRow).where(IntegrationRow.id == slug).execute()
            secret_bindings.delete_bindings_to(scope, slug, "integration")
            audit_changes.record_change(scope, "delete", slug, {"connector": row.connector}, {})

        db.write(delete)

    def test_integration(self, scope: TenantScope, slug: str) -> Check:
        """Test the settings against the foreign system, and store the result."""
        ready = self.ready(scope, slug)
        now = clock.now_ms()
        try:
            message = self.calls.check(ready)
            if ready.installed.discovers:
                self.discover(scope, ready, DISCOVERY_SECONDS, again=True)
                message = f"{message} It offers {len(self.actions_of(scope, ready))} actions."
            check = Check(now, True, message)
        except ConnectorError as error:
            check = Check(now, False, error.message, _class_of(error))
        changes = {"checked_at": now, "check_ok": int(check.ok), "check_message": check.message[:2000]}

        def keep() -> None:
            is_tested = (IntegrationRow.id == slug) & (IntegrationRow.version == ready.version)
            if scope.update(IntegrationRow, **changes).where(is_tested).execute() and check.ok:
                gate.reset_circuit(scope, slug)

        db.write(keep)
        return check

    def try_settings(self, scope: TenantScope, spec: IntegrationSpec, slug: str | None = None) -> Check:
        """Test unsaved settings against the foreign system; nothing is stored.

        With `slug`, markers refer to that integration's secrets.  NotFound; ValidationFailed as `create_integration`;
        ConnectorFailed if a secret they refer to is not set.
        """
        ready = self._ready_on_trial(scope, spec, slug)
        try:
            return Check(clock.now_ms(), True, self.calls.check(ready))
        except ConnectorError as error:
            return Check(clock.now_ms(), False, error.message, _class_of(error))

    def _ready_on_trial(self, scope: TenantScope, spec: IntegrationSpec, slug: str | None) -> OpenedIntegration:
        stored_secrets = self._surviving_secrets(scope, scope.get(IntegrationRow, id=slug), spec) if slug else {}
        label = slug or spec.connector
        installed, _, opened, _ = self._validate(scope, slug or "", spec, stored_secrets)
        _refuse_unresolved(label, opened)
        for secret in opened.secrets:
            logs.remember_secret(secret)
        return OpenedIntegration(scope.tenant_id, label, installed, opened.settings, tuple(opened.secrets), is_trial=True)

    def close_circuit(self, scope: TenantScope, slug: str) -> None:
        """Reset the circuit, so that the foreign system is called again immediately; NotFound."""

        def close() -> None:
            scope.get(IntegrationRow, id=slug)
            gate.reset_circuit(scope, slug)
            audit.record(scope, "integration.close-circuit", slug)

        db.write(close)

    # -- for calls

    def ready(self, scope: TenantScope, slug: str, hidden: tuple[str, ...] = ()) -> OpenedIntegration:
        """The integration with its settings opened; `hidden` are further texts to redact.

        NotFound; ConnectorFailed (`config_error`) if its connector is missing or a secret it refers to is not set.
        """
        row = scope.get(IntegrationRow, id=slug)
        installed = self.find_connector(row.connector)
        if installed is None:
            raise _not_ready(Sentence(
                "the connector %(connector)s of %(slug)s is not installed; install it again",
                connector=repr(row.connector), slug=slug,
            ))
        self._sealed.check_destinations(scope, installed, slug, row.settings)
        opened = self._sealed.open(scope, row.settings, self._sealed.read(scope, slug, row.sealed))
        _refuse_unresolved(slug, opened)
        problems = installed.settings.problems(opened.settings, under="/settings", namespace=scope.tenant_id)
        if problems:
            raise _not_ready(
                Sentence(
                    "the settings of %(slug)s are not valid for %(name)s: %(message)s",
                    slug=slug, name=installed.name, message=problems[0].message,
                ),
                problems[0].pointer,
            )
        for secret in opened.secrets:
            logs.remember_secret(secret)
        basis = discovery.basis_of(installed, row.settings) if installed.discovers else ""
        return OpenedIntegration(
            tenant_id=scope.tenant_id, slug=slug, installed=installed, settings=opened.settings,
            secrets=(*opened.secrets, *hidden), basis=basis, concurrency=row.concurrency, version=row.version,
        )

    def must_discover(self, scope: TenantScope, ready: OpenedIntegration) -> bool:
        """Whether the actions of `ready` are unknown, or were discovered with other settings."""
        return ready.installed.discovers and not discovery.is_current(scope, ready.slug, ready.basis)

    def discover(self, scope: TenantScope, ready: OpenedIntegration, seconds: float, *, again: bool = False) -> None:
        """Discover the foreign system's actions and store them; ConnectorError.  Skipped if they are current, unless `again`."""
        ends = clock.monotonic() + seconds
        with self._discovery_locks.acquire((scope.tenant_id, ready.slug), seconds):
            if again or self.must_discover(scope, ready):
                actions = self.calls.discover(ready, ends - clock.monotonic())
                discovery.store_actions(scope, ready.slug, ready.installed, ready.basis, actions)

    def actions_of(self, scope: TenantScope, ready: OpenedIntegration) -> Mapping[str, Action]:
        """The actions of `ready` that can be called."""
        declared = ready.installed.actions
        return StoredActions(scope, ready.slug, declared) if ready.installed.discovers else declared

    # -- storage

    def _surviving_secrets(self, scope: TenantScope, row: IntegrationRow, spec: IntegrationSpec) -> dict[str, Sealed]:
        return self._sealed.surviving_secrets(scope, row, self.find_connector(spec.connector), spec.settings)

    def _is_same(self, scope: TenantScope, row: IntegrationRow, values: Mapping[str, Any]) -> bool:
        if any(getattr(row, name) != values[name] for name in ("name", "connector", "settings", "concurrency")):
            return False
        old, new = (self._sealed.values(scope, row.id, sealed) for sealed in (row.sealed, values["sealed"]))
        return old == new

    def _audit_view(self, scope: TenantScope, slug: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The properties of a stored integration that `audit_changes.record_change` compares."""
        secrets = self._sealed.values(scope, slug, values["sealed"])
        return {"connector": values["connector"], "settings": values["settings"], "secrets": secrets}

    def _to_columns(
        self, scope: TenantScope, slug: str, spec: IntegrationSpec, stored_secrets: Mapping[str, Sealed]
    ) -> tuple[dict[str, Any], SecretUse]:
        """Column values for `spec`, and its secret bindings; ValidationFailed with every error in the settings, ScopeMissing."""
        _, extracted, _, use = self._validate(scope, slug, spec, stored_secrets)
        values = {
            "name": spec.name or slug,
            "connector": spec.connector,
            "settings": extracted.settings,
            "concurrency": spec.concurrency,
            "sealed": self._sealed.seal(scope, slug, extracted),
        }
        return values, use

    def _validate(
        self, scope: TenantScope, slug: str, spec: IntegrationSpec, stored_secrets: Mapping[str, Sealed]
    ) -> tuple[Installed, ExtractedSecrets, OpenedSettings, SecretUse]:
        """The connector of `spec` and its settings, split and opened; ValidationFailed with every error.

        ScopeMissing, before any secret is opened, if they would send one to a destination the actor may not allow.
        """
        installed = self.find_connector(spec.connector)
        if installed is None:
            names = ", ".join(sorted(self.registry.installed)) or "none"
            raise ValidationFailed(
                Sentence(
                    "there is no connector %(connector)s; installed connectors: %(known)s",
                    connector=repr(spec.connector[:80]), known=names,
                ),
                pointer="/connector",
            )
        if not 1 <= spec.concurrency <= MAX_CONCURRENCY:
            raise ValidationFailed(
                Sentence("concurrency must be a whole number from 1 to %(most_at_once)s", most_at_once=MAX_CONCURRENCY),
                pointer="/concurrency",
            )
        extracted = extract_secrets(installed.connector.settings_schema, spec.settings, stored_secrets, clock.now_ms())
        use = self._sealed.authorize(scope, installed, slug, extracted.settings)
        opened = self._sealed.open(scope, extracted.settings, extracted.secrets)
        problems = [
            problem
            for problem in installed.settings.problems(opened.settings, under="/settings", namespace=scope.tenant_id)
            if problem.pointer.removeprefix("/settings") not in opened.unresolved
        ]
        if problems:
            raise ValidationFailed(
                Sentence("the settings are not valid for the connector %(connector)s", connector=spec.connector), details=problems
            )
        return installed, extracted, opened, use

    def _view(self, scope: TenantScope, row: IntegrationRow) -> Integration:
        check = None if row.checked_at is None else Check(row.checked_at, bool(row.check_ok), row.check_message or "")
        settings = to_view(row.settings, self._sealed.read(scope, row.id, row.sealed), clock.rfc3339)
        return Integration(
            slug=row.id, name=row.name, connector=row.connector, settings=settings, version=row.version, created_at=row.created_at,
            updated_at=row.updated_at, check=check, concurrency=row.concurrency,
        )  # fmt: skip


def _class_of(error: ConnectorError) -> str:
    return "address_not_allowed" if isinstance(error, AddressNotAllowed) else error.error_class


def _refuse_unresolved(slug: str, opened: OpenedSettings) -> None:
    if opened.unresolved:
        pointer, name = next(iter(opened.unresolved.items()))
        raise _not_ready(
            Sentence(
                "%(slug)s refers to the secret %(name)s, which is not set: PUT /api/v1/secrets/%(name2)s",
                slug=slug, name=repr(name), name2=name,
            ),
            pointer,
        )


def _not_ready(message: str, pointer: str = "") -> ConnectorFailed:
    failed = ConnectorFailed(message, details=[Detail(pointer, "config_error", message)])
    failed.extra = {"error_class": "config_error", "outcome": "not_done", "retryable": False}
    return failed
