"""Replay over HTTP and by `gos replay`."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from appliance.cli import main
from appliance.testing.running import Running
from tests.processes.test_api import BASE, WAIT, data, error
from tests.processes.world import code, rule

Gos = Callable[..., tuple[int, str, str]]
BODY = "await api.datapool.query('none-such', {sort: 'SORT'}).catch(() => null); return {n: 1, at: input.at, same: [1, 2]}"
GRANTS = {"datapool": {"none-such": ["read"]}}


@pytest.fixture
def changed(acme: httpx.Client, request: pytest.FixtureRequest) -> str:
    """An execution of version 1 of a process; version 2 makes another call, the draft has another output."""
    address = f"{BASE}/{request.node.name.removeprefix('test_').replace('_', '-')[:55].rstrip('-')}"

    def save(body: str) -> None:
        steps = [code("a", body, input={"at": "= Date.now()"}), rule("b", "= steps.a.n")]
        assert acme.put(address, json={"steps": steps, "grants": GRANTS}).is_success

    for sort in ("one", "other"):
        save(BODY.replace("SORT", sort))
        data(acme.post(f"{address}/publish", json={}))
    save(BODY.replace("SORT", "one").replace("{n: 1", "{n: null").replace("2]", "3]"))
    view = data(acme.post(f"{address}/execute?wait=10&version=1", json={}))
    assert view["status"] == "succeeded", view
    return str(view["links"]["self"])


def test_its_own_version_is_identical(acme: httpx.Client, changed: str) -> None:
    replay = data(acme.post(f"{changed}/replay"))
    assert replay["identical"] is True
    assert replay["steps"] == [
        {"step": "a", "path": "a", "kind": "code", "result": "identical", "diff": []},
        {"step": "b", "path": "b", "kind": "rule", "result": "identical", "diff": []},
    ]
    assert replay["output"] == {"recorded": 1, "replayed": 1, "diff": []}
    assert (replay["version"], replay["replayed_version"], "first_divergence" in replay) == (1, 1, False)


def test_another_version_names_the_call_that_differs(acme: httpx.Client, changed: str) -> None:
    replay = data(acme.post(f"{changed}/replay", json={"version": 2}))
    requests = [{"method": "datapool.query", "args": ["none-such", {"sort": sort}]} for sort in ("one", "other")]
    assert replay["first_divergence"] == {"step": "a", "path": "a", "call": 1, "recorded": requests[0], "replayed": requests[1]}
    assert [step["result"] for step in replay["steps"]] == ["diverged", "identical"]


def test_the_draft_shows_the_changes_with_their_nulls(acme: httpx.Client, changed: str) -> None:
    replay = data(acme.post(f"{changed}/replay", json={"version": "draft"}))
    assert replay["replayed_version"] == "draft"
    assert replay["steps"][0]["diff"] == [
        {"op": "replace", "path": "/n", "from": 1, "to": None},
        {"op": "replace", "path": "/same/1", "from": 2, "to": 3},
    ]
    assert replay["output"] == {"recorded": 1, "replayed": None, "diff": [{"op": "replace", "path": "", "from": 1, "to": None}]}
    one = data(acme.post(f"{changed}/replay", json={"version": "draft", "step": "b"}))
    assert ([step["path"] for step in one["steps"]], one["identical"], "output" in one) == (["b"], True, False)


def test_a_replay_that_is_not_possible_is_refused(
    acme: httpx.Client, globex: httpx.Client, changed: str
) -> None:
    assert error(acme.post(f"{changed}/replay", json={"version": 77}), 404)["code"] == "not_found"
    assert error(acme.post(f"{changed}/replay", json={"version": "latest"}), 422)["code"] == "validation_failed"
    assert error(acme.post(f"{changed}/replay", json={"step": "zzz"}), 422)["details"][0]["pointer"] == "/step"
    assert error(globex.post(f"{changed}/replay", json={}), 404)["code"] == "not_found"
    address = f"{BASE}/what-cannot-be-replayed-now"
    data(acme.put(address, json={"steps": [WAIT]}), 201)
    data(acme.post(f"{address}/publish", json={}))
    waits = data(acme.post(f"{address}/execute", json={}), 202)["links"]["self"]
    assert error(acme.post(f"{waits}/replay", json={}), 409)["code"] == "conflict"
    data(acme.post(f"{waits}/cancel"))


def test_a_key_that_may_not_read_does_not_see_what_was_recorded(running: Running, changed: str) -> None:
    with running.api("acme", ["processflow.execute"]) as narrow:
        refused = error(narrow.post(f"{changed}/replay", json={}), 403)
    assert (refused["code"], refused["scope"]) == ("scope_missing", "processflow.read")


@pytest.fixture
def gos(running: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gos:
    """Runs a command against tenant acme; answers exit code, output and errors."""
    monkeypatch.setenv("GOS_URL", running.config.tenant_url("acme"))
    monkeypatch.setenv("GOS_API_KEY", running.key("acme"))

    def run(*argv: str) -> tuple[int, str, str]:
        return main(list(argv)), *capsys.readouterr()

    return run


def test_gos_replay_says_what_differs_and_fails_when_something_does(gos: Gos, changed: str) -> None:
    execution = changed.rpartition("/")[2]
    assert gos("replay", execution) == (0, f"{execution} ran version 1; replayed with version 1: 2 step runs, identical\n", "")
    exit_code, printed, _ = gos("replay", execution, "--version", "2")
    assert (exit_code, printed.splitlines()) == (1, [
        "! a  diverged", "    at call 1", '    recorded  datapool.query("none-such", {"sort": "one"})',
        '    replayed  datapool.query("none-such", {"sort": "other"})',
        f"{execution} ran version 1; replayed with version 2: 1 of 2 step runs differ",
    ])  # fmt: skip
    exit_code, printed, _ = gos("replay", execution, "--version", "draft")
    assert (exit_code, printed.splitlines()) == (1, [
        "~ a  output differs", "    ~ /n  1 -> nothing", "    ~ /same/1  2 -> 3", "~ b  output differs", "    ~ /  1 -> nothing",
        "~ output", "    ~ /  1 -> nothing",
        f"{execution} ran version 1; replayed with the draft: 2 of 2 step runs differ",
    ])  # fmt: skip
    exit_code, printed, _ = gos("replay", execution, "--step", "b", "--json")
    assert (exit_code, json.loads(printed)["steps"][0]["result"]) == (0, "identical")


def test_gos_replay_says_what_to_do_about_a_wrong_id_or_version(gos: Gos, capsys: pytest.CaptureFixture[str]) -> None:
    exit_code, _, errors = gos("replay", "exe_nothing")
    assert (exit_code, errors.startswith("gos: there is no execution 'exe_nothing';")) == (1, True)
    with pytest.raises(SystemExit) as usage:
        gos("replay", "exe_nothing", "--version", "newest")
    assert usage.value.code == 2
    assert "neither a version number nor `draft`" in capsys.readouterr().err


def test_only_so_many_steps_are_shown_in_detail(acme: httpx.Client, gos: Gos) -> None:
    address = f"{BASE}/only-so-many-steps"

    def save(expression: str) -> Any:
        steps = [{"id": "each", "for_each": {"items": "= input.items", "steps": [rule("r", expression)]}}]
        data(acme.put(address, json={"steps": steps}), 201 if expression == "= item" else 200)
        data(acme.post(f"{address}/publish", json={}))

    save("= item")
    view = data(acme.post(f"{address}/execute?wait=20", json={"items": list(range(120))}))
    save("= item + 1")
    replay = data(acme.post(f"{view['links']['self']}/replay", json={"version": 2}))
    assert [step["result"] for step in replay["steps"]] == ["output_differs"] * 121
    assert [len(step["diff"]) for step in replay["steps"]] == [120] + [1] * 99 + [0] * 21
    printed = gos("replay", view["execution_id"], "--version", "2")[1].splitlines()
    assert printed[0] == "~ each  output differs"
    assert "… and 71 more; --json prints all" in printed
