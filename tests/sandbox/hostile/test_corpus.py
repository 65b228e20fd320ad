"""The corpus is as large as it must be, reached canaries are reported, and neighbours are unharmed meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from appliance.sandbox import Limits, Program
from tests.sandbox.hostile.checks import check_script
from tests.sandbox.hostile.corpus import (
    CLASSES,
    LEAST_SCRIPTS,
    CorpusFault,
    Script,
    read_class,
    read_family,
)
from tests.sandbox.hostile.yard import Neighbour, Yard


def write_entries(path: Path, entries: list[dict[str, object]]) -> Path:
    path.write_text(yaml.safe_dump(entries))
    return path


def numbered(count: int, **more: object) -> list[dict[str, object]]:
    return [{"name": f"script {number}", "step": f"return {number}", "output": number} | more for number in range(count)]


def test_a_class_that_is_too_small_is_refused(tmp_path: Path) -> None:
    assert len(read_class(write_entries(tmp_path / "loops.yaml", numbered(LEAST_SCRIPTS)), "javascript")) == LEAST_SCRIPTS
    with pytest.raises(CorpusFault, match="fewer than 20"):
        read_class(write_entries(tmp_path / "loops.yaml", numbered(LEAST_SCRIPTS - 1)), "javascript")


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "no end", "step": "return 1"},
        {"name": "two ends", "step": "return 1", "output": 1, "fails": "user_code"},
        {"name": "nothing to run", "output": 1},
        {"name": "a word that means nothing", "step": "return 1", "output": 1, "ouput": 2},
    ],
)
def test_a_script_that_does_not_say_how_it_ends_is_refused(tmp_path: Path, entry: dict[str, object]) -> None:
    with pytest.raises(CorpusFault):
        read_class(write_entries(tmp_path / "loops.yaml", [*numbered(LEAST_SCRIPTS), entry]), "javascript")


def test_the_same_script_twice_is_refused(tmp_path: Path) -> None:
    twice = [*numbered(LEAST_SCRIPTS), {"name": "another name", "step": "return 3", "output": 3}]
    with pytest.raises(CorpusFault, match="twice"):
        read_class(write_entries(tmp_path / "loops.yaml", twice), "javascript")


def test_no_file_is_left_out_of_the_classes() -> None:
    for family in ("javascript", "php"):
        assert {path.stem for path in (Path(__file__).parent / family).iterdir()} == set(CLASSES)


# ---- the checks detect failures


def script(step: str, **fields: object) -> Script:
    entry = Program("javascript", "s.js", {"s.js": f"export default async (input, api) => {{ {step} }}"}, "ten_hostile")
    values: dict[str, object] = {"limits": Limits(wall_ms=1000), "output": None, "fails": ()} | fields
    return Script("javascript", "loops", "a control", entry, **values)  # type: ignore[arg-type]


def test_reached_canaries_are_reported(javascript_yard: Yard) -> None:
    yard = javascript_yard
    assert yard.find_reached("nothing") == []
    for secret in (yard.file, yard.environment, yard.tenant):
        assert yard.find_reached({"output": [f"found {secret}"]}) == [secret]
    with socket.create_connection(("127.0.0.1", yard.input["port"])):
        assert yard.find_reached("nothing") == ["the port was called"]
    stranger = yard.path.parent / "written"
    stranger.touch()
    assert yard.find_reached("nothing") == ["the folder was changed"]
    stranger.unlink()


@pytest.mark.parametrize(
    "wrong",
    [
        script("return 2", output=1),
        script("return 1", fails=(("timeout", "time_limit"),)),
        script("throw new Error('x')", fails=(("timeout", "time_limit"),)),
        script("throw new Error('x')", fails=(("user_code", None),), message="y"),
        script("console.log('a')", logs=["b"]),
        script("await api.datapool.find('o', 1)", calls=[]),
        script("return input.port && api.secrets.get(input.mark)", output={}),
    ],
    ids=["output", "no failure", "another failure", "another message", "another log", "another call", "another answer"],
)
def test_a_script_that_ends_differently_fails_the_check(javascript_yard: Yard, wrong: Script) -> None:
    with pytest.raises(AssertionError):
        check_script(wrong, javascript_yard)


def test_an_ended_process_and_a_harmed_sleeper_are_detected(prepared: None, tmp_path: Path) -> None:
    yard = Yard("javascript", tmp_path)
    assert yard.ended() == set()
    for number in yard.pool.process_ids():
        os.kill(number, signal.SIGKILL)
    yard.neighbour.go_on(2)
    assert yard.ended()
    with pytest.raises(AssertionError, match="the sleeper was harmed"):
        yard.end()


def test_a_neighbour_with_a_wrong_answer_is_detected(javascript_yard: Yard) -> None:
    wrong = Program("javascript", "s.js", {"s.js": "export default () => ({ twice: 3 })"}, "ten_neighbour")
    neighbour = Neighbour(javascript_yard.pool, wrong, "secret")
    neighbour.go_on(1)
    neighbour.end()
    assert {"twice": 3} in neighbour.wrong()


# ---- neighbours


def measure(yard: Yard, work: Callable[[], None]) -> list[float]:
    """The seconds of each of the neighbour's steps during some work."""
    before = len(yard.neighbour.seconds)
    work()
    return yard.neighbour.seconds[before:]


def test_neighbours_in_the_same_process_are_unharmed_while_hostile_code_runs(
    javascript_yard: Yard, record_property: Callable[[str, object], None]
) -> None:
    yard = javascript_yard
    hostile = [each for each in read_family("javascript") if not each.expression][::16]

    def attack() -> None:
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(yard.run, hostile))

    quiet = measure(yard, lambda: yard.neighbour.go_on(20))
    loud = measure(yard, attack)
    record_property("neighbour_ms", [round(statistics.median(each) * 1000, 2) for each in (quiet, loud)])
    assert yard.neighbour.wrong() == []
    assert len(loud) > 10
    # Not a measurement: three endless loops and two processors leave little, but nobody may wait for a script to end.
    assert statistics.median(loud) < 0.25
    assert yard.ended() == set()
