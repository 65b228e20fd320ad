"""How busy the processors are, from figures of the process, its container and the machine."""

import threading
import time
from pathlib import Path

import pytest

from appliance.sites.front import processor_load
from appliance.sites.front.processor_load import ProcessorLoad, read_quota


@pytest.fixture(autouse=True)
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that idles and a container without a limit."""
    monkeypatch.setattr(processor_load, "MACHINE", tmp_path / "stat")
    monkeypatch.setattr(processor_load, "CONTAINER", tmp_path)
    machine(tmp_path, busy=0, idle=0)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    return tmp_path


def machine(folder: Path, *, busy: int, idle: int) -> None:
    (folder / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 1 1 1\n")


def rest() -> None:
    """Let 50 ms pass without using a processor."""
    threading.Event().wait(0.05)


def test_a_process_that_works_is_busy_and_one_that_waits_is_not() -> None:
    load = ProcessorLoad()
    ends = time.process_time() + 0.2
    before = time.monotonic()
    while time.process_time() < ends:
        pass
    worked_all_the_time = time.process_time() - ends + 0.2 >= processor_load.BUSY * (time.monotonic() - before)
    assert load.is_busy() == worked_all_the_time
    rest()
    assert not load.is_busy()


@pytest.mark.parametrize(("busy", "idle", "expected"), [(95, 5, True), (50, 50, False), (0, 0, False)])
def test_a_machine_with_hardly_anything_idle_is_busy(figures: Path, busy: int, idle: int, expected: bool) -> None:
    load = ProcessorLoad()
    rest()
    machine(figures, busy=busy, idle=idle)
    assert load.is_busy() is expected


@pytest.mark.parametrize(("used", "expected"), [(1_000_000, True), (0, False)])
def test_a_container_that_uses_what_it_may_is_busy(figures: Path, used: int, expected: bool) -> None:
    (figures / "cpu.max").write_text("50000 100000\n")
    (figures / "cpu.stat").write_text("usage_usec 1000\nuser_usec 1\n")
    load = ProcessorLoad()
    rest()
    (figures / "cpu.stat").write_text(f"usage_usec {1000 + used}\nuser_usec 1\n")
    assert (read_quota(), load.is_busy()) == (0.5, expected)


def test_a_system_without_these_figures_knows_the_process_only(figures: Path) -> None:
    (figures / "stat").unlink()
    (figures / "cpu.max").unlink()
    load = ProcessorLoad()
    rest()
    assert not load.is_busy()
