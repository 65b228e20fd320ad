"""The governed executor: judges an action, records it, makes the call, and never sends a write twice in doubt."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from appliance.connectors.contract import Action, ConnectorError, Json, Level, Polled, Trigger
from appliance.connectors.preview import Preview
from appliance.connectors.traffic import Traffic
from appliance.core import clock, db
from appliance.core.errors import ApplianceError, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.governance import offers, polling, switches
from appliance.governance.documents import DocumentDoor
from appliance.governance.polling import PollRequest
from appliance.governance.requests import MOST_SECONDS, ActionRequest, ActionResult, Proposal, coded, draft_of
from appliance.governance.sendable import check_sendable
from appliance.governance.threads import ForeignThreads
from appliance.integrations import records, retrying
from appliance.integrations.calls import Shot, log_to_process
from appliance.integrations.circuit import Withheld
from appliance.integrations.connections import Ready
from appliance.integrations.gate import Gate
from appliance.integrations.records import Begun, Done, Draft, Ending
from appliance.integrations.service import Integrations
from appliance.monitor.logs import Line

TASK = "governance.call"
_LOST_AFTER_MS = 10_000
_LONGEST_QUEUED_MS = 3_600_000

_MOST_LINES = 200

T = TypeVar("T")
Enqueue = Callable[[str, str, str], None]


PolicyCheck = Callable[[TenantScope, Proposal], None]


class GovernedExecutor:
    """Every call to a foreign system passes here.

    `instance` names this process in the record of running calls, `is_alive` tells which of those names still live
    (default: only this one), `enqueue` is asked inside a write to have `run_queued` called.
    """

    def __init__(
        self,
        integrations: Integrations,
        instance: str,
        enqueue: Enqueue | None = None,
        is_alive: records.IsAlive | None = None,
        documents: DocumentDoor | None = None,
    ) -> None:
        self._integrations = integrations
        self._instance = instance
        self._enqueue = enqueue
        self._is_alive = is_alive or instance.__eq__
        self._documents = documents
        self._gate = Gate()
        self._checks: list[PolicyCheck] = []
        self._lock = threading.Lock()
        self._threads = ForeignThreads()

    def add_check(self, check: PolicyCheck) -> None:
        """Have `check` judge every proposal; it raises a coded error to deny.  Another exception denies as well."""
        with self._lock:
            self._checks = [*self._checks, check]

    def submit(self, scope: TenantScope, work: Callable[[], T]) -> "Future[T]":
        """Run something that waits for a foreign system in a thread kept for that; ConcurrencyLimited."""
        return self._threads.submit(scope, work)

    def stop(self) -> None:
        """End pauses, close idle connections; calls in flight run to their deadline."""
        self._integrations.calls.stop()
        self._threads.stop()

    def execute(self, scope: TenantScope, request: ActionRequest) -> ActionResult:
        """Perform an action, or say in `preview` mode that it could be.

        NotFound (integration), ValidationFailed (action, input), PolicyDenied, ActionFailed, AddressNotAllowed,
        OutcomeUnknown (an earlier write with this key was sent and nobody knows what became of it),
        IdempotencyInFlight, IdempotencyMismatch.
        """
        ready, proposal = self._judge(scope, request)
        if request.mode == "preview":
            return ActionResult("previewed", proposal.effect, preview=self._preview(ready, proposal))
        draft = draft_of(ready, proposal)
        if proposal.effect == "read":
            return self._read(scope, ready, proposal, draft)
        begun = records.begin_call(scope, draft, self._instance, self._is_alive)
        if isinstance(begun, Done):
            return ActionResult("recorded", proposal.effect, begun.output, begun.call_id)
        return self._send(scope, ready, proposal, begun)

    def enqueue(self, scope: TenantScope, request: ActionRequest) -> str:
        """Record an action to be performed soon; answers the call's id.  Errors as `execute`, before it is sent."""
        if self._enqueue is None:
            raise ValidationFailed("this process has no queue; leave async out")
        enqueue = self._enqueue
        ready, proposal = self._judge(scope, request)
        draft = draft_of(ready, proposal)

        def record() -> str:
            call_id, is_new = records.enqueue_call(scope, draft)
            if is_new:
                self._keep_pending(scope, call_id, request)
                enqueue(TASK, scope.tenant_id, call_id)
            return call_id

        return db.write(record)

    def retry(self, scope: TenantScope, integration: str, call_id: str) -> str:
        """Record that a failed call is made again soon, with the key it had; answers the id of the new record.

        NotFound; Conflict unless it failed and nothing can happen twice; errors as `execute`, before anything is sent.
        """
        if self._enqueue is None:
            raise ValidationFailed("this process has no queue to retry in; ask one that has")
        enqueue, wanted = self._enqueue, retrying.find_repeatable(scope, integration, call_id)
        request = ActionRequest(integration, wanted.action, wanted.input, seconds=wanted.seconds)
        _, proposal = self._judge(scope, request)

        def record() -> str:
            retry_id = retrying.enqueue_retry(scope, integration, call_id, wanted, proposal.effect)
            self._keep_pending(scope, retry_id, request)
            enqueue(TASK, scope.tenant_id, retry_id)
            return retry_id

        return db.write(record)

    def _keep_pending(self, scope: TenantScope, call_id: str, request: ActionRequest) -> None:
        given = {"action": request.action, "input": dict(request.input), "seconds": request.seconds}
        given["documents"] = sorted(request.documents)
        sealed = self._integrations.sealer.seal(db.dump_json(given).encode(), _context(scope, call_id))
        records.keep_pending(scope, call_id, sealed)

    def run_queued(self, scope: TenantScope, call_id: str) -> None:
        """Perform a queued call; nothing when another wake-up came first.  What fails is in the record."""
        row = records.claim_queued(scope, call_id, self._instance)
        if row is None:
            return
        begun = Begun(call_id, row.sent_key, clock.now_ms())
        given = json.loads(self._integrations.sealer.open(bytes(row.pending or b""), _context(scope, call_id)))
        actor = TenantScope(scope.tenant_id, row.actor, scope.scopes, row.request_id)
        may = frozenset(given.get("documents", ()))
        request = ActionRequest(row.integration_id, given["action"], given["input"], seconds=given["seconds"], documents=may)
        try:
            ready, proposal = self._judge(actor, request)
        except ApplianceError as error:
            told = {"class": error.code, "message": error.message, "details": {}}
            draft = Draft(row.integration_id, row.connector, row.action, "read", None, row.request_digest)
            records.finish_call(actor, begun, draft, Ending("failed", "not_done", error=told))
            return
        ending, failed = self._make(actor, ready, proposal, begun.sent_key)
        if isinstance(failed, Withheld) and clock.now_ms() - row.created_at < _LONGEST_QUEUED_MS:
            records.put_back(actor, row)  # nothing was sent: `sweep` wakes it when the foreign system may be asked
        else:
            records.finish_call(actor, begun, draft_of(ready, proposal), ending)

    def sweep(self, *, queue_is_empty: bool) -> int:
        """Close calls whose process is gone; answers how many.  With an empty queue, wake what still waits in it."""
        enqueue = self._enqueue
        if queue_is_empty and enqueue is not None:
            for tenant_id, call_id in records.waiting_in_queue(_LOST_AFTER_MS):
                db.write(partial(enqueue, TASK, tenant_id, call_id))
        return records.close_orphans(self._is_alive)

    # -- the way of one call

    def _judge(self, scope: TenantScope, request: ActionRequest) -> tuple[Ready, Proposal]:
        ready = self._integrations.ready(scope, request.integration, request.hidden)
        switches.refuse_switched_off(scope, ready.slug)
        check_sendable(request.input)
        if not 0 < request.seconds <= MOST_SECONDS:
            raise ValidationFailed(f"a call may take up to {MOST_SECONDS:g} seconds", pointer="/seconds")
        action = self._find_action(scope, ready, request)
        offers.check_input(ready, action, dict(request.input))
        try:
            effect = self._integrations.calls.effect_of(ready, action, request.input)
        except ConnectorError as error:
            raise coded(error, action.effect, "") from error
        proposal = Proposal(request, ready.connector_label, action, effect)
        for check in self._checks:
            _judge_by(check, scope, proposal)
        return ready, proposal

    def _find_action(self, scope: TenantScope, ready: Ready, request: ActionRequest) -> Action:
        try:
            return offers.find_action(self._integrations, self._gate, scope, ready, request.action, request.seconds)
        except ConnectorError as error:
            raise coded(error, "read", "") from error

    def poll(self, scope: TenantScope, request: PollRequest) -> Polled:
        """What is new at an integration; the policies judge it as an action that reads.

        NotFound, ValidationFailed, PolicyDenied, ActionFailed, AddressNotAllowed.
        """

        def judge(ready: Ready, trigger: Trigger) -> None:
            switches.refuse_switched_off(scope, ready.slug)
            asked = ActionRequest(request.integration, trigger.name, request.query)
            action = Action(trigger.name, trigger.summary, trigger.query, trigger.item, "read", trigger.sample)
            for check in self._checks:
                _judge_by(check, scope, Proposal(asked, ready.connector_label, action, "read"))

        try:
            return polling.poll(self._integrations, self._gate, scope, request, judge)
        except ConnectorError as error:
            raise coded(error, "read", "") from error

    def _read(self, scope: TenantScope, ready: Ready, proposal: Proposal, draft: Draft) -> ActionResult:
        """A call that changes nothing is recorded once, when it is over."""
        began_at = clock.now_ms()
        ending, error = self._make(scope, ready, proposal, draft.key or draft.digest)
        call_id = records.record_read(scope, draft, ending, began_at)
        if error is not None:
            raise coded(error, "read", call_id) from error
        return ActionResult("executed", "read", ending.output, call_id)

    def _send(self, scope: TenantScope, ready: Ready, proposal: Proposal, begun: Begun) -> ActionResult:
        ending, error = self._make(scope, ready, proposal, begun.sent_key)
        records.finish_call(scope, begun, draft_of(ready, proposal), ending)
        if error is not None:
            raise coded(error, proposal.effect, begun.call_id) from error
        return ActionResult("executed", proposal.effect, ending.output, begun.call_id)

    def _make(self, scope: TenantScope, ready: Ready, proposal: Proposal, key: str) -> tuple[Ending, ConnectorError | None]:
        """Make the call; how it ended, with what the connector logged, and the error if it failed."""
        lines: list[Line] = []
        traffic = Traffic()

        def keep(level: Level, message: str, fields: Json) -> None:
            if len(lines) < _MOST_LINES:
                lines.append(records.make_line(scope, proposal.request.origin, level, message, dict(fields)))

        request = proposal.request

        def call(seconds: float) -> dict[str, Any]:
            documents = self._documents.of_call(scope, request.documents) if self._documents else None
            shot = Shot(proposal.action, request.input, key, seconds, keep, traffic, documents)
            return self._integrations.calls.make(ready, shot)

        try:
            output = self._gate.run(scope, ready.slug, request.seconds, call, ready.concurrency)
            ending, failed = Ending("succeeded", "done", output), None
        except ConnectorError as error:
            ending, failed = records.ending_of(error, proposal.effect), error
        return replace(ending, lines=lines, traffic=ready.redactor.json(traffic.told())), failed

    def _preview(self, ready: Ready, proposal: Proposal) -> Preview:
        request = proposal.request
        shot = Shot(proposal.action, request.input, request.idempotency_key or "preview", request.seconds, log_to_process)
        try:
            requests = self._integrations.calls.preview(ready, shot)
        except ConnectorError as error:
            raise coded(error, proposal.effect, "") from error
        return Preview(request.action, ready.redactor.json(dict(request.input)), tuple(requests))


def _judge_by(check: PolicyCheck, scope: TenantScope, proposal: Proposal) -> None:
    try:
        check(scope, proposal)
    except ApplianceError:
        raise
    except Exception as error:
        raise PolicyDenied("a policy could not be evaluated, so the action is denied; the log has the details") from error


def _context(scope: TenantScope, call_id: str) -> str:
    return f"{scope.tenant_id}/integration-call/{call_id}"
