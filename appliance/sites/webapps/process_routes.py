"""Routes that run a process: what was sent becomes its input, and its output the answer if it is done in time."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from appliance.core.errors import (
    ApplianceError,
    ConcurrencyLimited,
    Draining,
    InvalidRequest,
    Overloaded,
    ProcessFailed,
    RateLimited,
    StorageFull,
    UnsupportedMediaType,
    ValidationFailed,
)
from appliance.documents.contents import Infected, ScanFailed
from appliance.processes import Execution
from appliance.processes.engine import FINISHED, ending
from appliance.processes.executions import StartRequest, pausing
from appliance.processes.executions import service as executions
from appliance.solutions import Services
from appliance.webapps.routes import WITH_BODY, Match, Route, Sent, map_input

from .following import PREFIX
from .route_answers import FAILED, Reply, as_json, failure_of, refused, succeeded
from .route_bodies import Body, BodyLimits, FileLimits, Intake, read_fields
from .route_calls import RouteCall
from .route_files import KeptFiles, keep_files
from .sending import Sender
from .tickets import Tickets, browser_cookie, holder_of, new_browser

log = logging.getLogger(__name__)
_OF_SENDER = (ValidationFailed, InvalidRequest, UnsupportedMediaType, Infected)
_BUSY = (ConcurrencyLimited, RateLimited, Overloaded, Draining, StorageFull, ScanFailed)


class ProcessRoutes:
    """Runs processes for whoever opens an app, as the app."""

    def __init__(self, services: Services, sender: Sender, tickets: Tickets) -> None:
        self._services = services
        self._sender = sender
        self._tickets = tickets
        self._intake = Intake(services.documents.receiver, sender.in_thread, services.large_bodies)

    async def run(self, call: RouteCall, match: Match, body: Body) -> Reply:
        """Start, wait as long as the route says, and tell what came of it."""
        query = read_fields(call.exchange.scope["query_string"])
        over = asyncio.Event()
        callback: Callable[[], Any] = partial(asyncio.get_running_loop().call_soon_threadsafe, over.set)
        starting = asyncio.ensure_future(self._sender.in_thread(partial(self._start, call, match, (body, query), callback)))
        try:
            row = await asyncio.shield(starting)
            if row.status not in FINISHED:
                await _wait(row, match.route.wait, over)
        finally:  # whoever is not waited for any more may have started one all the same
            starting.add_done_callback(partial(_forget, callback))
        if row.status not in FINISHED:
            row = await self._sender.in_thread(partial(executions.get_execution, call.tenant, row.id))
        reply = self._tell(call, match.route, row, plain_form=body.is_form and call.wants_page)
        return replace(reply, execution_id=row.id, process_id=row.process_id)

    async def read(self, call: RouteCall, route: Route) -> Body:
        """What was sent; its files belong to the caller."""
        if call.method not in WITH_BODY:
            return Body()
        limits, files = self._services.config.limits, None
        texts = limits.json_body_kb << 10
        if route.upload is not None:
            most = limits.upload_mb << 20
            files = FileLimits(min(most, int(route.upload.max_mb * (1 << 20))), most + texts)
        bounds = BodyLimits(texts, limits.json_depth, files)
        body = await self._intake.read(call.exchange.receive, call.headers, bounds, call.tenant.tenant_id)
        return body if body.values is not None else replace(body, values={})

    def _start(self, call: RouteCall, match: Match, sent: tuple[Body, dict[str, Any]], callback: Callable[[], Any]) -> Execution:
        """Contents of files are kept first; their documents are made with the execution that is told of them, or never."""
        route, (body, query) = match.route, sent
        processes, documents = self._services.processes, self._services.documents
        files = KeptFiles()
        try:
            schema = processes.read_input_schema(call.tenant, route.process)
            values = body.values
            if route.upload is not None and body.files:
                files = keep_files(documents, call.tenant, route.upload, body.files)
                values = {**values, **files.ids}
            request = StartRequest(map_input(route.input, Sent(match.values, query, values, call.visitor), schema))
            return processes.start_execution(
                call.tenant, route.process, request, soon=route.wait > 0, when_finished=callback,
                beside=partial(files.create, documents, call.tenant),
            )  # fmt: skip
        except ApplianceError as error:
            raise _explained(error, route) from error

    def _tell(self, call: RouteCall, route: Route, row: Execution, *, plain_form: bool) -> Reply:
        if row.status == "succeeded":
            led_on = plain_form and route.then and not (isinstance(row.output, dict) and "$response" in row.output)
            return _leading_to(route.then) if led_on else _output(call, row)
        if row.status in FINISHED:
            return refused(failure_of(row.error), call.request_id, as_page=call.wants_page)
        if plain_form and route.then:
            return _leading_to(route.then)
        browser = call.browser or new_browser()
        holder = call.holder or holder_of(call.visitor, browser)
        follow = PREFIX + self._tickets.issue(call.tenant, call.app, holder, row.id)
        told = {"success": True, "data": {"status": "running", "follow": follow}}
        reply = as_json(202, told, ("location", follow), ("retry-after", "1"))
        return reply if holder == call.holder else reply.adding(("set-cookie", browser_cookie(browser)))


def _forget(callback: Callable[[], Any], starting: "asyncio.Future[Execution]") -> None:
    if not starting.cancelled() and starting.exception() is None:
        ending.finished.drop(starting.result().id, callback)


async def _wait(row: Execution, seconds: float, over: asyncio.Event) -> None:
    try:
        # A paused process may go on tomorrow: whoever calls it is told at once where to look.
        await asyncio.wait_for(over.wait(), 0 if row.wait_reason == pausing.PAUSED else seconds)
    except TimeoutError:
        log.debug("an execution goes on after its caller's wait")


def _leading_to(page: str) -> Reply:
    return Reply(303, b"", (("location", page),))


def _output(call: RouteCall, row: Execution) -> Reply:
    try:
        return succeeded(row.output)
    except ProcessFailed as error:
        log.warning("the output of %s cannot be sent to a visitor of %s: %s", row.id, call.app, error.message)
        return refused(ProcessFailed(FAILED), call.request_id, as_page=call.wants_page)


def _explained(error: ApplianceError, route: Route) -> ApplianceError:
    """The error as a visitor may see it: what they sent is theirs, everything else its operators' business."""
    if isinstance(error, _OF_SENDER):
        return error
    log.warning("the route %s could not start %s: %s", route.path, route.target, error.message)
    if isinstance(error, _BUSY):
        return type(error)("there is too much to do; try again in a moment", headers=error.headers or {"Retry-After": "5"})
    return ProcessFailed(FAILED)
