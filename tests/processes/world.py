"""ProcessFlow on a real database and a real sandbox, with a connector that obeys a script; two tenants."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from appliance.blobs import Blobs, LocalPlaces
from appliance.connectors import contract
from appliance.connectors.contract import Action, Connector, Context
from appliance.connectors.egress import Egress
from appliance.connectors.registry import Installed, Registry
from appliance.core import clock
from appliance.core.config import Config, load_config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.database.presence import Presence
from appliance.core.queue import TaskQueue
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.documents import REVISION_TABLE, Documents
from appliance.formats import Formats
from appliance.formats import Settings as FormatSettings
from appliance.governance.executor import CallDocumentsFactory, GovernedExecutor, Instance
from appliance.integrations import Connections, Integrations, IntegrationSpec, TokenStore, gate
from appliance.integrations.calls import Calls
from appliance.llm import LanguageModels, Profile
from appliance.processes import Waiter
from appliance.processes.definitions import versions
from appliance.processes.definitions.versions import Draft, PublishRequest
from appliance.processes.engine import completion, store
from appliance.processes.engine.runner import Runner
from appliance.processes.executions import service as executions
from appliance.processes.executions.service import Execution
from appliance.processes.executions.starting import StartRequest
from appliance.processes.host.host_calls import DataPoolCalls, IntegrationCalls
from appliance.processes.host.model_calls import ModelCalls
from appliance.processes.host.model_documents import DocumentReading
from appliance.processes.host.ports import Ports
from appliance.processes.service import ProcessFlow
from appliance.sandbox import Pool
from appliance.tenants import ALL_SCOPES
from appliance.tenants import service as tenants
from tests.governance.ruling import make_governor
from tests.llm.provider import Provider
from tests.store.opening import open_migrated

GRANTS = {"datapool": {"marks": ["read", "write"]}, "integrations": {"bell": "*"}}
SEALER = Sealer(b"k" * 32)
ANYTHING: dict[str, Any] = {"type": "object"}


class Bell(Connector):
    """`ring` records the call; `hold` waits until `go_on` is set."""

    contract_version = 1
    name = "bell"
    title = "Bell"
    version = "1.0"
    settings_schema = ANYTHING
    actions = (
        Action("look", "Look", ANYTHING, {}, "read"),
        Action("ring", "Ring", ANYTHING, {}, "idempotent"),
        Action("hold", "Ring once it is let go", ANYTHING, {}, "idempotent"),
    )
    triggers = (contract.Trigger("chime", "It chimed", ANYTHING, ANYTHING),)
    chimes: list[str] = []  # noqa: RUF012 the items that a poll returns after its cursor
    cursors: list[Any] = []  # noqa: RUF012 the cursors of all polls
    broken: list[contract.ConnectorError] = []  # noqa: RUF012 what the next polls fail with
    rung: list[tuple[str, Any]] = []  # noqa: RUF012 the calls of every instance
    seconds: list[float] = []  # noqa: RUF012
    arrived = threading.Semaphore(0)
    go_on = threading.Event()

    def check(self, ctx: Context) -> str:
        return "It rings."

    def call(self, action: str, input: Any, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        self.rung.append((ctx.idempotency_key, dict(input)))
        self.seconds.append(ctx.deadline - clock.monotonic())
        self.arrived.release()
        if action == "hold":
            self.go_on.wait(20)
        times = sum(1 for key, _ in self.rung if key == ctx.idempotency_key)
        if input.get("fail", 0) >= times:
            if "retry_after" in input:
                raise contract.RateLimited("Too loud.", retry_after=input["retry_after"])
            raise contract.TransientError("It is cracked.")
        if "document" in input:
            result = ctx.documents.open(input["document"])
            return {"made": ctx.documents.create(f"echo of {result.name}", (piece.upper() for piece in result.chunks()))}
        if input.get("reject"):
            raise contract.Rejected("Not at night.")
        return {"rung": input}

    def poll(self, trigger: str, query: Any, cursor: Any, ctx: Context) -> contract.Polled:
        self.cursors.append(cursor)
        if self.broken:
            raise self.broken.pop(0)
        begin = len(self.chimes) if cursor is None else cursor
        end = min(len(self.chimes), begin + query.get("most", 100))
        results = [contract.Item(chime, {"chime": chime}) for chime in self.chimes[begin:end]]
        return contract.Polled(results, end, more=end < len(self.chimes))

    @classmethod
    def forget(cls) -> None:
        cls.chimes.clear()
        cls.cursors.clear()
        cls.broken.clear()
        cls.rung.clear()
        cls.seconds.clear()
        cls.go_on.clear()
        while cls.arrived.acquire(blocking=False):
            pass


@dataclass
class World:
    """One ProcessFlow; `scope` is tenant acme, `other` tenant globex."""

    config: Config
    pool: Pool
    flow: ProcessFlow
    scope: TenantScope
    other: TenantScope
    presence: Presence
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 10_000)))

    @property
    def models(self) -> LanguageModels:
        return self.runner.tools.models.models

    def add_profile(self, provider: Provider, slug: str = "default", **fields: Any) -> None:
        """An LLM profile that leads to `provider`; replaced when there is one."""
        document = {"kind": "openai", "model": "small", "base_url": provider.url, **fields}
        self.models.put_profile(self.scope, slug, Profile.model_validate(document), "sk-canary-123")

    @property
    def runner(self) -> Runner:
        return self.flow.runner

    def publish(self, steps: list[dict[str, Any]], files: dict[str, str] | None = None, **more: Any) -> str:
        """A published process of these steps; answers its id."""
        process_id = f"p{next(self.numbers)}"
        self.save(process_id, steps, files, **more)
        self.flow.publish_process(self.scope, process_id, PublishRequest())
        return process_id

    def republish(self, process_id: str, steps: list[dict[str, Any]], **more: Any) -> None:
        """The next version of a process."""
        self.save(process_id, steps, **more)
        self.flow.publish_process(self.scope, process_id, PublishRequest())

    def save(self, process_id: str, steps: list[dict[str, Any]], files: dict[str, str] | None = None, **more: Any) -> None:
        draft = Draft({"id": process_id, "grants": GRANTS, "steps": steps, **more}, files or {})
        versions.save_draft(self.scope, process_id, draft)

    def start(self, process_id: str, payload: Any = None, *, soon: bool = True, **request: Any) -> str:
        """Start an execution and return its id."""
        waiter = Waiter() if soon else None
        return str(self.flow.start_execution(self.scope, process_id, StartRequest(payload or {}, **request), waiter=waiter).id)

    def finish(self, execution_id: str, seconds: float = 20.0) -> Execution:
        """The execution once it is finished."""
        over = threading.Event()
        completion.completion_signal.subscribe(self.scope.tenant_id, execution_id, over.set)
        if self.get(execution_id).status not in store.FINISHED and not over.wait(seconds):
            raise TimeoutError(self.get(execution_id).status)
        return self.get(execution_id)

    def run(self, steps: list[dict[str, Any]], payload: Any = None, **more: Any) -> Execution:
        """Publish, execute, and wait for the end."""
        return self.finish(self.start(self.publish(steps, **more), payload))

    def get(self, execution_id: str) -> Execution:
        return executions.get_execution(self.scope, execution_id)

    def steps(self, execution: Execution | str) -> dict[str, Any]:
        """The step runs by `id` or `id@iteration`."""
        row = self.get(execution) if isinstance(execution, str) else execution
        return {f"{r.step}@{r.iteration}" if r.iteration else r.step: r for r in executions.list_steps(self.scope, row)}

    def marks(self) -> list[tuple[Any, ...]]:
        """The rows of the collection `marks`, in the order they were written."""
        query = {"sort": "created_at,id", "limit": 500}
        return [(item["what"], item.get("note")) for item in datapool.query_entities(self.scope, "marks", query).items]

    def wipe(self) -> None:
        """Delete every mark and reset the circuit of the bell."""
        db.write(lambda: gate.reset_circuit(self.scope, "bell"))
        for item in datapool.query_entities(self.scope, "marks", {"limit": 500}).items:
            datapool.delete_entity(self.scope, "marks", item["id"])

    def lose_worker(self, execution_id: str) -> None:
        """Simulate the death of the worker that holds this execution."""
        db.write(lambda: db.execute("UPDATE execution SET owner = 'wrk_dead' WHERE id = ?", (execution_id,)))

    def wait_for_status(self, execution_id: str, status: str) -> Execution:
        """The execution once it has this status."""
        wait_until(lambda: self.get(execution_id).status == status)
        return self.get(execution_id)


class Wall:
    """Clocks that run ahead: `offset` milliseconds have passed, and the wall clock was also set forward by `jumped`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.offset = self.jumped = 0
        true_now, true_boot = clock.now_ms, clock.since_boot_ms
        monkeypatch.setattr(clock, "now_ms", lambda: true_now() + self.offset + self.jumped)
        monkeypatch.setattr(clock, "since_boot_ms", lambda: true_boot() + self.offset)


