"""Runs of agents on a real database with real tools, gate and approvals, a ledger that obeys, and a model with a script."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from appliance.agents import runs, store, versions
from appliance.agents.definition import parse_definition
from appliance.agents.journal import Entry
from appliance.agents.model import ModelContext, ProfileModel
from appliance.agents.run_segment import RunDependencies
from appliance.agents.runs import Run, RunRequest
from appliance.agents.service import AgentRuns
from appliance.agents.tools.entities import entity_tools
from appliance.agents.tools.human import HumanTools
from appliance.agents.tools.integrations import IntegrationTools
from appliance.agents.tools.shapes import Shapes
from appliance.agents.tools.toolbox import Toolbox
from appliance.api import make_shapes
from appliance.core import clock
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.core.database.presence import Presence
from appliance.core.pages import PageRequest
from appliance.core.queue import TaskQueue
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.governance import Governor
from appliance.governance.approvals import ActionApprovals, Approval, ApprovalFilter, Decision, approvals
from appliance.governance.executor import GovernedExecutor, Instance
from appliance.governance.policies import PolicyService
from appliance.llm import LanguageModels
from appliance.tenants import ALL_SCOPES, ApiKey
from tests.governance.asking import TenantFixture
from tests.governance.ruling import put_rules
from tests.integrations.world import Ledger
from tests.integrations.world import World as Company
from tests.integrations.world import open_world as open_company

ALLOW = {"id": "allow", "effect": "allow", "reason": "in this test"}
TAINTED = {"id": "tainted", "effect": "allow", "subject": {"tainted": True}, "reason": "in this test"}
ASK = {"id": "ask", "effect": "require_approval", "integrations": ["books"], "effects": ["write"], "reason": "look first"}
AGENT = {"model": "default", "instructions": "Keep the books.", "tools": ["books:*", "write_entities", "request_human_input"]}
Turn = ModelResponse | Exception


def calls(*requests: tuple[str, dict[str, Any]]) -> ModelResponse:
    """A turn that asks for these tools."""
    parts = [ToolCallPart(tool, json.dumps(settings), f"call-{number}") for number, (tool, settings) in enumerate(requests, 1)]
    return ModelResponse(parts, usage=RequestUsage(input_tokens=10, output_tokens=5))


def book(operation: str = "set", **params: Any) -> tuple[str, dict[str, Any]]:
    return "execute_tenant_integration", {"integration": "books", "operation": operation, "params": params}


def mark(text: str) -> tuple[str, dict[str, Any]]:
    return "write_entities", {"operations": [{"op": "create", "collection": "marks", "values": {"what": text}}]}


def says(text: str) -> ModelResponse:
    return ModelResponse([TextPart(text)], usage=RequestUsage(input_tokens=10, output_tokens=5))


def review_path(scope: TenantScope, request_id: str) -> str:
    return f"/console/approvals/{request_id}"


@dataclass
class Script:
    """A model that answers its turns in order; `turn_numbers` are those it was asked for."""

    turns: Sequence[Turn] = ()
    turn_numbers: list[int] = field(default_factory=list)
    messages: list[ModelMessage] = field(default_factory=list)
    before: Callable[[int], None] = lambda number: None
    asker: ModelContext | None = None

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        number = sum(isinstance(message, ModelResponse) for message in messages) + 1
        self.turn_numbers.append(number)
        self.messages = list(messages)
        self.before(number)
        turn = self.turns[number - 1]
        if isinstance(turn, Exception):
            raise turn
        return replace(turn)

    def transcript(self) -> str:
        """The messages of the last request, as text."""
        return "\n".join(str(part) for message in self.messages for part in message.parts)


@dataclass
class World:
    """Tenant `one` with the integration `books`, the collection `marks`, and people; `two` has nothing.

    With `llm` its profiles are asked instead of the script.
    """

    company: Company
    folder: Path
    town: TenantFixture
    script: Script
    runs: AgentRuns
    queue: TaskQueue
    presence: Presence
    closers: list[Any] = field(default_factory=list)
    llm: LanguageModels | None = None

    @property
    def scope(self) -> TenantScope:
        return self.company.one

    def make(self, *turns: Turn, rules: Sequence[dict[str, Any]] = (ALLOW, TAINTED), **definition: Any) -> str:
        """An agent that has this model, under these rules."""
        self.script.turns, self.script.turn_numbers = turns, []
        put_rules(self.scope, *rules)
        versions.save_agent(self.scope, parse_definition("clerk", {**AGENT, **definition}))
        return "clerk"

    def start(self, data: Any = "Do it.", **more: Any) -> str:
        return self.runs.start_run(self.scope, "clerk", RunRequest(data, **more)).id

    def drive(self, run_id: str) -> Run:
        self.runs.runner.drive("one", run_id)
        return self.get(run_id)

    def run(self, *turns: Turn, **more: Any) -> Run:
        """A new run of a new agent, as far as it goes."""
        self.make(*turns, **more)
        return self.drive(self.start())

    def get(self, run_id: str) -> Run:
        return runs.get_run(self.scope, "clerk", run_id)

    def journal(self, run_id: str) -> list[Entry]:
        return store.load_entries(self.scope, run_id)

    def restart(self) -> None:
        """Replace the process by another one over the same database."""
        self.presence.close()
        self.closers[-1]()
        self.presence, self.runs, self.queue = self.process()

    def process(self, *, listens: bool = True) -> tuple[Presence, AgentRuns, TaskQueue]:
        """The parts of one process."""
        presence, sealer, integrations = Presence(self.folder / "workers"), self.company.sealer, self.company.integrations
        actions = ActionApprovals(sealer)
        governor = Governor(PolicyService(), actions)
        executor = GovernedExecutor(integrations, governor, Instance(presence.instance, is_alive=presence.is_alive))
        toolbox = Toolbox(governor)
        shapes = _shapes()
        for tool in (
            *IntegrationTools(integrations, executor, governor, shapes.preview).tools(),
            *HumanTools(actions, governor, toolbox.action_of, review_path, executor.submit).tools(),
            *entity_tools(),
        ):
            toolbox.add(tool)
        config = load_config(environment={}, flags={"storage.data": str(self.folder), "queue.sweep_ms": 50, "queue.workers": 2})
        queue = TaskQueue()
        dependencies = RunDependencies(toolbox, governor, actions, self._model, lambda scope, name: f"about {name}")
        agent_runs = AgentRuns(config, presence, queue, dependencies)
        forget = agent_runs.listen() if listens else (lambda: None)

        def end() -> None:
            forget()
            executor.stop()

        self.closers.append(end)
        return presence, agent_runs, queue

    def _model(self, profile: str, asker: ModelContext) -> Model:
        self.script.asker = asker
        return FunctionModel(self.script.answer) if self.llm is None else ProfileModel(self.llm, profile, asker)

    def forget(self) -> None:
        """Delete earlier runs, approvals and their effects, so that a test sees only those of the next run."""
        for item in datapool.query_entities(self.scope, "marks", {"limit": 500}).items:
            datapool.delete_entity(self.scope, "marks", item["id"])
        db.write(lambda: [db.execute(f"DELETE FROM {table}") for table in ("approval", "agent_run")])  # noqa: S608  # our own words
        Ledger.reset()
        self.script.turn_numbers = []

    def marks(self) -> list[str]:
        """The texts in the collection, in the order they were written."""
        results = datapool.query_entities(self.scope, "marks", {"sort": "created_at,id", "limit": 500}).items
        return [str(each["what"]) for each in results]

    def booked(self) -> list[Any]:
        """The write operations the ledger received: (operation, key, input)."""
        return [each for each in Ledger.booked if each[0] != "look"]

    def list_approvals(self, status: str | None = None) -> list[Approval]:
        """The requests to people, oldest first."""
        filters = ApprovalFilter(status)
        return list(approvals.list_approvals(self.scope, filters, PageRequest(500, sort="created_at")).items)

    def decide(self, decision: str = "approve", answer: Any = None) -> None:
        """A person decides the one request that is open."""
        (approval,) = self.list_approvals("pending")
        person = self.town.people["ann"]
        approvals.decide_approval(person.scope, person, approval.id, Decision(decision, answer, "so be it"))  # type: ignore[arg-type]


@cache
def _shapes() -> Shapes:
    """They are the same for every process, and take a while to make."""
    return make_shapes()


def put_key(key_id: str) -> str:
    """Create a key of tenant `one` that is valid for a day; returns its actor."""
    now = clock.now_ms()
    row = ApiKey(
        id=key_id, tenant_id="one", digest=key_id.encode(), name=key_id, environment="live", prefix="gos_live_", last4="0000",
        scopes=sorted(ALL_SCOPES), created_at=now, expires_at=now + 86_400_000, rate_requests=600, rate_window_s=60, allowed_ips=[],
        created_by="system", issuer="system",
    )  # fmt: skip
    db.write(lambda: row.save(force_insert=True))
    return f"key:{key_id}"


@contextmanager
def open_world(folder: Path, url: str = "") -> Iterator[World]:
    """Two tenants; nothing runs by itself until `runs.start()` and `queue.start()`."""
    with open_company(url or f"sqlite:///{folder}/gos.db") as company:
        company.ledger()
        datapool.create_collection(company.one, {"name": "marks", "fields": [{"name": "what", "type": "text"}]})
        town = TenantFixture(company.one)
        town.person("ann", "owner", approver=True)
        world = World(company, folder, town, Script(), *([None] * 3))  # type: ignore[arg-type]
        world.presence, world.runs, world.queue = world.process()
        try:
            yield world
        finally:
            world.closers[-1]()
            world.presence.close()


def wait_until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """The first true value of `condition()`."""
    pause = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if value := condition():
            return value
        pause.wait(0.02)
    raise TimeoutError("it did not happen")
