"""What happens with more requests than the appliance can do: how long accepted ones take, how fast others are refused, and how a
tenant with many connections affects one with few.

.venv/bin/python -m tests.bench.overload
"""

import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from appliance.connectors.testing import free_port

from .executions import execute, headers_of, publish, raise_rate, running_server, set_up, tenant_with_key
from .figures import Row, Section, show
from .http_load import Load, Pauses, run_load, run_overload

SECONDS = 8.0
CROWD, NOISY = 200, 40
GREEDY = Pauses(refusal=0.25)  # shorter than Retry-After asks for
QUIET = Pauses(response=0.03)


def measure_overload(port: int, headers: Mapping[str, str]) -> list[Row]:
    """Eight connections, which the appliance can serve, then two hundred."""
    request = [execute("one", headers)]
    run_load(port, request, 4, 1.0)
    served = run_load(port, request, 8, SECONDS / 2)
    by_status = run_overload(port, request, CROWD, SECONDS, GREEDY)
    rows = [Row("8 connections", _figures(served))]
    aims = {200: "p99 < 1,000 ms", 503: "p50 < 50 ms"}
    for status, load in sorted(by_status.items()):
        rows.append(Row(f"{CROWD} connections, answered with {status}", _figures(load), aim=aims.get(status, "none")))
    return rows


def measure_fairness(port: int, quiet: Mapping[str, str], noisy: Mapping[str, str]) -> list[Row]:
    """The executions of a tenant with one connection that pauses, alone and beside a tenant with forty that do not."""
    request = [execute("one", quiet)]
    alone = run_overload(port, request, 1, SECONDS, QUIET)[200]
    with ThreadPoolExecutor(1) as thread:
        beside = thread.submit(run_overload, port, [execute("one", noisy)], NOISY, SECONDS + 2, GREEDY)
        quiet_load = run_overload(port, request, 1, SECONDS, QUIET)
        noise = beside.result()
    rows = [Row("a quiet tenant, alone", _figures(alone))]
    for status, load in sorted(quiet_load.items()):
        aim = f"p99 ≤ 2 times; is {load.p99 / alone.p99:.1f}" if status == 200 else "none"
        rows.append(Row(f"a quiet tenant, beside one with {NOISY} connections, answered with {status}", _figures(load), aim=aim))
    for status, load in sorted(noise.items()):
        rows.append(Row(f"the one with {NOISY}, answered with {status}", _figures(load)))
    return rows


def _figures(load: Load) -> dict[str, float]:
    return {"per second": load.requests / load.seconds, "p50 ms": load.p50, "p99 ms": load.p99}


def measure_section() -> Section:
    about = (
        f"`POST …/execute?wait=20` of one code step for {SECONDS:.0f} s. Who is refused tries again after "
        f"{GREEDY.refusal * 1000:.0f} ms, so that most of the offered load is beyond what can be done. A quiet tenant sends one "
        f"request at a time, {QUIET.response * 1000:.0f} ms after the last response."
    )
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        section = Section("Overload", about, [])
        headers = headers_of(port, *set_up(folder, port))
        noisy = headers_of(port, *tenant_with_key(folder, "noisy"))
        raise_rate(folder)
        with running_server(folder, port):
            for each in (headers, noisy):
                publish(port, each)
            section.rows += measure_overload(port, headers) + measure_fairness(port, headers, noisy)
    return section


if __name__ == "__main__":
    show(measure_section())
