"""A hundred thousand requests made up from the contract, beside a tenant full of canaries: no leak, no unhandled server error.

.venv/bin/python -m tests.soak.fuzzing --results FILE [--batches 34] [--count 3000] [--seed 1] [--database URL]

Each batch has an appliance and a seed of its own, and sends `count` requests to all routes in turns: with the example of the route
or parts of it, with ids and bodies of the other tenant, without a key, with a key that lacks the scope, and wholly generated ones.
A line of FILE keeps the figures of a batch; those that it has are not run again, so that a long run can be interrupted.  Ends with
1 if there is a leak, an unhandled server error, a response that is not as documented, a refusal that was missing, a route that
never succeeded, or a change at the other tenant.  `--control leak` and `--control fault` add a defect that must be noticed.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import requests

from appliance.api import Route, load_routes
from appliance.tenants import SCOPES
from appliance.testing.running import Running, make_config, start
from tests.api.example import Example
from tests.api.examples import EXAMPLES
from tests.api.openapi.fuzzing import FOREIGN_FAULTS, Fuzz, apply_example, is_endless, load_operations
from tests.api.resources import Resources
from tests.chaos.batches import Batches, commit, read_results
from tests.hashing import hash_cheaply
from tests.store.cluster import running_cluster
from tests.webapps.name_server import running_name_server

from .canaries import Canaries, MarkedResources, marked_names, plant_contents, plant_installation, plant_secrets, state_of
from .controls import CONTROLS

PLANS = ("good", "foreign", "query", "keyless", "ids", "foreign body", "good", "narrow", "nothing")
REFUSALS = {"keyless": 401, "narrow": 403}
PERSON = re.compile(rb"usr_[0-9A-Za-z]{21}")
HANDLED = {501, 502, 503, 504, 507}


@dataclass
class Report:
    """The figures of a batch, or of all; each problem with the request that shows it."""

    seed: int
    database: str
    commit: str
    seconds: float = 0.0
    requests: int = 0
    routes: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    plans: dict[str, int] = field(default_factory=dict)
    canaries: int = 0
    leaks: list[str] = field(default_factory=list)
    unhandled: list[str] = field(default_factory=list)
    handled: list[str] = field(default_factory=list)
    undocumented: list[str] = field(default_factory=list)
    missing_refusals: list[str] = field(default_factory=list)
    never_successful: list[str] = field(default_factory=list)
    changed: dict[str, list[Any]] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return not any((self.leaks, self.unhandled, self.undocumented, self.missing_refusals, self.never_successful, self.changed))


class CanaryFuzz(Fuzz):
    """Requests of one tenant, whose responses are searched for what belongs to another."""

    def __init__(self, tenant: Resources, operations: dict[str, Any], stack: ExitStack, report: Report) -> None:
        super().__init__(
            tenant.running.config.server.port, lambda route: EXAMPLES[route.name](tenant), operations,
            self._session(stack, tenant.client.headers["x-api-key"]), plans=PLANS,
        )  # fmt: skip
        self.tenant = tenant
        self.report, self.canaries = report, Canaries.new()
        self._keyless = self._session(stack, "")
        self._narrow = {
            scope: self._session(stack, tenant.running.key(tenant.tenant, [name for name in SCOPES if name != scope]))
            for scope in SCOPES
        }
        self.foreign: dict[str, Example] = {}

    def _session(self, stack: ExitStack, key: str) -> requests.Session:
        session = stack.enter_context(requests.Session())
        session.trust_env = False
        if key:
            session.headers["X-API-Key"] = key
        return session

    def plant(self, theirs: MarkedResources) -> None:
        """Let the other tenant have an example of each route, and canaries."""
        with marked_names():
            plant_contents(theirs, self.canaries)
            for route in load_routes():
                self.foreign[route.name] = EXAMPLES[route.name](theirs)
            plant_secrets(theirs, self.canaries)
        plant_secrets(self.tenant, self.canaries)
        plant_installation(self.tenant.running, self.canaries)
        self.canaries.ids = theirs.ids
        self.report.canaries = len(theirs.ids) + len(self.canaries.secret)

    def prepare(self, route: Route, case: Any, plan: str) -> None:
        case.headers = {name: value for name, value in (case.headers or {}).items() if name.lower() != "x-api-key"}
        foreign = self.foreign[route.name]
        if plan == "foreign":
            super().prepare(route, case, "good")
            case.path_parameters = dict(foreign.path)
        elif plan == "foreign body":
            super().prepare(route, case, "ids")
            apply_example(route, case, foreign, with_query=True)
        elif plan in REFUSALS:
            super().prepare(route, case, "good")
        else:
            super().prepare(route, case, plan)

    def send(self, route: Route, case: Any, plan: str) -> None:
        session = self.session
        if plan == "keyless":
            session = self._keyless
        elif plan == "narrow" and route.scope:
            session = self._narrow[route.scope]
        answer = self.call(route, case, session)
        self.report.plans[plan] = self.report.plans.get(plan, 0) + 1
        self._note_sent(case, answer)
        if route.name == "add_member" and answer.status_code < 300:  # people belong to the appliance, not to a tenant
            self.canaries.note_sent(*PERSON.findall(answer.content))
        self._judge(route, case, answer, plan)

    def _note_sent(self, case: Any, answer: requests.Response) -> None:
        body = answer.request.body or b""
        url = unquote(answer.request.url or "").encode(errors="replace")
        self.canaries.note_sent(url, body if isinstance(body, bytes) else str(body).encode(errors="replace"))
        self.canaries.note_sent(repr(case.body).encode(errors="replace"), repr(dict(answer.request.headers)).encode())

    def _judge(self, route: Route, case: Any, answer: requests.Response, plan: str) -> None:
        where = f"{route.name} ({plan}): {answer.request.method} {answer.request.url} {answer.status_code}"
        if leaks := self.canaries.find(answer.content + str(answer.headers).encode()):
            self.report.leaks.append(f"{where}: {leaks}")
        expected = REFUSALS.get(plan, answer.status_code) if route.scope or plan == "keyless" else answer.status_code
        if answer.status_code != expected:
            self.report.missing_refusals.append(f"{where}, not {expected}")
        if answer.status_code >= 500:
            is_handled = answer.status_code in HANDLED and "error" in answer.text
            if answer.status_code not in FOREIGN_FAULTS.get(route.name, ()):
                (self.report.handled if is_handled else self.report.unhandled).append(f"{where}: {answer.text[:300]}")
            return
        try:
            self.check(route, case, answer)
        except Exception as error:  # noqa: BLE001  all kinds of failures of the library's checks are counted alike
            self.report.undocumented.append(f"{where}: {str(error)[:600]}")


@contextmanager
def running_appliance(folder: Path, database: str) -> Iterator[Running]:
    """An appliance like that of the tests."""
    hash_cheaply()
    with running_name_server() as names:
        running = start(make_config(
            folder, storage__database=database, demo__order_system=True, egress__allow=["127.0.0.0/8"],
            limits__route_calls=1_000_000, domains__resolvers=[names.address], mail__server="smtp://127.0.0.1:9",
            mail__sender="gos@acme.test",
        ))  # fmt: skip
        try:
            yield running
        finally:
            running.stop()


def run_batch(running: Running, report: Report, count: int, control: str = "none", only: Sequence[str] = ()) -> None:
    """Send `count` requests, to the routes `only` or to all, and fill the report."""
    began = time.monotonic()
    routes = [route for route in load_routes() if not is_endless(route) and (not only or route.name in only)]
    routes.sort(key=lambda route: route.name == "put_kill_switch")  # last, as it may switch the tenant off
    running.tenant("acme")
    running.tenant("globex")
    with ExitStack() as stack:
        client, other = stack.enter_context(running.api("acme")), stack.enter_context(running.api("globex"))
        operations = load_operations(client.get("/api-docs/openapi.json").json())
        fuzz = CanaryFuzz(Resources(running, "acme", client), operations, stack, report)
        fuzz.plant(MarkedResources(running, "globex", other, fuzz.canaries.content))
        stack.enter_context(CONTROLS[control]())
        before = state_of("globex")
        each = -(-count // len(routes))
        for number, route in enumerate(routes):
            fuzz.run(route, each, seed=report.seed * 1000 + number)
        after = state_of("globex")
    report.changed = {name: [before.get(name), state] for name, state in after.items() if before.get(name) != state}
    report.requests, report.routes = fuzz.answers.total(), len(fuzz.by_route)
    report.statuses = {str(status): number for status, number in sorted(fuzz.answers.items())}
    successful = {name for name, answers in fuzz.by_route.items() if any(200 <= status < 300 for status in answers)}
    report.never_successful = sorted({route.name for route in routes} - successful)
    report.seconds = round(time.monotonic() - began, 1)


def run_one(args: argparse.Namespace) -> Report:
    """The batch of one seed."""
    report = Report(args.seed, "postgresql" if args.database else "sqlite", commit())
    with ExitStack() as stack:
        database = args.database
        if database == "postgresql":
            database = stack.enter_context(running_cluster()).make_database()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running = stack.enter_context(running_appliance(folder, database))
        run_batch(running, report, args.count, args.control, args.only)
    return report


def summarize(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sums of all batches."""
    statuses: Counter[str] = Counter()
    for each in results:
        statuses.update(each["statuses"])
    lists = ("leaks", "unhandled", "handled", "undocumented", "missing_refusals", "never_successful", "changed")
    return {
        "batches": len(results), "commits": sorted({each["commit"] for each in results}),
        "databases": sorted({each["database"] for each in results}), "requests": sum(each["requests"] for each in results),
        "routes": min((each["routes"] for each in results), default=0), "minutes": round(sum(e["seconds"] for e in results) / 60),
        "statuses": dict(sorted(statuses.items())), **{name: sum(len(each[name]) for each in results) for name in lists},
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    batches = Batches(parser, "tests.soak.fuzzing", batches=34)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--database", default="", help="a PostgreSQL URL, or `postgresql` for a server of its own; without, SQLite")
    parser.add_argument("--control", choices=sorted(CONTROLS), default="none")
    parser.add_argument("--only", nargs="*", default=[], metavar="ROUTE", help="names of routes; without, all")
    result = batches.run(lambda args: with_verdict(run_one(args)))
    args = parser.parse_args()
    if not args.one:
        print(json.dumps(summarize(read_results(args.results)), indent=1))
    return result


def with_verdict(report: Report) -> dict[str, Any]:
    return {**asdict(report), "holds": report.holds}


if __name__ == "__main__":
    sys.exit(main())
