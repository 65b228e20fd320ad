"""How long every page of the console takes over 100,000 executions and 100,000 documents.

    python -m tests.bench.console [--count 100000] [--rounds 30] [--only PART] [--folder FOLDER]

A real appliance with a tenant after a busy month; each page is requested by a signed-in user.  The times are the server's own
(`Server-Timing`): from the request to the complete response, and the processor time of the thread that rendered the page; on a
busy machine the rest is waiting for a processor.  `loop` is the time of a loop that never changes, measured before each of the
requests: where two processors are the threads of one core, everything takes up to 1.8 times as long while the other one works, and
so does the loop.  Exits with 1 when a page's median is above 30 ms.
"""

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx

from appliance.testing.running import Running, make_config, start
from tests.bench.documents import fill_documents
from tests.bench.filling import fill
from tests.console.browser import Browser
from tests.screenshots.furnishing import LOGIN, PASSWORD, TENANT, furnish
from tests.screenshots.pages import Screen, screens

from .figures import Row, Section

COUNT, ROUNDS, AIM_MS = 100_000, 30, 30.0
REPORTED_COUNT, REPORTED_ROUNDS, REPORTED_PAGES = 20_000, 7, 8
# Pages that are only worth measuring for a tenant with much data.
FILLED = (
    "/console/executions/{wide}", "/console/executions/{wide}/runs?path=each%2Fline",
    "/console/executions/{wide}/runs?path=each%2Fline&item=5000", "/console/executions/{failed}",
    "/console/executions?process=bench-01", "/console/executions?state=failed&process=bench-02",
    "/console/executions?state=waiting", "/console/executions?text=batch+7", "/console/executions?text=C-77",
    "/console/executions?text=not-to-be-found", "/console/executions?text=batch", "/console/executions?step=enrich",
    "/console/executions?took=1s", "/console/executions?took=10h", "/console/executions?process=bench-03&version=2",
    "/console/executions?by=trigger", "/console/executions?by=execution",
    "/console/executions?since=2020-01-01&until=2020-02-01", "/console/processes/bench-01",
    "/console/documents?order=newest", "/console/documents?folder=archive%2Fscans", "/console/documents?folder=customers",
    "/console/documents?folder=archive%2Fscans&order=newest", "/console/documents?folder=customers%2F00007",
    "/console/documents?below=1", "/console/documents?folder=archive&below=1",
    "/console/documents?folder=customers%2F00007&below=1",
    "/console/documents?search=contract", "/console/documents?search=007777", "/console/documents?search=not-to-be-found",
    "/console/documents?folder=customers&search=offer+009", "/console/documents?folder=customers%2F00007&search=offer",
    "/console/documents?kind=image%2F%2A", "/console/documents?kind=audio%2F%2A",
)  # fmt: skip
_DURATION = re.compile(r"(app|cpu);dur=([0-9.]+)")


@dataclass(frozen=True)
class Timing:
    """Median and 95th percentile in ms, the medians of the work in it and of the unchanging loop, and the size of the answer."""

    median: float
    p95: float
    work: float
    loop: float
    size: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.console", description="How long every page of the console takes.")
    parser.add_argument("--count", type=int, default=COUNT, help="executions in the database (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each page is requested (default: %(default)s)")
    parser.add_argument("--only", default="", help="measure only addresses that contain this text")
    parser.add_argument("--folder", type=Path, help="where the data is stored: filled once, measured again and again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gos-bench-") as temporary:
        folder = options.folder or Path(temporary)
        settings = {"demo__order_system": True, "egress__allow": ["127.0.0.0/8"], "console__administrators": [LOGIN]}
        running = start(make_config(folder, **settings))
        try:
            things = _load_or_fill(running, folder, options.count)
            timings = measure(running, things, options.rounds, options.only)
        finally:
            running.stop()
    slow = [path for path, took in timings.items() if took.median > AIM_MS]
    print(f"{len(slow)} pages above {AIM_MS:.0f} ms" if slow else f"every page's median is at most {AIM_MS:.0f} ms")
    return 1 if slow else 0


def _load_or_fill(running: Running, folder: Path, count: int) -> dict[str, str]:
    """The ids used in addresses; creates and fills the tenant unless the folder already has it."""
    ids_file = folder / "bench.json"
    if ids_file.is_file():
        return dict(json.loads(ids_file.read_text("utf8")))
    house = furnish(running)
    began, worked = time.monotonic(), time.process_time()
    scope = running.tenant(TENANT)
    filled = fill(scope, count)
    fill_documents(scope)
    took = f"{time.monotonic() - began:.0f} s, {time.process_time() - worked:.0f} s of work"
    print(f"{count} executions written in {took}; load {os.getloadavg()[0]:.1f}")
    things = {**house.things, **{f"filled_{name}": id_ for name, id_ in filled.items()}}
    ids_file.write_text(json.dumps(things), "utf8")
    return things


