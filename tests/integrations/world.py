"""A small appliance for tests: a database with two tenants, the real HTTP connector and a scripted connector."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from appliance.connectors import contract
from appliance.connectors.contract import Action, Connector, Context, Item, Polled, Trigger
from appliance.connectors.egress import Egress
from appliance.connectors.registry import Installed, Registry, load_registry
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.governance.executor import ActionRequest, GovernedExecutor, Instance
from appliance.integrations.calls import Calls
from appliance.integrations.connections import Connections
from appliance.integrations.service import Integrations
from appliance.integrations.spec import IntegrationSpec
from appliance.integrations.tokens import TokenStore
from appliance.tenants import SCOPES, ApiKey
from appliance.tenants import service as tenants
from appliance.tenants.keys import keys
from tests.governance.ruling import make_governor
from tests.store.opening import open_migrated

INPUT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"amount": {"type": "integer"}, "do": {"type": "string"}, "note": {"type": "string"}},
}
OUTPUT = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "deep": {"additionalProperties": {"type": "integer"}}},
}


class Ledger(Connector):
    """Records every call; `do` selects the outcome: an error class of the contract, `quote` (an excerpt), `crash`, `wait`, `echo`,
    `huge`, `lie`."""

    contract_version = 1
    name = "ledger"
    title = "Ledger"
    version = "1.0"
    settings_schema = {  # noqa: RUF012 - a class variable of the contract
        "type": "object",
        "required": ["token"],
        "additionalProperties": False,
        "properties": {
            "host": {"type": "string", "pattern": "^[a-z.]*$", "secret_target": True},
            "token": {"type": "string", "secret": True, "minLength": 3},
            "label": {"type": "string"},
            "headers": {"type": "object", "additionalProperties": {"type": "string", "secret": True}},
            "nested": {"type": "array", "items": {"properties": {"key": {"type": "string", "secret": True}}}},
        },
    }
    actions = (
        Action("look", "Read the ledger", INPUT, OUTPUT, "read"),
        Action("set", "Set the ledger", INPUT, OUTPUT, "idempotent"),
        Action("book", "Book an amount", INPUT, OUTPUT, "write"),
    )
    triggers = (Trigger("entries", "New entries", INPUT, OUTPUT),)
    booked: list[tuple[str, str, Any]] = []  # noqa: RUF012
    seen: list[Any] = []  # noqa: RUF012
    closed: list[Any] = []  # noqa: RUF012
    arrived = threading.Event()
    go_on = threading.Event()

    def check(self, ctx: Context) -> str:
        if self.settings["token"] == "wrong":
            raise contract.AuthError(f"The token {self.settings['token']} is wrong.")
        return f"Hello {self.settings.get('label', 'nobody')}, your token is {self.settings['token']}."

    def call(self, action: str, input: Any, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        Ledger.seen.append(self.settings)
        Ledger.booked.append((action, ctx.idempotency_key, dict(input)))
        do, _, outcome = input.get("do", "").partition(" ")
        if do in ("AuthError", "Rejected", "RateLimited", "TransientError", "SystemFailure", "AddressNotAllowed"):
            more = {"retry_after": 7.0} if do == "RateLimited" else {}
            raise getattr(contract, do)(f"no, {self.settings['token']}", outcome=outcome or "not_done", **more)
        if do == "quote":
            raise contract.Rejected("That is refused.", details={"status": 409, "excerpt": "iban DE89 of Ann"})
        if do == "crash":
            raise ZeroDivisionError("a bug in the plugin")
        if do == "wait":
            Ledger.arrived.set()
            Ledger.go_on.wait(10)
        if do == "log":
            ctx.log("info", f"token {self.settings['token']}", {"token": self.settings["token"]})
        if do == "echo":
            return {"said": f"Bearer {self.settings['token']}", self.settings["token"]: [input.get("note")]}
        if do == "lie":
            return {"deep": {self.settings["token"]: self.settings["token"]}} if outcome else {"n": self.settings["token"]}
        return {"huge": {"x": "y" * 2_000_000}, "none": None, "nan": {"a": float("nan")}}.get(do, {"n": len(Ledger.booked)})  # type: ignore[return-value]

    def poll(self, trigger: str, query: Any, cursor: Any, ctx: Context) -> Polled:
        return Polled([Item("1", {"n": 1 if query.get("do") != "lie" else self.settings["token"]})], 1)

    def close(self) -> None:
        Ledger.closed.append(self.settings)

    @classmethod
    def reset(cls) -> None:
        cls.booked, cls.seen, cls.closed = [], [], []
        cls.arrived, cls.go_on = threading.Event(), threading.Event()


def queue_task(queued: list[tuple[str, str, str]], task: tuple[str, str, str]) -> None:
    """Queue a task with the current write, as the queue does."""
    db.after_commit(lambda: queued.append(task))


@dataclass(frozen=True)
class World:
    one: TenantScope
    two: TenantScope
    sealer: Sealer
    integrations: Integrations
    executor: GovernedExecutor
    queued: list[tuple[str, str, str]]

    def ledger(self, scope: TenantScope | None = None, **settings: Any) -> str:
        spec = IntegrationSpec("ledger", {"token": "tok-4711-secret", **settings})
        return self.integrations.create_integration(scope or self.one, "books", spec).slug

    def request(self, action: str = "book", **more: Any) -> ActionRequest:
        params = more.pop("input", {})
        return ActionRequest("books", action, params, **more)

    def restart_executor(self) -> GovernedExecutor:
        """The executor of another process over the same database."""
        other = Instance("instance-2", lambda *task: queue_task(self.queued, task))
        return GovernedExecutor(self.integrations, make_governor(self.sealer), other)


def _create_key(sealer: Sealer) -> None:
    """Create the key `test` of tenant one; calls that it queued run as long as it has the permission."""
    if ApiKey.get_or_none(ApiKey.id == "test") is None:
        issued, _text = keys.issue_key(tenants.system_scope("one"), sealer, keys.KeySpec("test", list(SCOPES)))
        db.write(lambda: ApiKey.update(id="test").where(ApiKey.id == issued.id).execute())


@contextmanager
def open_world(url: str, instance: str = "instance-1") -> Iterator[World]:
    """The appliance over the database of `url`, created if it does not exist yet."""
    Ledger.reset()
    open_migrated(url)
    existing = {row.id for row in tenants.list_tenants()}
    for tenant in sorted({"one", "two"} - existing):
        tenants.create_tenant(tenant, tenant)
    sealer = Sealer(b"k" * 32)
    registry = Registry({**load_registry().installed, "ledger": Installed(Ledger, "test")})
    calls = Calls(Connections(Egress.of(["127.0.0.0/8"])), TokenStore(sealer))

    def open_secret(scope: TenantScope, name: str) -> str:
        return tenants.unseal_secret(scope, sealer, name)

    integrations = Integrations(lambda: registry, sealer, open_secret, calls)
    queued: list[tuple[str, str, str]] = []
    executor = GovernedExecutor(integrations, make_governor(sealer), Instance(instance, lambda *task: queue_task(queued, task)))
    one, two = (tenants.system_scope(tenant, "key:test") for tenant in ("one", "two"))
    _create_key(sealer)
    try:
        yield World(one, two, sealer, integrations, executor, queued)
    finally:
        executor.stop()
        db.close_database()
