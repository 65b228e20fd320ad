"""Routes that run a process: the request becomes its input, and its output the response if it finishes in time."""

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
from appliance.processes import Execution, Waiter
from appliance.processes.engine import FINISHED, completion
from appliance.processes.executions import StartRequest, pausing
from appliance.processes.executions import service as executions
from appliance.web import Services, start_and_record
from appliance.webapps.routes import WITH_BODY, Match, RequestData, Route, map_input

from .following import PREFIX
from .route_answers import FAILED, Reply, as_json, failure_of, success, to_error_reply
from .route_bodies import Body, BodyLimits, BodyReader, FileLimits, read_fields
from .route_calls import RouteCall
from .route_files import StoredFiles, store_files
from .sending import Sender
from .tickets import Tickets, browser_cookie, holder_of, new_browser

log = logging.getLogger(__name__)
_CLIENT_ERRORS = (ValidationFailed, InvalidRequest, UnsupportedMediaType, Infected)
_BUSY = (ConcurrencyLimited, RateLimited, Overloaded, Draining, StorageFull, ScanFailed)


class ProcessRoutes:
    """Runs processes on behalf of visitors, with the app's identity."""

    def __init__(self, services: Services, sender: Sender, tickets: Tickets) -> None:
        self._services = services
        self._sender = sender
        self._tickets = tickets
        self._intake = BodyReader(services.documents.files.receiver, sender.in_thread, services.limits.large_bodies)

    async def run(self, call: RouteCall, match: Match, body: Body) -> Reply:
        """Start the process, wait as long as the route allows, and respond."""
        start = partial(self._start, call, match, (body, read_fields(call.request.query_string)))
        if match.route.wait > 0:
            row = await self._start_and_wait(call, match.route.wait, start)
        else:
            row = await self._sender.in_thread(start)
        if row.status not in FINISHED:
            row = await self._sender.in_thread(partial(executions.get_execution, call.tenant, row.id))
        reply = self._respond(call, match.route, row, plain_form=body.is_form and call.wants_page)
        return replace(reply, execution_id=row.id, process_id=row.process_id)

    async def _start_and_wait(self, call: RouteCall, seconds: float, start: Callable[[Waiter], Execution]) -> Execution:
        finished = asyncio.Event()
        callback: Callable[[], Any] = partial(asyncio.get_running_loop().call_soon_threadsafe, finished.set)
        async with self._services.limits.starts.turn(call.tenant.tenant_id) as end_turn:
            starting = asyncio.ensure_future(start_and_record(self._services, start, callback))
            try:
                row = await asyncio.shield(starting)
                if row.status != "running":
                    end_turn()
                if row.status not in FINISHED:
                    await _wait(row, seconds, finished)
            finally:  # an execution may still start after the caller stopped waiting
                starting.add_done_callback(partial(_drop_callback, callback))
        return row

    async def read(self, call: RouteCall, route: Route) -> Body:
        """Read the body of the request; the caller owns its files."""
        if call.request.method not in WITH_BODY:
            return Body()
        limits, files = self._services.config.limits, None
        text_bytes = limits.json_body_kb << 10
        if route.upload is not None:
            max_bytes = limits.upload_mb << 20
            files = FileLimits(min(max_bytes, int(route.upload.max_mb * (1 << 20))), max_bytes + text_bytes)
        body_limits = BodyLimits(text_bytes, limits.json_depth, files)
        body = await self._intake.read(call.request, body_limits)
        return body if body.values is not None else replace(body, values={})

    def _start(
        self, call: RouteCall, match: Match, request_data: tuple[Body, dict[str, Any]], waiter: Waiter | None = None
    ) -> Execution:
        """Store the contents of files first. Their documents are created in the same write as the execution, or not at all."""
        route, (body, query) = match.route, request_data
        processes, documents = self._services.processes, self._services.documents.files
        files = StoredFiles()
        try:
            schema = processes.read_input_schema(call.tenant, route.process)
            values = body.values
            if route.upload is not None and body.files:
                files = store_files(documents, call.tenant, route.upload, body.files)
                values = {**values, **files.ids}
            request = StartRequest(map_input(route.input, RequestData(match.values, query, values, call.visitor), schema))
            write_related = partial(files.create, documents, call.tenant) if body.files else None
            return processes.start_execution(call.tenant, route.process, request, waiter=waiter, write_related=write_related)
        except ApplianceError as error:
            raise _for_visitor(error, route) from error

    def _respond(self, call: RouteCall, route: Route, row: Execution, *, plain_form: bool) -> Reply:
        if row.status == "succeeded":
            redirects = plain_form and route.then and not (isinstance(row.output, dict) and "$response" in row.output)
            return _redirect(route.then) if redirects else _output(call, row)
        if row.status in FINISHED:
            return to_error_reply(failure_of(row.error), call.request.request_id, call.language, as_page=call.wants_page)
        if plain_form and route.then:
            return _redirect(route.then)
        browser = call.browser or new_browser()
        holder = call.holder or holder_of(call.visitor, browser)
        follow = PREFIX + self._tickets.issue(call.tenant, call.app, holder, row.id)
        payload = {"success": True, "data": {"status": "running", "follow": follow}}
        reply = as_json(202, payload, ("location", follow), ("retry-after", "1"))
        return reply if holder == call.holder else reply.with_headers(("set-cookie", browser_cookie(browser)))


def _drop_callback(callback: Callable[[], Any], starting: "asyncio.Future[Execution]") -> None:
    if not starting.cancelled() and starting.exception() is None:
        completion.completion_signal.unsubscribe(starting.result().id, callback)


async def _wait(row: Execution, seconds: float, finished: asyncio.Event) -> None:
    try:
        # A paused process may continue much later, so the caller does not wait for it.
        await asyncio.wait_for(finished.wait(), 0 if row.wait_reason == pausing.PAUSED else seconds)
    except TimeoutError:
        log.debug("an execution continues after its caller stopped waiting")


def _redirect(page: str) -> Reply:
    return Reply(303, b"", (("location", page),))


def _output(call: RouteCall, row: Execution) -> Reply:
    try:
        return success(row.output)
    except ProcessFailed as error:
        log.warning("the output of %s cannot be sent to a visitor of %s: %s", row.id, call.app, error.message)
        return to_error_reply(ProcessFailed(FAILED), call.request.request_id, call.language, as_page=call.wants_page)


def _for_visitor(error: ApplianceError, route: Route) -> ApplianceError:
    """The error as a visitor may see it: errors in their own input unchanged, everything else without details."""
    if isinstance(error, _CLIENT_ERRORS):
        return error
    log.warning("the route %s could not start %s: %s", route.path, route.target, error.message)
    if isinstance(error, _BUSY):
        return type(error)("the app is busy; try again in a moment", headers=error.headers or {"Retry-After": "5"})
    return ProcessFailed(FAILED)
