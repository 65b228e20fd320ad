"""Helpers of replay tests: a replay that is verified to have no side effects."""

import hashlib
from typing import Any

from appliance.core.database import db
from appliance.processes.definitions.versions import PublishRequest
from appliance.processes.rehearsal.replay import Replay, ReplayRequest, StepReplay
from tests.processes.world import Bell, World
from tests.store.tables import stored_tables


def replay(world: World, execution: Any, **request: Any) -> Replay:
    """Replays and verifies that nothing was written and no action was called."""
    execution_id = execution if isinstance(execution, str) else execution.id
    before, rung = digests(), len(Bell.rung)
    report = world.flow.replay_execution(world.scope, execution_id, ReplayRequest(**request))
    assert (digests(), len(Bell.rung)) == (before, rung), "a replay has no effect"
    return report


def digests() -> dict[str, str]:
    """A digest of the rows of every table in the database."""
    rows = {table: repr(sorted(db.rows(f'SELECT * FROM "{table}"'), key=repr)) for table in stored_tables()}  # noqa: S608
    return {table: hashlib.sha256(text.encode()).hexdigest() for table, text in rows.items()}


def calls_are_over(world: World) -> bool:
    """Whether no foreign call and no thread that records its result is running any more, since either would write."""
    is_open = db.rows("SELECT count(*) FROM integration_call WHERE status IN ('running', 'queued')")[0][0] > 0
    return not is_open and world.flow._io._places._in_places.total() == 0


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
