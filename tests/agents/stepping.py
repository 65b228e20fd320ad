"""Processes with agents in them: the world of runs, and a flow over the same database whose steps start those runs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.agents import runs
from appliance.agents.models import AgentRunRow
from appliance.agents.runs import Run
from appliance.blobs import Blobs, LocalPlaces
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.datapool import service as datapool
from appliance.documents import REVISION_TABLE, Documents
from appliance.formats import Formats
from appliance.formats import Settings as FormatSettings
from appliance.governance import Governor
from appliance.governance.approvals import ActionApprovals
from appliance.governance.executor import GovernedExecutor, Instance
from appliance.governance.policies import PolicyService
from appliance.processes import Execution, ProcessFlow
from appliance.processes.definitions import Draft, PublishRequest, versions
from appliance.processes.engine import store
from appliance.processes.executions import StartRequest
from appliance.processes.executions import service as executions
from appliance.processes.host import DataPoolCalls, IntegrationCalls, Ports
from appliance.sandbox import Pool
from appliance.sandbox import Settings as PoolSettings
from tests.agents.world import World, open_world
from tests.integrations.world import Ledger

GRANTS = {"integrations": {"books": "*"}, "datapool": {"marks": ["read", "write"]}, "human": True}
STEP = {"id": "triage", "agent": {"use": "clerk", "trusted": True, "input": {"order": "= input.order"}}}
INPUT = {"order": "10248"}


@dataclass
class Stepping:
    """Nothing runs by itself: `drive` is one visit of an execution, `world.drive` one segment of a run."""

    world: World
    flow: ProcessFlow
    executor: GovernedExecutor
    count: int = 0

    def wipe(self) -> None:
        """Delete the marks, bookings and approvals of earlier tests."""
        db.write(lambda: db.execute("DELETE FROM approval"))
        for each in datapool.query_entities(self.world.scope, "marks", {"limit": 500}).items:
            datapool.delete_entity(self.world.scope, "marks", each["id"])
        Ledger.booked.clear()

    def publish(self, *steps: Any, **more: Any) -> str:
        """A published process of these steps; answers its id."""
        self.count += 1
        process_id = f"p{self.count}"
        self.save(process_id, *steps, **more)
        self.flow.publish_process(self.world.scope, process_id, PublishRequest())
        return process_id

    def save(self, process_id: str, *steps: Any, **more: Any) -> Draft:
        draft = Draft({"id": process_id, "grants": GRANTS, "steps": list(steps or (STEP,)), **more}, {})
        versions.save_draft(self.world.scope, process_id, draft)
        return draft

    def start(self, *steps: Any, data: Any = None, **more: Any) -> str:
        """A new execution of a new process, in its first wait."""
        execution_id = self.begin(self.publish(*steps, **more), data)
        self.drive(execution_id)
        return execution_id

    def begin(self, process_id: str, data: Any = None) -> str:
        return str(self.flow.start_execution(self.world.scope, process_id, StartRequest(data or INPUT)).id)

    def drive(self, execution_id: str) -> Execution:
        """Drive it as far as it goes now, as a new owner."""
        db.write(lambda: db.execute("UPDATE execution SET owner = NULL WHERE id = ?", (execution_id,)))
        self.flow.runner.drive("one", execution_id)
        return self.get(execution_id)

    def get(self, execution_id: str) -> Execution:
        return executions.get_execution(self.world.scope, execution_id)

    def runs(self, execution_id: str) -> list[Run]:
        """The runs that the execution has started, in the order in which it did."""
        rows = self.world.scope.select(AgentRunRow).where(AgentRunRow.execution_id == execution_id).order_by(AgentRunRow.id)
        return [runs.get_run(self.world.scope, row.agent_id, row.id) for row in rows]

    def finish(self, execution_id: str) -> Execution:
        """Drive it and its runs to the end; people agree to what they are asked."""
        while (row := self.drive(execution_id)).status not in store.FINISHED:
            for run in self.runs(execution_id):
                self.world.drive(run.id)
            for _ in self.world.list_approvals("pending"):
                self.world.decide()
        return row

    def restart(self) -> None:
        """Another process over the same database."""
        self.executor.stop()
        self.world.restart()
        self.flow, self.executor = make_flow(self.world)


def make_flow(world: World) -> tuple[ProcessFlow, GovernedExecutor]:
    """A flow whose steps start the world's runs; its sandbox is off, so expressions are plain paths."""
    sealer, integrations, presence = world.company.sealer, world.company.integrations, world.presence
    governor = Governor(PolicyService(), ActionApprovals(sealer))
    executor = GovernedExecutor(integrations, governor, Instance(presence.instance, is_alive=presence.is_alive))
    documents = Documents(Blobs(LocalPlaces(world.folder / "blobs"), [REVISION_TABLE]))
    formats = Formats(FormatSettings(world.folder / "formats", memory_mb=128))
    ports = Ports(
        DataPoolCalls(), IntegrationCalls(executor), sealer, documents, formats, executor, integrations.find_actions,
        agents=world.runs.steps,
    )  # fmt: skip
    config = load_config(environment={}, flags={"storage.data": str(world.folder), "queue.workers": 2})
    return ProcessFlow(config, presence, Pool(PoolSettings(1)), world.queue, ports), executor


@contextmanager
def open_stepping(folder: Path) -> Iterator[Stepping]:
    with open_world(folder) as world:
        stepping = Stepping(world, *make_flow(world))
        try:
            yield stepping
        finally:
            stepping.executor.stop()
