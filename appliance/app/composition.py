"""Builds and runs the appliance from its configuration: database, sandbox, domains and HTTP edges."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from appliance.api import answer_routes
from appliance.connectors.egress import Egress
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.database.changes import read_state
from appliance.core.database.notices import notices
from appliance.core.database.presence import Presence
from appliance.core.events import hub
from appliance.core.interface import ui_folder
from appliance.core.scheduling import PeriodicJob, Scheduler
from appliance.core.scope import TenantScope
from appliance.governance.approvals import ApprovalClosed, set_console_address
from appliance.governance.kill_switches import switched_off_tenants
from appliance.llm import ProfileCreated
from appliance.mcp import McpEdge, make_edge
from appliance.monitor import Deliverer
from appliance.processes import ProcessFlow
from appliance.sandbox import Pool
from appliance.sites import build_sites
from appliance.sites.front import (
    Front,
    Readiness,
    StaticFiles,
    Transport,
    build_server_config,
    new_event_loop,
    serve,
)
from appliance.sites.sign_in import build_gate
from appliance.sites.webapps import CertificatePermission, SmokeProbe, custom_hosts
from appliance.solutions import SolutionServices as SolutionTools
from appliance.solutions import apply_solution, order_system_url, starter_solution
from appliance.tenants import set_custom_hosts
from appliance.web import App, DeferredApp, Services
from appliance.webapps.certificates import Worker, certificate_tasks
from appliance.webapps.domains import service as domains

from .building import make_domains, make_mechanisms, make_services
from .gauges import add_gauges, add_request_gauges
from .parts import (
    authorities,
    make_integrations,
    make_points,
)
from .sandboxes import make_pool
from .serving import Serving
from .telemetry import Telemetry
from .tools import add_tools
from .upkeep import own_upkeep, shared_upkeep

if TYPE_CHECKING:
    from appliance.backups.points import PointShipper


@dataclass
class Appliance:
    """One appliance in this process, running between `start` and `stop`."""

    config: Config
    services: Services
    presence: Presence
    upkeep: list[PeriodicJob]
    deliverer: Deliverer
    withdraw: tuple[Callable[[], None], ...]
    telemetry: Telemetry
    points: "PointShipper | None"
    scheduler: Scheduler = field(default_factory=lambda: Scheduler(read_state))
    ready: bool = False

    def start(self) -> None:
        """Start the sandbox, then the workers, unless `server.run_workers` is off, and the periodic jobs of this process."""
        self.telemetry.start()
        notices.start()
        if self.points is not None:
            self.points.start()
        self.services.sandbox.start()
        self.services.processes.start(self.scheduler)
        for each in self.upkeep:
            each.start(self.scheduler)
        if self.config.server.run_workers:
            self.services.agents.runs.start(self.scheduler)
            self.deliverer.start(self.scheduler)
        self.services.sandbox.prepare_runtimes()
        self.ready = True

    def readiness(self) -> Readiness:
        """Whether requests can be served: between start and stop, unless no sandbox process is left or the disk is full."""
        if not self.ready or not self.services.sandbox.is_alive():
            return Readiness("starting")
        runtimes = {each.name: each.state for each in self.services.sandbox.runtimes() if each.state != "ready"}
        return Readiness("storage_full" if db.is_full() else "ok", runtimes)

    def stop(self) -> None:
        """Let work in progress finish within the configured time, then release all resources."""
        self.ready = False
        for each in self.upkeep:
            each.signal()
        ends = clock.monotonic() + self.config.server.shutdown_seconds
        for each in self.upkeep:  # All were signalled above, so they stop in parallel within the same deadline.
            each.stop(max(0.0, ends - clock.monotonic()))
        self.deliverer.stop()
        self.services.webapps.publishing.stop()  # Before the processes, because its checks of a version run processes.
        self.services.agents.runs.stop(self.config.server.shutdown_seconds / 2)
        self.services.processes.stop(self.config.server.shutdown_seconds)
        self.services.imports.stop()
        self.services.transfers.stop()
        self.services.backups.stop()
        self.services.rehearsals.stop()
        self.services.governance.executor.stop()
        self.services.governance.replays.stop(wait=True)
        self.services.limits.password_checks.stop()
        self.services.single_sign_on.stop()
        self.services.password_resets.stop()
        self.services.webapps.requests.flush()
        self.services.threads.shutdown(wait=True, cancel_futures=True)
        self.services.sandbox.stop()
        for forwarding in self.services.monitor.audit_forwardings:
            forwarding.close()
        self.services.documents.publications.deliveries.flush()
        for withdraw in self.withdraw:
            withdraw()
        self.telemetry.stop()
        notices.stop()
        if self.points is not None:
            self.points.stop()  # last, so that it ships every write
        self.presence.close()
        db.close_database()


def build(config: Config, sandbox: Pool | None = None) -> Appliance:
    """Build and connect every part without starting anything; `sandbox` may have begun to start, and is stopped on an error."""
    sandbox = sandbox or make_pool(config)
    try:
        return _connect(config, sandbox)
    except BaseException:
        sandbox.stop()
        raise


def _connect(config: Config, sandbox: Pool) -> Appliance:
    mechanisms = make_mechanisms(config, sandbox)
    parts = make_domains(config, mechanisms)
    services = make_services(config, mechanisms, parts)
    add_tools(services, parts.governor, parts.actions)
    points = make_points(config, mechanisms.places)
    add_gauges(services, points)
    return Appliance(
        config=config, services=services, presence=mechanisms.presence,
        upkeep=[*own_upkeep(services), *(shared_upkeep(services, mechanisms.formats) if config.server.run_workers else ())],
        deliverer=Deliverer(mechanisms.egress, mechanisms.sealer, switched_off_tenants),
        withdraw=(mechanisms.formats.stop, *_listen(config, parts.processes, parts.custom_domains), parts.agents.listen()),
        telemetry=Telemetry(config, mechanisms.presence.instance), points=points,
    )  # fmt: skip


def _listen(config: Config, flow: ProcessFlow, custom_domains: domains.Domains) -> tuple[Callable[[], None], ...]:
    """Connect the parts that react to each other; each result disconnects one."""
    set_console_address(config.tenant_url)
    set_custom_hosts(custom_hosts(custom_domains.table))
    return (
        hub.subscribe(ApprovalClosed, flow.answer_approval),
        hub.subscribe(ProfileCreated, flow.answer_profile),
        custom_domains.table.watch(),
    )


def apply_starter(config: Config, sealer: Sealer, scope: TenantScope) -> None:
    """Apply the starter solution to a new tenant, with this appliance's demo endpoint as the order system."""
    solution = starter_solution(order_system_url(config))
    apply_solution(scope, SolutionTools(None, make_integrations(config, sealer)), solution)


