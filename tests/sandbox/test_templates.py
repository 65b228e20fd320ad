"""Templates of former versions: stored while a sleeping step needs them, verified, and refused when they were altered."""

from __future__ import annotations

import json
import os
import select
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from appliance.sandbox import Pool, Program, Settings, Snapshot, runtimes
from appliance.sandbox.runtimes import packages, wasmfile
from appliance.sandbox.runtimes.template import make_template
from appliance.sandbox.worker.templates import Templates
from tests.sandbox.older_runtimes import make_older
from tests.sandbox.sleepy import SleepyHost, answers, failed, finished, suspended

SOURCE = """export default async function (input, api) {
  const before = globalThis.age ?? 'current'; await api.human.request({});
  try { null.x } catch (fault) { return [before, globalThis.age ?? 'current', input] } }"""


@pytest.fixture(scope="module")
def older(prepared: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("older")
    make_older(folder)
    return folder


@pytest.fixture
def program(make_program: Callable[..., Program]) -> Program:
    return make_program(SOURCE)


@pytest.fixture(scope="module")
def suspend_in_older(older: Path) -> Iterator[Callable[[Program], Snapshot]]:
    """Suspends a step of input 5 in the older appliance, which keeps its template in `older/templates`."""
    pool = Pool(Settings(processes=1, slots=1, runtimes=older, templates=older / "templates"))
    pool.start()
    yield lambda program: suspended(pool.run(program, 5, SleepyHost()))
    pool.stop()


@pytest.fixture
def asleep(older: Path, tmp_path: Path, program: Program, suspend_in_older: Callable[[Program], Snapshot]) -> Snapshot:
    """A step that was suspended before the appliance became another version, which took the templates along."""
    shutil.copytree(older / "templates", tmp_path / "templates")
    return suspend_in_older(program)


@pytest.fixture
def newer(prepared: None, tmp_path: Path) -> Iterator[Pool]:
    pool = Pool(Settings(processes=1, slots=2, templates=tmp_path / "templates", former_idle_seconds=0.5))
    pool.start()
    yield pool
    pool.stop()


def wake(pool: Pool, program: Program, snapshot: Snapshot) -> object:
    return finished(pool.run(program, None, SleepyHost(*answers(snapshot, 1)), resume=snapshot))


def test_a_step_goes_on_in_the_template_it_was_suspended_in(asleep: Snapshot, newer: Pool, program: Program) -> None:
    assert asleep.template != newer.templates.current
    assert wake(newer, program, asleep) == ["older", "older", 5]
    fresh = suspended(newer.run(program, 6, SleepyHost()))
    assert (fresh.template, wake(newer, program, fresh)) == (newer.templates.current, ["current", "current", 6])


def test_it_may_sleep_again_and_still_belongs_to_its_template(
    asleep: Snapshot, suspend_in_older: Callable[[Program], Snapshot], newer: Pool, make_program: Callable[..., Program]
) -> None:
    twice = make_program("""export default async function (input, api) {
      return [await api.human.request(1), await api.human.request(2), globalThis.age] }""")
    first = suspend_in_older(twice)
    second = suspended(newer.run(twice, None, SleepyHost(*answers(first, "a")), resume=first))
    assert second.template == first.template
    assert wake(newer, twice, second) == ["a", 1, "older"]


def test_the_process_of_a_former_template_ends_when_nobody_uses_it(asleep: Snapshot, newer: Pool, program: Program) -> None:
    assert newer.former_process_ids() == []
    wake(newer, program, asleep)
    (number,) = newer.former_process_ids()
    watched = os.pidfd_open(number)
    try:
        assert select.select([watched], [], [], 10)[0]
    finally:
        os.close(watched)
    assert newer.former_process_ids() == []
    assert wake(newer, program, asleep) == ["older", "older", 5]


def template_path(tmp_path: Path, snapshot: Snapshot) -> Path:
    return tmp_path / "templates" / f"{snapshot.template}.wasm"


def test_a_missing_template_is_refused(asleep: Snapshot, newer: Pool, program: Program, tmp_path: Path) -> None:
    template_path(tmp_path, asleep).unlink()
    outcome = newer.run(program, None, SleepyHost(*answers(asleep, 1)), resume=asleep)
    assert failed(outcome) == ("system", "snapshot_template_missing")
    assert outcome.failure is not None
    assert not outcome.failure.retryable


def test_a_template_with_an_altered_byte_is_refused(asleep: Snapshot, newer: Pool, program: Program, tmp_path: Path) -> None:
    path = template_path(tmp_path, asleep)
    binary = bytearray(path.read_bytes())
    binary[len(binary) // 2] ^= 1
    path.write_bytes(binary)
    outcome = newer.run(program, None, SleepyHost(*answers(asleep, 1)), resume=asleep)
    assert failed(outcome) == ("system", "snapshot_template_missing")


def test_a_template_of_another_protocol_is_refused(
    asleep: Snapshot, newer: Pool, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtimes, "PROTOCOL", runtimes.PROTOCOL + 1)
    outcome = newer.run(program, None, SleepyHost(*answers(asleep, 1)), resume=asleep)
    assert failed(outcome) == ("system", "snapshot_template_missing")


def test_a_snapshot_cannot_be_passed_off_as_one_of_another_template(asleep: Snapshot, newer: Pool, program: Program) -> None:
    other = replace(asleep, template=newer.templates.current)
    assert failed(newer.run(program, None, SleepyHost(), resume=other)) == ("system", "snapshot_damaged")


def test_without_a_folder_only_the_current_template_exists(asleep: Snapshot, pool: Pool, program: Program) -> None:
    assert failed(pool.run(program, None, SleepyHost(), resume=asleep)) == ("system", "snapshot_template_missing")


def test_the_current_template_is_stored_once_and_repaired(prepared: None, tmp_path: Path) -> None:
    current = runtimes.default_folder() / runtimes.TEMPLATE
    templates = Templates(tmp_path, current)
    templates.store_current()
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() == current.read_bytes()
    written = path.stat().st_mtime_ns
    templates.store_current()
    assert path.stat().st_mtime_ns == written
    path.write_bytes(b"torn")
    templates.store_current()
    assert path.read_bytes() == current.read_bytes()


def test_unneeded_templates_are_deleted_except_the_current_one(prepared: None, tmp_path: Path) -> None:
    templates = Templates(tmp_path, runtimes.default_folder() / runtimes.TEMPLATE)
    templates.store_current()
    for each in ("a", "b"):
        (tmp_path / f"{each * 64}.wasm").touch()
    (tmp_path / "notes.txt").touch()
    templates.forget({"a" * 64})
    assert {each.name for each in tmp_path.iterdir()} == {f"{templates.current}.wasm", "a" * 64 + ".wasm", "notes.txt"}


def test_a_template_name_that_is_a_path_is_no_template(prepared: None, tmp_path: Path, pool: Pool, program: Program) -> None:
    snapshot = suspended(pool.run(program, 1, SleepyHost()))
    other = replace(snapshot, template="../" + snapshot.template)
    assert failed(pool.run(program, None, SleepyHost(), resume=other)) == ("system", "snapshot_damaged")


# ---- the template itself


def test_the_same_sources_make_the_same_template(prepared: None) -> None:
    folder = runtimes.default_folder()
    quickjs = packages.fetch(folder) / "quickjs-wasi" / "quickjs.wasm"
    template, boot = make_template(quickjs.read_bytes())
    assert template == (folder / runtimes.TEMPLATE).read_bytes()
    facts = json.loads(wasmfile.read_custom(template, runtimes.FACTS))
    assert facts == {"protocol": runtimes.PROTOCOL, "boot": asdict(boot)}


def test_memory_and_stack_pointer_are_all_the_state_there_is(prepared: None) -> None:
    """A second mutable global would be state that no snapshot carries."""
    sections = wasmfile.read_sections((runtimes.default_folder() / runtimes.TEMPLATE).read_bytes())
    (body,) = [each.body for each in sections if each.id == wasmfile.GLOBAL]
    assert wasmfile.read_unsigned(body, 0)[0] == 1


def test_processes_that_start_at_once_store_the_same_template(tmp_path: Path) -> None:
    current, folder = tmp_path / "current", tmp_path / "templates"
    current.write_bytes(os.urandom(1 << 20))
    templates, begin = Templates(folder, current), threading.Barrier(8)

    def store(_: int) -> None:
        begin.wait()
        templates.store_current()

    for _ in range(5):
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(store, range(8)))
        (stored,) = folder.iterdir()
        assert stored.read_bytes() == current.read_bytes()
        stored.unlink()


def test_old_temporary_files_are_deleted(tmp_path: Path) -> None:
    current, folder = tmp_path / "current", tmp_path / "templates"
    current.write_bytes(b"template")
    templates = Templates(folder, current)
    templates.store_current()
    fresh, old = folder / "a.new", folder / "b.new"
    for each in (fresh, old):
        each.write_bytes(b"temp")
    os.utime(old, (0, 0))
    templates.forget(set())
    assert fresh.exists()
    assert not old.exists()
