"""Executions that sleep in the middle of their code survive the death of the whole appliance."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chaos.harness import Chaos
from tests.processes.world import wait_until

MANY = 200
NESTED = """
type Event = {value: number};
export default async function (input: {start: number}, api: Api) {
  const seen: string[] = ["begun"];
  const dice = Math.random();
  class Sum {
    #total = BigInt(input.start);
    add(n: number) { this.#total += BigInt(n); return this; }
    get total() { return String(this.#total); }
  }
  const sum = new Sum();
  const third = async () => { const event = await api.events.wait("third") as Event; seen.push("third"); return event.value; };
  const second = async () => {
    const answer = await api.processes.execute("child", {}, {wait: true}) as number;
    seen.push("second");
    return answer + await third();
  };
  const first = async () => {
    const event = await api.events.wait("first") as Event;
    seen.push("first");
    return event.value + await second();
  };
  sum.add(await first());
  return {total: sum.total, seen, same: dice === dice && dice < 1};
}
"""
CHILD = 'export default async (input, api) => (await api.events.wait("child")).value'
EACH = 'export default async (input, api) => { const n = input.n; return n + (await api.events.wait("go")).add; }'


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Chaos]:
    process = Chaos(tmp_path, "none", 1, worker=False)
    process.prepare()
    try:
        process.start()
        yield process
    finally:
        process.stop()


def publish(client: httpx.Client, process_id: str, language: str, source: str, **more: Any) -> None:
    definition = {"id": process_id, "steps": [{"id": "sleep", "code": {"language": language, "source": source}}], **more}
    client.put(f"/api/v1/processes/{process_id}", json=definition).raise_for_status()
    answer = client.post(f"/api/v1/processes/{process_id}/publish", json={})
    assert answer.status_code == 200, answer.text


def start(client: httpx.Client, process_id: str, input_: dict[str, Any]) -> str:
    answer = client.post(f"/api/v1/processes/{process_id}/execute", json=input_)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["data"]["execution_id"])


def show(client: httpx.Client, process_id: str, execution: str) -> dict[str, Any]:
    answer = client.get(f"/api/v1/processes/{process_id}/executions/{execution}")
    answer.raise_for_status()
    execution_: dict[str, Any] = answer.json()["data"]
    assert execution_["status"] not in ("failed", "cancelled", "timed_out"), execution_
    return execution_


def wait_for(client: httpx.Client, process_id: str, execution: str, name: str) -> dict[str, Any]:
    """The execution's wait of this name or kind, as soon as there is one."""

    def find_wait() -> dict[str, Any] | None:
        waits = (show(client, process_id, execution).get("waiting_for") or {}).get("waits", [])
        return next((each for each in waits if name in (each.get("name"), each["kind"])), None)

    waiting: dict[str, Any] = wait_until(find_wait)
    return waiting


def resume(client: httpx.Client, process_id: str, execution: str, token: str, value: dict[str, Any]) -> None:
    answer = client.post(f"/api/v1/processes/{process_id}/executions/{execution}/resume", json={"token": token, "input": value})
    assert answer.status_code == 202, answer.text


def output(client: httpx.Client, process_id: str, execution: str) -> Any:
    wait_until(lambda: show(client, process_id, execution)["status"] == "succeeded")
    return show(client, process_id, execution)["output"]


def test_three_nested_awaits_survive_three_kills(chaos: Chaos) -> None:
    with chaos.client() as client:
        publish(client, "child", "javascript", CHILD)
        publish(client, "nested", "typescript", NESTED, grants={"processes": ["child"]})
        execution = start(client, "nested", {"start": 1})
        first = wait_for(client, "nested", execution, "first")
    for name in ("first", "child", "third"):
        chaos.kill()
        chaos.start()
        with chaos.client() as client:
            if name == "child":
                below = wait_for(client, "nested", execution, "child")["execution_id"]
                resume(client, "child", below, wait_for(client, "child", below, "child")["token"], {"value": 20})
            else:
                token = first["token"] if name == "first" else wait_for(client, "nested", execution, "third")["token"]
                resume(client, "nested", execution, token, {"value": 100 if name == "first" else 3})
            if name != "third":
                wait_for(client, "nested", execution, "child" if name == "first" else "third")
    with chaos.client() as client:
        done = output(client, "nested", execution)
    assert done == {"total": "124", "seen": ["begun", "first", "second", "third"], "same": True}


def test_two_hundred_sleeping_executions_survive_a_kill(chaos: Chaos) -> None:
    with chaos.client() as client:
        publish(client, "each", "javascript", EACH)
        started = [start(client, "each", {"n": number}) for number in range(MANY)]
        for execution in started:
            wait_for(client, "each", execution, "go")
    chaos.kill()
    chaos.start()
    with chaos.client() as client:
        listed = client.get("/api/v1/executions?status=waiting&limit=500").json()["data"]
        assert {each["execution_id"] for each in listed} == set(started)
        tokens = {each["execution_id"]: each["waiting_for"]["waits"][0]["token"] for each in listed}
        for execution in started:
            resume(client, "each", execution, tokens[execution], {"add": 1000})
        assert [output(client, "each", execution) for execution in started] == [1000 + number for number in range(MANY)]