def wait_until(condition: Any, seconds: float = 15.0) -> Any:
    """The first true value of `condition()`, polled until the timeout."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.02)):
        value = condition()
        if value:
            return value
        pause.wait(0.02)
    raise TimeoutError("the condition did not become true")


def code(step_id: str, body: str, **more: Any) -> dict[str, Any]:
    """A TypeScript step from the body of its function of `input` and `api`."""
    source = "export default async function (input: any, api: any) {\n" + body + "\n}"
    return {"id": step_id, "code": {"language": "typescript", "source": source}, **more}


def rule(step_id: str, expression: str, **more: Any) -> dict[str, Any]:
    return {"id": step_id, "rule": {"expression": expression}, **more}


def make_world(folder: Path, pool: Pool, *, crashes: bool = False, **settings: Any) -> World:
    """A flow that is not started; the database must be open and hold the tenants."""
    flags = {"storage.data": str(folder), "queue.sweep_ms": 100, "queue.workers": 4}
    flags |= {name.replace("__", ".", 1): value for name, value in settings.items()}
    config = load_config(environment={}, flags=flags)
    presence = Presence(folder / "workers")
    flow = ProcessFlow(config, presence, pool, TaskQueue(), make_ports(folder, presence, crashes=crashes))
    acme, globex = (TenantScope(name, "key:test", ALL_SCOPES) for name in ("acme", "globex"))
    return World(config, pool, flow, acme, globex, presence)


def make_ports(folder: Path, presence: Presence, *, crashes: bool = False) -> Ports:
    """DataPool, documents, and the bell through the governed executor; with `crashes` no call outlives its process."""
    is_alive = (lambda _: False) if crashes else None
    documents = Documents(Blobs(LocalPlaces(folder / "blobs"), [REVISION_TABLE]))
    call_documents = CallDocumentsFactory(documents, 1 << 20)
    instance = Instance(presence.instance, is_alive=is_alive)
    executor = GovernedExecutor(make_integrations(), make_governor(SEALER), instance, call_documents)
    formats = Formats(FormatSettings(folder / "formats", memory_mb=128))
    models = ModelCalls(LanguageModels(Egress.of(["127.0.0.0/8"]), SEALER, open_secret), DocumentReading(documents, formats).read)
    return Ports(DataPoolCalls(), IntegrationCalls(executor), SEALER, documents, formats, executor, models=models)


def open_secret(scope: TenantScope, name: str) -> str:
    return tenants.unseal_secret(scope, SEALER, name)


def make_integrations() -> Integrations:
    """The one connector of these tests, and what it needs."""
    registry = Registry({"bell": Installed(Bell, "tests")})
    return Integrations(lambda: registry, SEALER, open_secret, Calls(Connections(Egress.of([])), TokenStore(SEALER)))


@contextmanager
def open_database(folder: Path, url: str = "") -> Iterator[None]:
    """A database (default: SQLite) with both tenants, acme's collection `marks` and acme's integration `bell`."""
    open_migrated(url or f"sqlite:///{folder}/gos.db")
    for name in ("acme", "globex"):
        tenants.create_tenant(name, name)
    acme = tenants.system_scope("acme", "key:test")
    fields = [{"name": name, "type": "text"} for name in ("what", "note")]
    datapool.create_collection(acme, {"name": "marks", "fields": fields})
    make_integrations().create_integration(acme, "bell", IntegrationSpec("bell", {}))
    try:
        yield
    finally:
        db.close_database()
