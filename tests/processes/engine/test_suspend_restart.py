"""A step that sleeps goes on in a new process, also under a new version, or fails clearly."""

import itertools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.core.database.changes import read_state
from appliance.core.scheduling import Scheduler
from appliance.processes.definitions.versions import PublishRequest
from appliance.sandbox import Pool, Settings
from tests.processes.world import World, code, make_world
from tests.sandbox.older_runtimes import make_older

from .test_suspend import send_event, waiting

PROCESSES = itertools.count(1)


@contextmanager
def flow_of(folder: Path, settings: Settings) -> Iterator[World]:
    """A started flow with a pool of its own, over the open database."""
    pool = Pool(settings)
    pool.start()
    world = make_world(folder, pool)
    world.flow.start(Scheduler(read_state))
    try:
        yield world
    finally:
        world.flow.stop(5)
        world.presence.close()
        pool.stop()


def test_a_vm_of_a_former_worker_continues_in_another(folder: Path, tmp_path: Path) -> None:
    """A new flow with a new pool, as after a restart, resumes what the first one stored."""
    body = 'const kept = {a: [1, 2n, "x"]}; const e = await api.events.wait("go"); return kept.a.map(String).join() + e;'
    process = f"former{next(PROCESSES)}"
    with flow_of(tmp_path, Settings(processes=1, slots=2)) as first:
        first.save(process, [code("ask", body)])
        first.flow.publish_process(first.scope, process, PublishRequest())
        execution = first.start(process)
        (wait,) = waiting(first, execution)
    with flow_of(tmp_path, Settings(processes=1, slots=2)) as second:
        send_event(second, execution, wait["token"], "!")
        assert second.finish(execution).output == "1,2,x!"


@pytest.mark.parametrize("keep_template", [True, False])
def test_a_step_of_an_earlier_release_continues_in_its_template_or_fails(
    folder: Path, tmp_path: Path, *, keep_template: bool
) -> None:
    """The appliance is updated while a step sleeps; without its template it fails clearly, and never wakes in another."""
    (tmp_path / "older").mkdir()
    make_older(tmp_path / "older")
    templates = tmp_path / "templates"
    body = 'const age = globalThis.age; await api.events.wait("go"); return [age, globalThis.age];'
    process = f"updated{next(PROCESSES)}"
    with flow_of(tmp_path, Settings(processes=1, slots=2, runtimes=tmp_path / "older", templates=templates)) as before:
        before.save(process, [code("ask", body)])
        before.flow.publish_process(before.scope, process, PublishRequest())
        execution = before.start(process)
        (wait,) = waiting(before, execution)
    if not keep_template:
        shutil.rmtree(templates)
    with flow_of(tmp_path, Settings(processes=1, slots=2, templates=templates)) as after:
        send_event(after, execution, wait["token"])
        done = after.finish(execution)
    if keep_template:
        assert done.output == ["older", "older"]
    else:
        assert (done.status, done.error["failure_class"], done.error["code"]) == ("failed", "system", "snapshot_template_missing")