def measure_section() -> Section:
    """The slowest pages, and all together; fewer executions and rounds than `main` has, for a report within 20 minutes."""
    with tempfile.TemporaryDirectory(prefix="gos-bench-") as temporary:
        settings = {"demo__order_system": True, "egress__allow": ["127.0.0.0/8"], "console__administrators": [LOGIN]}
        running = start(make_config(Path(temporary), **settings))
        try:
            timings = measure(running, _load_or_fill(running, Path(temporary), REPORTED_COUNT), REPORTED_ROUNDS, "")
        finally:
            running.stop()
    medians = sorted(took.median for took in timings.values())
    about = f"{len(timings)} addresses over {REPORTED_COUNT:,} executions; the server's time of {REPORTED_ROUNDS} requests each."
    every = {"p50 ms": medians[len(medians) // 2], "p95 ms": medians[int(len(medians) * 0.95)]}
    section = Section("Console", about, [Row("all addresses", every, aim="p50 25 ms")], plot="p50 ms")
    for path, took in sorted(timings.items(), key=lambda each: -each[1].median)[:REPORTED_PAGES]:
        figures = {"p50 ms": took.median, "p95 ms": took.p95, "work ms": took.work}
        section.rows.append(Row(f"`{path}`", figures, aim=f"{AIM_MS:.0f} ms"))
    return section


def measure(running: Running, things: dict[str, str], rounds: int, only: str) -> dict[str, Timing]:
    """Print and return the times of every page, by path."""
    filled = {name.removeprefix("filled_"): id_ for name, id_ in things.items() if name.startswith("filled_")}
    pages = [*screens(things), *(Screen(path.format_map(filled)) for path in FILLED)]
    browser = Browser(running)
    browser.sign_in(LOGIN, PASSWORD, TENANT)
    timings = {}
    print(f"load {os.getloadavg()[0]:.1f}\n   p50     p95    work    loop (ms)    KB")
    for screen in pages:
        if only in screen.path:
            took = time_screen(running, browser, screen, rounds)
            mark = " <<<" if took.median > AIM_MS else ""
            times = f"{took.median:6.1f}  {took.p95:6.1f}  {took.work:6.1f}  {took.loop:6.1f}  {took.size / 1000:10.1f}"
            print(f"{times}  {screen.path}{mark}", flush=True)
            timings[screen.path] = took
    print(f"load {os.getloadavg()[0]:.1f}")
    return timings


def time_screen(running: Running, browser: Browser, screen: Screen, rounds: int) -> Timing:
    base = running.config.domains.base
    host = base if screen.is_on_base else f"{TENANT}.{base}"
    jar = browser.cookies.get(f"{host}{running.config.port_suffix}", {}) if screen.is_signed_in else {}
    cookies = {"Cookie": "; ".join(f"{name}={value}" for name, value in jar.items())} if jar else {}
    with running.client(host, {"Sec-Fetch-Site": "none", **cookies}) as client:
        client.get(screen.path)  # templates are read once
        timings = list(_request_times(client, screen, rounds))
        size = len(client.get(screen.path).content)
    took, work, loop = (sorted(each) for each in zip(*timings, strict=True))
    half = len(took) // 2
    return Timing(took[half], took[min(len(took) - 1, int(len(took) * 0.95))], work[half], loop[half], size)


def _request_times(client: httpx.Client, screen: Screen, rounds: int) -> Iterator[tuple[float, float, float]]:
    """The server's time of each request, the work in it, and the time of the loop before it, in ms."""
    for _ in range(rounds):
        loop = _time_loop()
        answer = client.get(screen.path)
        if answer.is_error and not screen.is_absent and not screen.is_on_base:
            raise SystemExit(f"{screen.path} answered {answer.status_code}")
        durations = dict(_DURATION.findall(", ".join(answer.headers.get_list("Server-Timing"))))
        if "app" not in durations:
            raise SystemExit(f"{screen.path} does not say how long it took")
        yield float(durations["app"]), float(durations.get("cpu", 0)), loop


def _time_loop() -> float:
    """How many ms a loop of 50,000 multiplications takes, which says how fast the processor is at present."""
    began, total = time.thread_time(), 0
    for number in range(50_000):
        total += number * number
    return (time.thread_time() - began) * 1000


if __name__ == "__main__":
    sys.exit(main())
