"""While a worker lives, nobody takes the row it leases; after its death one other worker does, and its late result is discarded."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import pytest

from appliance.agents import store as agent_store
from appliance.agents.journal import Entry, Journal
from appliance.agents.service import AgentRuns
from appliance.backups.jobs import EXPORT, JobRunner, NewJob
from appliance.backups.jobs import records as records_of_jobs
from appliance.blobs import Blobs, LocalPlaces
from appliance.connectors.oauth import TokenAnswer
from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.database.presence import Presence, open_presence
from appliance.core.errors import IdempotencyInFlight
from appliance.core.leases import LeaseLost, OrphanFinder
from appliance.core.scope import TenantScope
from appliance.datapool import FileImports, ImportOptions
from appliance.datapool.importing import records as records_of_imports
from appliance.datapool.importing.reading import ImportReport
from appliance.formats import Formats, Settings
from appliance.integrations import records
from appliance.integrations.spec import IntegrationSpec
from appliance.integrations.tokens import TokenStore
from appliance.processes.definitions import versions
from appliance.processes.engine import transitions
from appliance.processes.executions import ExecutionOrigin, StartRequest, insert_execution
from appliance.processes.executions import service as executions
from appliance.processes.service import ProcessFlow
from appliance.sandbox import Pool
from appliance.tenants import ALL_SCOPES
from appliance.tenants import service as tenants
from appliance.webapps.certificates import orders
from appliance.webapps.models import VersionRow, WebAppRow
from appliance.webapps.publishing import publications
from appliance.webapps.publishing.publisher import Publisher
from appliance.webapps.service import BLOB_TABLES, Limits, NewApp, WebApps
from tests.agents.world import open_world as open_agents
from tests.agents.world import says
from tests.integrations.provider import Provider
from tests.integrations.world import open_world as open_integrations
from tests.processes.world import Wall, make_world
from tests.store.opening import migrated
from tests.webapps.smoke_checks import make_version

ACME = TenantScope("acme", "key:acme", ALL_SCOPES)
MINUTES = 600_000  # longer than every lease


class Worker(ABC):
    """One process that works on the one leased row of a table."""

    table: ClassVar[str]
    first_wins: ClassVar[bool] = False
    """Whether the result of the earlier worker counts until the later one has settled."""
    presence: Presence

    @abstractmethod
    def claim(self) -> Any:
        """Claim the row when it is free."""

    def take_over(self) -> Any:
        """Claim the row from a worker that is gone; None if there is none."""
        return self.claim()

    @abstractmethod
    def settle(self, claim: Any, result: int) -> None:
        """Record the result; LeaseLost, or no effect, when it must be discarded."""

    @abstractmethod
    def result(self) -> str:
        """The recorded result."""


class ExecutionWorker(Worker):
    table = "execution"

    def __init__(self, flow: ProcessFlow, presence: Presence, execution_id: str) -> None:
        self.flow, self.presence, self._id = flow, presence, execution_id

    def claim(self) -> Any:
        return self.flow.runner.claim("acme", self._id)

    def take_over(self) -> Any:
        self.flow._sweeper.sweep()
        return self.claim()

    def settle(self, claim: Any, result: int) -> None:
        db.write(lambda: transitions.write_transition(claim, 0, transitions.succeeded(result, clock.now_ms())))

    def result(self) -> str:
        return str(executions.get_execution(ACME, self._id).output)


@contextmanager
def work_on_executions(folder: Path, url: str) -> Iterator[list[Worker]]:
    with migrated(url):
        tenants.create_tenant("acme", "acme")
        definition = {"id": "idle", "steps": [{"id": "one", "rule": {"expression": "= 1"}}]}
        versions.save_draft(ACME, "idle", versions.Draft(definition, {}))
        request, origin = StartRequest({}), ExecutionOrigin()
        row, _ = db.write(lambda: insert_execution(ACME, "idle", 1, request, origin))
        worlds = [make_world(folder, Pool()) for _ in range(3)]
        yield [ExecutionWorker(world.flow, world.presence, row.id) for world in worlds]


class AgentWorker(Worker):
    table = "agent_run"

    def __init__(self, runs: AgentRuns, presence: Presence, scope: TenantScope, run_id: str) -> None:
        self.runs, self.presence, self._scope, self._id = runs, presence, scope, run_id

    def claim(self) -> Any:
        return db.write(lambda: self.runs.runner._claim(self._scope, self._id))

    def take_over(self) -> Any:
        self.runs.sweep()
        return self.claim()

    def settle(self, claim: Any, result: int) -> None:
        journal = Journal(agent_store.load_entries(self._scope, self._id))
        changes = {"status": "succeeded", "owner": None, "output": result}
        db.write(lambda: agent_store.commit(claim, journal, [Entry("ended", 1)], changes))

    def result(self) -> str:
        return str(db.rows("SELECT output FROM agent_run")[0][0])


@contextmanager
def work_on_agent_runs(folder: Path, url: str) -> Iterator[list[Worker]]:
    with open_agents(folder, url) as world:
        world.make(says("done"))
        run_id = world.start()
        processes = [(world.presence, world.runs), *(world.process(listens=False)[:2] for _ in range(2))]
        yield [AgentWorker(runs, presence, world.scope, run_id) for presence, runs in processes]
        while len(world.closers) > 1:
            world.closers.pop()()


class PublicationWorker(Worker):
    table = "webapp_publication"

    def __init__(self, webapps: WebApps, presence: Presence, number: int) -> None:
        self.presence, self._number = presence, number
        self._publisher = Publisher(webapps, presence.instance, presence.is_alive)

    def claim(self) -> Any:
        row, app = ACME.get(VersionRow, app_id="shop", number=self._number), ACME.get(WebAppRow, id="shop")
        return db.write(lambda: publications.start(ACME, app, row, self.presence.instance))

    def take_over(self) -> Any:
        lost = self._publisher._orphans.find(clock.now_ms(), 10)
        return db.write(lambda: publications.claim(lost[0], self.presence.instance)) if lost else None

    def settle(self, claim: Any, result: int) -> None:
        db.write(lambda: publications.finish(claim, "published", str(result)))

    def result(self) -> str:
        return str(publications.get_publication(ACME, "shop", self._number).reason)


@contextmanager
def work_on_publications(folder: Path, url: str) -> Iterator[list[Worker]]:
    with migrated(url):
        tenants.create_tenant("acme", "acme")
        blobs = Blobs(LocalPlaces(folder / "blobs"), BLOB_TABLES)
        webapps = WebApps(blobs, Limits(100, 1 << 20, 1 << 18))
        webapps.create_app(ACME, NewApp("shop"))
        number = make_version(webapps, blobs, ACME)
        yield [PublicationWorker(webapps, open_presence(folder / "workers"), number) for _ in range(3)]


class ImportWorker(Worker):
    table = "file_import"

    def __init__(self, imports: FileImports, presence: Presence, import_id: str) -> None:
        self.presence, self._runner, self._id = presence, imports.runner, import_id

    def claim(self) -> Any:
        return db.write(lambda: records_of_imports.start(ACME, self._id, ImportOptions(), self.presence.instance))

    def take_over(self) -> Any:
        lost = self._runner._orphans.find(clock.now_ms(), 10)
        return db.write(lambda: records_of_imports.claim(lost[0], self.presence.instance)) if lost else None

    def settle(self, claim: Any, result: int) -> None:
        db.write(lambda: records_of_imports.finish(claim, "tried", ImportReport(rows=result)))

    def result(self) -> str:
        return str(records_of_imports.find(ACME, self._id).rows)


@contextmanager
def work_on_imports(folder: Path, url: str) -> Iterator[list[Worker]]:
    with migrated(url):
        tenants.create_tenant("acme", "acme")
        blobs, formats = Blobs(LocalPlaces(folder / "blobs"), ()), Formats(Settings(folder / "formats"))
        presences = [open_presence(folder / "workers") for _ in range(3)]
        processes = [FileImports(formats, blobs, each.instance, each.is_alive) for each in presences]
        file_import = processes[0].begin(ACME, "marks", "a.csv", BytesIO(b"a\n1\n"))
        yield [ImportWorker(*each, file_import.id) for each in zip(processes, presences, strict=True)]
        formats.stop()


class TenantJobWorker(Worker):
    table = "tenant_job"

    def __init__(self, presence: Presence, sealer: Sealer) -> None:
        self.presence, self._runner = presence, JobRunner(sealer, presence.instance, presence.is_alive)

    def claim(self) -> Any:
        return db.write(lambda: records_of_jobs.insert_running(ACME, NewJob(EXPORT), self.presence.instance))[0]

    def take_over(self) -> Any:
        lost = self._runner._orphans.find(clock.now_ms(), 10)
        return db.write(lambda: records_of_jobs.claim(lost[0], self.presence.instance)) if lost else None

    def settle(self, claim: Any, result: int) -> None:
        db.write(lambda: records_of_jobs.finish(claim, {"damaged": result}))

    def result(self) -> str:
        (job,) = records_of_jobs.list_jobs(ACME, EXPORT)
        return str(job.result.get("damaged"))


@contextmanager
def work_on_tenant_jobs(folder: Path, url: str) -> Iterator[list[Worker]]:
    with migrated(url):
        tenants.create_tenant("acme", "acme")
        yield [TenantJobWorker(open_presence(folder / "workers"), Sealer(bytes(32))) for _ in range(3)]


class CallWorker(Worker):
    table = "integration_call"

    def __init__(self, presence: Presence, scope: TenantScope) -> None:
        self.presence, self._scope = presence, scope
        self._orphans = OrphanFinder(records.LEASES, presence.instance, presence.is_alive, lambda key: False)
        self._draft = records.Draft("books", "ledger", "set", "idempotent", {}, "digest", key="key-1")

    def claim(self) -> Any:
        with suppress(IdempotencyInFlight):
            return records.begin_call(
                self._scope, self._draft, self.presence.instance, self.presence.is_alive, lambda call_id, is_again: None
            )
        return None

    def take_over(self) -> Any:
        records.close_orphans(self._orphans)
        return self.claim()

    def settle(self, claim: Any, result: int) -> None:
        records.finish_call(self._scope, claim, self._draft, records.Completion("succeeded", "done", {"n": result}))

    def result(self) -> str:
        ((output,),) = db.rows("SELECT output FROM integration_call")
        return str(output).removeprefix('{"n":').removesuffix("}")


@contextmanager
def work_on_calls(folder: Path, url: str) -> Iterator[list[Worker]]:
    with open_integrations(url) as world:
        world.ledger()
        yield [CallWorker(open_presence(folder / "workers"), world.one) for _ in range(3)]


class TokenWorker(Worker):
    table = "integration_token"
    first_wins = True

    def __init__(self, presence: Presence, tokens: TokenStore, scope: TenantScope, ready: Any) -> None:
        self.presence, self._tokens, self._scope, self._ready = presence, tokens, scope, ready

    def claim(self) -> Any:
        before = self._tokens.load(self._scope, self._ready)
        return before if self._tokens.claim_lease(self._scope, "crm", before.generation) else None

    def settle(self, claim: Any, result: int) -> None:
        self._tokens.store(self._scope, self._ready, claim, TokenAnswer(str(result), "refresh", 3000.0))

    def result(self) -> str:
        return self._tokens.load(self._scope, self._ready).access


@contextmanager
def work_on_tokens(folder: Path, url: str) -> Iterator[list[Worker]]:
    with open_integrations(url) as world, closing(Provider()) as provider:
        world.integrations.create_integration(world.one, "crm", IntegrationSpec("http", provider.settings()))
        ready, tokens = world.integrations.ready(world.one, "crm"), world.integrations.calls.tokens
        yield [TokenWorker(open_presence(folder / "workers"), tokens, world.one, ready) for _ in range(3)]


class OrderWorker(Worker):
    table = "certificate_order"

    def __init__(self, presence: Presence) -> None:
        self.presence = presence

    def claim(self) -> Any:
        return orders.claim(self.presence.instance, self.presence.is_alive)

    def settle(self, claim: Any, result: int) -> None:
        db.write(lambda: orders.complete(claim, result))

    def result(self) -> str:
        return str(db.rows("SELECT due_at FROM certificate_order")[0][0])


@contextmanager
def work_on_orders(folder: Path, url: str) -> Iterator[list[Worker]]:
    with migrated(url):
        tenants.create_tenant("acme", "acme")
        db.write(lambda: orders.plan("www.example.com", "acme", ("www.example.com",), clock.now_ms()))
        yield [OrderWorker(open_presence(folder / "workers")) for _ in range(3)]


USERS = {
    "executions": work_on_executions,
    "agent runs": work_on_agent_runs,
    "publications": work_on_publications,
    "imports": work_on_imports,
    "tenant jobs": work_on_tenant_jobs,
    "calls": work_on_calls,
    "tokens": work_on_tokens,
    "certificate orders": work_on_orders,
}


@pytest.fixture(params=USERS)
def workers(request: pytest.FixtureRequest, tmp_path: Path, store_url: str) -> Iterator[list[Worker]]:
    """Three processes that share one row."""
    with USERS[request.param](tmp_path, store_url) as workers:
        yield workers
        for each in workers:
            each.presence.close()


def settle_late(worker: Worker, claim: Any) -> None:
    """The earlier worker comes back with its result, which changes nothing."""
    before = db.rows(f"SELECT * FROM {worker.table}")  # noqa: S608
    with suppress(LeaseLost):
        worker.settle(claim, 1)
    assert db.rows(f"SELECT * FROM {worker.table}") == before  # noqa: S608


def test_a_dead_worker_is_succeeded_by_one_other_and_its_late_result_is_discarded(
    workers: list[Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, successor, third = workers
    wall = Wall(monkeypatch)
    claim = dead.claim()
    assert claim is not None
    assert successor.take_over() is None, "its worker lives"
    dead.presence.close()
    wall.offset = MINUTES
    new = successor.take_over()
    assert new is not None
    assert third.take_over() is None, "its new worker lives"
    if not dead.first_wins:
        settle_late(dead, claim)
    successor.settle(new, 2)
    assert third.result() == "2"
    settle_late(dead, claim)
    assert third.result() == "2"


def test_a_worker_that_nobody_succeeded_settles(workers: list[Worker]) -> None:
    worker, other, _ = workers
    claim = worker.claim()
    worker.settle(claim, 3)
    assert other.result() == "3"
