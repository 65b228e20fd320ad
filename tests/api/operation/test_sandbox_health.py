"""A sandbox process that dies is reported in Monitor and replaced; the appliance stays ready while another one lives."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from appliance.core import clock
from appliance.testing.running import Running, make_config, start


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Running]:
    appliance = start(make_config(tmp_path, sandbox__processes=2, sandbox__slots=3))
    yield appliance
    appliance.stop()


def sandbox(client: httpx.Client) -> dict[str, Any]:
    health: dict[str, Any] = client.get("/api/v1/logs/queues").json()["data"]["sandbox"]
    return health


def test_a_dead_process_is_replaced_and_seen_while_the_appliance_stays_ready(live: Running) -> None:
    with live.api("acme") as client:
        before = sandbox(client)
        assert (before["processes"], before["slots"], before["busy"], before["restarts"]) == (2, 6, 0, 0)
        assert before["confined"] == 2
        assert {each["text"].split(":")[0] for each in before["protections"]} == {"seccomp", "landlock", "user", "privileges"}
        os.kill(live.services.sandbox.process_ids()[0], signal.SIGKILL)
        ends = clock.monotonic() + 10
        while sandbox(client)["restarts"] == 0:
            assert client.get("/readyz").status_code == 200
            assert clock.monotonic() < ends
        assert sandbox(client)["restart_reasons"] == {"lost": 1}


def test_without_any_process_it_is_not_ready(live: Running) -> None:
    pool = live.services.sandbox
    seen: list[int] = []
    with live.api("acme") as client:
        assert client.get("/readyz").status_code == 200
        code: Any = pool._code
        # As it is between the death of the last one and the start of the next.
        with code._lock:
            processes, code._processes = code._processes, []
        seen.append(client.get("/readyz").status_code)
        seen.append(client.get("/healthz").status_code)
        with code._lock:
            code._processes = processes
        seen.append(client.get("/readyz").status_code)
    assert seen == [503, 200, 200]
