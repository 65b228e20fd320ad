"""Surface: the stored VM of a step that sleeps, altered, cut, taken from elsewhere or put back in the database."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from appliance.core import clock
from appliance.core.database import db
from tests.api.resources import PREFIX, Resources
from tests.redteam.attempts import attempts

SOURCE = """
export default async function (input, api) {
  const own = input.own
  const first = await api.events.wait("first")
  const kept = own + first.n
  const second = await api.events.wait("second")
  return { kept, total: kept + second.n }
}
"""
Change = Callable[["Sleeper", "Sleeper"], tuple[str, tuple[Any, ...]]]


class Sleeper:
    """An execution whose one step waits for its first event; it knows a number that no other does."""

    def __init__(self, tenant: Resources, own: int) -> None:
        self.tenant, self.own = tenant, own
        code = {"language": "javascript", "source": SOURCE}
        self.process = tenant.once("sleeping", lambda: tenant.process(steps=[{"id": "sleep", "code": code}]))
        started = tenant.ask("POST", f"/processes/{self.process}/execute", {"own": own}, params={"wait": 0})
        self.execution = str(started["execution_id"])
        self.token = self.waiting()

    def view(self) -> dict[str, Any]:
        return dict(self.tenant.ask("GET", f"/processes/{self.process}/executions/{self.execution}"))

    def until(self, holds: Callable[[dict[str, Any]], Any]) -> Any:
        deadline, pause = clock.monotonic() + 30, threading.Event()
        while not (result := holds(self.view())):
            assert clock.monotonic() < deadline, self.view()
            pause.wait(0.02)
        return result

    def waiting(self, answered: str = "") -> str:
        """The token of the event that it waits for now, which is not the one that was answered."""

        def token(view: dict[str, Any]) -> str:
            tokens = [str(each["token"]) for each in (view.get("waiting_for") or {}).get("waits", [])]
            return next((each for each in tokens if each != answered and stored(self)), "")

        return str(self.until(token))

    def resume(self, token: str, n: int) -> None:
        address = f"{PREFIX}/processes/{self.process}/executions/{self.execution}/resume"
        self.tenant.client.post(address, json={"token": token, "input": {"n": n}})

    def end(self) -> dict[str, Any]:
        return dict(self.until(lambda view: view if view["status"] in ("succeeded", "failed", "timed_out", "cancelled") else None))


def stored(sleeper: Sleeper) -> bytes:
    rows = db.rows("SELECT sealed FROM suspended_step WHERE execution_id = ?", (sleeper.execution,))
    return bytes(rows[0][0]) if rows else b""


def sealed(alter: Callable[[bytes], bytes]) -> Change:
    return lambda mine, other: ("sealed = ?", (alter(stored(mine)),))


def flipped(at: Callable[[int], int]) -> Change:
    def alter(data: bytes) -> bytes:
        place = at(len(data))
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    return sealed(alter)


CHANGES: dict[str, Change] = {
    "its first byte": flipped(lambda size: 0),
    "a byte of the nonce": flipped(lambda size: 5),
    "a byte of the head": flipped(lambda size: 60),
    "a byte in the middle": flipped(lambda size: size // 2),
    "its last byte": flipped(lambda size: size - 1),
    "cut by one": sealed(lambda data: data[:-1]),
    "cut in half": sealed(lambda data: data[: len(data) // 2]),
    "a byte more": sealed(lambda data: data + b"\0"),
    "twice": sealed(lambda data: data + data),
    "empty": sealed(lambda data: b""),
    "zeros": sealed(lambda data: bytes(len(data))),
    "an open one": sealed(lambda data: b"GOSVM\x01" + bytes(200)),
    "that of another execution": lambda mine, other: ("sealed = ?", (stored(other),)),
    "another template": lambda mine, other: ("template = ?", ("0" * 64,)),
    "a template that is a path": lambda mine, other: ("template = ?", ("../../../etc/passwd",)),
    "no template": lambda mine, other: ("template = ?", ("",)),
    "another call pending": lambda mine, other: ("pending = ?", ("[2]",)),
    "no call pending": lambda mine, other: ("pending = ?", ("[]",)),
    "many calls pending": lambda mine, other: ("pending = ?", ("[1, 2, 3]",)),
    "pending that is no JSON": lambda mine, other: ("pending = ?", ("[",)),
    "pending that is a text": lambda mine, other: ("pending = ?", ('"1"',)),
    "a later position": lambda mine, other: ("position = ?", (99,)),
    "an earlier position": lambda mine, other: ("position = ?", (-1,)),
    "ages of time used": lambda mine, other: ("used_ms = ?", (1 << 50,)),
    "time given back": lambda mine, other: ("used_ms = ?", (-(1 << 50),)),
}


def alter_row(sleeper: Sleeper, change: tuple[str, tuple[Any, ...]]) -> None:
    what, values = change
    sql = f"UPDATE suspended_step SET {what} WHERE execution_id = ?"  # noqa: S608
    assert db.write(lambda: db.execute(sql, (*values, sleeper.execution))) == 1


@pytest.fixture(scope="module")
def others(ours: Resources, theirs: Resources) -> tuple[Sleeper, Sleeper]:
    """A sleeper of this tenant and one of another, whose numbers must appear nowhere else."""
    return Sleeper(ours, 5_000_000), Sleeper(theirs, 7_000_000)


def test_an_altered_snapshot_resumes_unchanged_or_fails(ours: Resources, others: tuple[Sleeper, Sleeper]) -> None:
    colleague, stranger = others
    changes: dict[str, tuple[Change, Sleeper]] = {name: (change, colleague) for name, change in CHANGES.items()}
    changes["that of another tenant"] = (CHANGES["that of another execution"], stranger)
    with attempts() as table:
        for number, (name, (change, other)) in enumerate(changes.items()):
            mine = Sleeper(ours, number)
            alter_row(mine, change(mine, other))
            mine.resume(mine.token, 10)
            table.check(name, *check_result(mine, number))
        mine = Sleeper(ours, 100)
        old = stored(mine)
        mine.resume(mine.token, 10)
        second = mine.waiting(mine.token)
        alter_row(mine, ("sealed = ?", (old,)))
        mine.resume(second, 1)
        table.check("its own of before the first event", *check_result(mine, 100))
        for name, sleeper in {"of this tenant": colleague, "of another": stranger}.items():
            sleeper.resume(sleeper.token, 10)
            sleeper.resume(sleeper.waiting(sleeper.token), 1)
            done = sleeper.end()
            table.check(f"whoever was copied, {name}, goes on", done.get("output") == right(sleeper.own), done)


def right(own: int) -> dict[str, int]:
    return {"kept": own + 10, "total": own + 11}


def check_result(sleeper: Sleeper, own: int) -> tuple[bool, Any]:
    """Failed with a clear class, or done with exactly what it would have answered."""

    def settled(view: dict[str, Any]) -> Any:
        waits = (view.get("waiting_for") or {}).get("waits", [])
        tokens = [str(each["token"]) for each in waits]
        if view["status"] == "waiting" and tokens and sleeper.token not in tokens:
            sleeper.resume(tokens[0], 1)
        return view if view["status"] in ("succeeded", "failed", "timed_out") else None

    done = sleeper.until(settled)
    error = done.get("error") or {}
    if done["status"] == "succeeded":
        return done["output"] == right(own), done["output"]
    return error.get("failure_class") in ("system", "timeout") or error.get("code") == "nondeterministic", error