def make_front(appliance: Appliance, mcp: McpEdge, *, pages_soon: bool = False) -> Front:
    """Build the front for this event loop, with what it passes requests to: static files, the edges, and Quart.

    With `pages_soon` Quart is built at once, beside the first requests, otherwise by the first request for it.
    """
    services = appliance.services
    pages = DeferredApp(services.threads, lambda: _build_pages(appliance))
    if pages_soon:
        pages.build_soon()
    assets = services.assets
    fetched = {"/api-docs/assets/": assets, "/static/editor/": assets / "editor"}
    folders = {"/static/": ui_folder() / "static"} | {prefix: folder for prefix, folder in fetched.items() if folder.is_dir()}
    gate = build_gate(services, Egress.of(appliance.config.egress.allow, authorities(appliance.config)), ui_folder() / "templates")
    sites = build_sites(services, gate, ui_folder() / "templates" / "sites")
    services.webapps.publishing.set_probe(SmokeProbe(sites, appliance.config, asyncio.get_running_loop()))
    edges = answer_routes(services, StaticFiles(mcp.around(pages), folders))
    front = Front(edges, sites, appliance.config, appliance.readiness, services.languages)
    add_request_gauges(front.queue)
    return front


def _build_pages(appliance: Appliance) -> App:
    """Quart with everything that it serves; it takes half a second, so an appliance is ready before."""
    from .pages import build_pages

    return build_pages(appliance.config, appliance.services)


async def run_server(
    appliance: Appliance, shutdown: Callable[[], Any], *, hurry: asyncio.Event | None = None, pages_soon: bool = False
) -> None:
    """Serve until the coroutine function `shutdown` returns and `server.drain_seconds` are over, or `hurry` is set.

    For `pages_soon` see `make_front`.
    """
    config = build_server_config(appliance.config, appliance.services.webapps.certificates)
    mcp = make_edge(appliance.services)
    front = make_front(appliance, mcp, pages_soon=pages_soon)
    permission = CertificatePermission(front, appliance.config, appliance.services.webapps.apps, appliance.services.threads)
    asgi = Transport(permission, appliance.config, config)
    worker = Worker(appliance.presence.instance, appliance.presence.is_alive)

    async def stop() -> None:
        await shutdown()
        front.begin_drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(appliance.config.server.drain_seconds):
                await (hurry or asyncio.Event()).wait()
        front.end_streams()
        worker.stopping.set()  # Set now, so that certificate orders finish while the last requests are answered.

    orders = certificate_tasks(appliance.config, appliance.services.webapps.certificates, worker)
    serving = Serving(appliance.presence, appliance.services.limits.servers)
    with config.keep_current(appliance.scheduler, orders):
        try:
            await asyncio.to_thread(serving.start, appliance.scheduler)
            async with mcp.running():
                await serve(asgi, config, stop)
        finally:  # Its checks send requests on this event loop, so they must end before the loop does.
            await asyncio.to_thread(appliance.services.webapps.publishing.stop)
            await asyncio.to_thread(serving.stop)


def serve_forever(config: Config, sandbox: Pool, announce: Callable[[], None]) -> None:
    """Run `gos serve`: start, serve until SIGTERM or SIGINT, stop cleanly; a second signal ends `server.drain_seconds`.

    `announce` is called when it is ready.
    """
    appliance = build(config, sandbox)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(appliance, announce))
    finally:
        appliance.stop()


async def _serve(appliance: Appliance, announce: Callable[[], None]) -> None:
    stop, hurry = asyncio.Event(), asyncio.Event()

    def request_stop() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, request_stop)
    await asyncio.to_thread(appliance.start)
    announce()
    await run_server(appliance, stop.wait, hurry=hurry, pages_soon=True)
