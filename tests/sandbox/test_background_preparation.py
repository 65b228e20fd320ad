"""The appliance starts without PHP and the type checker, which are prepared while it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from appliance.sandbox import Pool, Program, Settings, TypeCheck, runtimes
from appliance.sandbox.outcome import Failure
from appliance.sandbox.runtimes import background
from appliance.sandbox.runtimes.background import RuntimeFolder, RuntimePreparing
from tests.sandbox.half_prepared import Preparation
from tests.sandbox.paused_steps import until

PHP = Program("php", "s.php", {"s.php": "<?php return fn ($input) => 6 * 7;"})
JAVASCRIPT = Program("javascript", "s.js", {"s.js": "export default () => 6 * 7"})


@pytest.fixture
def half(prepared: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Preparation:
    preparation = Preparation(tmp_path)
    monkeypatch.setattr(background, "launch", preparation.launch)
    return preparation


@pytest.fixture
def folder(half: Preparation) -> Iterator[RuntimeFolder]:
    folder = RuntimeFolder(half.folder)
    yield folder
    folder.stop()


def states(folder: RuntimeFolder) -> dict[str, str]:
    return {each.name: each.state for each in folder.statuses()}


def test_php_runs_as_soon_as_it_is_prepared_and_javascript_before(half: Preparation) -> None:
    pool = Pool(Settings(processes=1, slots=1, runtimes=half.folder))
    pool.start()
    try:
        pool.prepare_runtimes()
        half.finish("types")
        until(lambda: [each.state for each in pool.runtimes()] == ["ready", "preparing"])
        until(lambda: pool.runtimes()[1].detail == "compiling php")
        assert pool.run(JAVASCRIPT, {}).output == 42
        failure = pool.run(PHP, {}).failure
        assert failure is not None
        assert (failure.code, failure.failure_class, failure.retryable) == ("runtime_preparing", "system", True)
        assert failure.message.startswith("PHP is still being prepared, for ")
        with ThreadPoolExecutor() as threads:
            compiling = threads.submit(pool.compile, PHP)
            half.finish("php")
            assert compiling.result() == []
        assert pool.run(PHP, {}).output == 42
        assert [each.state for each in pool.runtimes()] == ["ready", "ready"]
        assert half.compiled() == ["types", "php"]
    finally:
        pool.stop()


def test_types_are_not_checked_until_the_checker_is_prepared(half: Preparation) -> None:
    pool = Pool(Settings(processes=1, slots=1, runtimes=half.folder))
    pool.start()
    check = TypeCheck({"a.ts": "export default () => 1"}, "", [])
    try:
        pool.prepare_runtimes()
        failure = pool.check_types(check)
        assert isinstance(failure, Failure)
        assert failure.message.startswith("the type checker is still being prepared, for ")
        half.finish("types")
        until(lambda: pool.runtimes()[0].state == "ready")
        assert pool.check_types(check) == []
    finally:
        pool.stop()


def test_a_failed_preparation_gives_its_reason_and_the_others_go_on(half: Preparation, folder: RuntimeFolder) -> None:
    folder.start()
    half.finish("types", "No space left on device; free disk space")
    half.finish("php")
    until(lambda: states(folder) == {"types": "failed", "php": "ready"})
    with pytest.raises(runtimes.RuntimesMissing, match=r"the type checker could not be prepared: .*free disk space"):
        folder.part("types")
    assert folder.part("php").files


def test_a_preparation_that_is_killed_leaves_nothing_and_the_next_start_continues(half: Preparation, folder: RuntimeFolder) -> None:
    before = (half.folder / runtimes.MANIFEST).read_bytes()
    folder.start()
    until(lambda: folder.statuses()[0].detail == "compiling types")
    os.kill(half.children[0].pid, signal.SIGKILL)
    until(lambda: states(folder)["types"] == "failed")
    assert "signal 9" in folder.statuses()[0].detail
    assert (half.folder / runtimes.MANIFEST).read_bytes() == before
    folder.stop()
    again = RuntimeFolder(half.folder)
    again.start()
    half.finish("types")
    half.finish("php")
    until(lambda: set(states(again).values()) == {"ready"})
    again.stop()


def test_stopping_ends_the_preparation(half: Preparation, folder: RuntimeFolder) -> None:
    folder.start()
    until(lambda: folder.statuses()[0].detail == "compiling types")
    folder.stop()
    assert half.children[0].poll() == -signal.SIGKILL
    assert not runtimes.is_locked(half.folder)
    assert half.compiled() == ["types"]


def test_two_processes_do_not_prepare_the_same_runtime(half: Preparation, folder: RuntimeFolder) -> None:
    folder.start()
    until(lambda: runtimes.is_locked(half.folder))
    second = RuntimeFolder(half.folder)
    second.start()
    try:
        assert states(second) == {"types": "preparing", "php": "preparing"}
        half.finish("types")
        half.finish("php")
        until(lambda: set(states(second).values()) == set(states(folder).values()) == {"ready"})
        assert half.compiled() == ["types", "php"]
    finally:
        second.stop()


def test_a_command_without_a_preparation_says_what_to_run_or_that_it_goes_on(half: Preparation, folder: RuntimeFolder) -> None:
    with pytest.raises(runtimes.RuntimesMissing, match=r"run `python -m appliance\.sandbox\.runtimes\.prepare --out"):
        folder.part("php")
    with runtimes.lock(half.folder), pytest.raises(RuntimePreparing, match="PHP is still being prepared"):
        folder.part("php")


def test_code_cannot_claim_that_its_runtime_is_in_preparation(pool: Pool) -> None:
    source = "export default () => { throw Object.assign(new Error('no'), {code: 'runtime_preparing', failure_class: 'system'}) }"
    failure = pool.run(Program("javascript", "s.js", {"s.js": source}), {}).failure
    assert failure is not None
    assert (failure.code, failure.failure_class) == (None, "user_code")


def test_the_process_that_prepares_says_why_it_cannot(prepared: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with background.launch(tmp_path / "file", "php") as child:
        assert child.stderr is not None
        lines = child.stderr.read().decode().strip().splitlines()
    assert child.returncode == 1
    assert lines[-1].endswith("free disk space or allow writing there, then try again")
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19


def test_the_packages_are_fetched_by_any_python(tmp_path: Path) -> None:
    script = Path(runtimes.__file__).with_name("packages.py")
    command = [sys.executable, "-I", "-S", str(script), str(tmp_path)]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "npm is needed once to fetch the runtimes' packages; install Node.js or name it with --npm\n"
