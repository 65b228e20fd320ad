"""What tests of replays share: a replay that is seen to have no effect."""

import hashlib
from typing import Any

from appliance.core.database import db
from appliance.processes.definitions.versions import PublishRequest
from appliance.processes.rehearsal.replay import Replay, ReplayRequest, StepReplay
from tests.processes.world import Bell, World


def replay(world: World, execution: Any, **request: Any) -> Replay:
    """Replay, and see that nothing was written and the bell not rung."""
    execution_id = execution if isinstance(execution, str) else execution.id
    before, rung = digests(), len(Bell.rung)
    report = world.flow.replay_execution(world.scope, execution_id, ReplayRequest(**request))
    assert (digests(), len(Bell.rung)) == (before, rung), "a replay has no effect"
    return report


def digests() -> dict[str, str]:
    """Of every table in the database."""
    tables = [str(name) for (name,) in db.rows("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    rows = {table: repr(sorted(db.rows(f'SELECT * FROM "{table}"'), key=repr)) for table in tables}  # noqa: S608
    return {table: hashlib.sha256(text.encode()).hexdigest() for table, text in rows.items()}


def calls_are_over(world: World) -> bool:
    """Whether no call to a foreign system is on its way any more, nor a thread that notes what came of one: it would write."""
    is_open = db.rows("SELECT count(*) FROM integration_call WHERE status IN ('running', 'queued')")[0][0] > 0
    return not is_open and world.flow._io._turns._in_places.total() == 0


def results(report: Replay) -> dict[str, str]:
    return {f"{s.path}@{s.iteration}" if s.iteration else s.path: s.result for s in report.steps}


def first(report: Replay) -> StepReplay:
    assert report.first is not None
    return report.first


def change(world: World, process: str, steps: list[dict[str, Any]], *, publish: bool = True, **more: Any) -> None:
    """Another draft of a process, published as its next version."""
    world.save(process, steps, **more)
    if publish:
        world.flow.publish_process(world.scope, process, PublishRequest())
