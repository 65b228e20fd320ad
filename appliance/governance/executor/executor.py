"""The governed executor: evaluates an action, records it, makes the call, and never repeats a write whose result is unknown."""

import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeVar

from appliance.connectors import Preview, Traffic
from appliance.connectors.contract import Action, ConnectorError, Effect, Json, Level, Polled
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance import budgets
from appliance.governance.actions import canonical_action
from appliance.governance.executor import offers, polling
from appliance.governance.executor.describing import TOOL, Describer, describe
from appliance.governance.executor.documents import DocumentDoor
from appliance.governance.executor.hops import Hops
from appliance.governance.executor.polling import PollRequest
from appliance.governance.executor.requests import MOST_SECONDS, ActionRequest, ActionResult, Proposal, Ruling, coded, draft_of
from appliance.governance.executor.sendable import check_sendable
from appliance.governance.executor.threads import TenantThreads
from appliance.governance.governor import Governor, Held, Permit, denied
from appliance.governance.policies.decision import ToolAction
from appliance.governance.subjects import Subject, subject_from, subject_of
from appliance.integrations import (
    Begun,
    Check,
    Done,
    Draft,
    Ending,
    Gate,
    Integrations,
    Ready,
    Spec,
    Withheld,
    call_span,
    records,
    retrying,
)
from appliance.integrations.calls import Shot, log_to_process
from appliance.monitor import Line
from appliance.tenants.grants import refuse_departed

TASK = "governance.call"
_REQUEUE_AFTER_MS = 10_000
_MAX_QUEUED_MS = 3_600_000

_MAX_LOG_LINES = 200

T = TypeVar("T")
Enqueue = Callable[[str, str, str], None]


@dataclass(frozen=True)
class Instance:
    """This process: `name` is stored with running calls, `is_alive` says which of those names are still running (default: only
    this one), `enqueue` is called inside a write to schedule `run_queued`."""

    name: str
    enqueue: Enqueue | None = None
    is_alive: records.IsAlive | None = None


class GovernedExecutor:
    """Makes every call to a foreign system, after the governor has allowed it."""

    def __init__(
        self, integrations: Integrations, governor: Governor, instance: Instance, documents: DocumentDoor | None = None
    ) -> None:
        self._integrations = integrations
        self._governor = governor
        self._describer = Describer(integrations, governor)
        self._instance = instance.name
        self._enqueue = instance.enqueue
        self._is_alive = instance.is_alive or instance.name.__eq__
        self._documents = documents
        self._gate = Gate()
        self._threads = TenantThreads()

    def submit(self, scope: TenantScope, work: Callable[[], T]) -> "Future[T]":
        """Run work that waits for a foreign system in a dedicated thread; ConcurrencyLimited."""
        return self._threads.submit(scope, work)

    def stop(self) -> None:
        """Interrupt pauses and close idle connections; calls in progress run to their deadline."""
        self._integrations.calls.stop()
        self._threads.stop()

    def execute(self, scope: TenantScope, request: ActionRequest) -> ActionResult:
        """Run an action, or in `preview` mode return whether it would be allowed or need an approval.

        NotFound (integration), ValidationFailed (action, input), PolicyDenied, ActionNeedsApproval, errors of the named approval,
        BudgetExceeded, ActionFailed, AddressNotAllowed, OutcomeUnknown (an earlier write with this key was sent and its result is
        unknown), IdempotencyInFlight, IdempotencyMismatch.
        """
        proposal = self._prepare(scope, request)
        if request.mode == "preview":
            return self._preview(scope, proposal)
        permit = self._permit(scope, proposal)
        if proposal.effect == "read" and not permit.is_owing:
            return self._read(scope, proposal, permit)
        approved: list[ToolAction] = []

        def admit(call_id: str, is_again: bool) -> None:
            approved.append(permit.take(f"call:{call_id}", uses=not is_again))

        started = records.begin_call(scope, draft_of(proposal, permit), self._instance, self._is_alive, admit)
        if isinstance(started, Done):
            return ActionResult("recorded", proposal.effect, permit.conceal(started.output), started.call_id)
        return self._send(scope, replace(proposal, described=approved[0]), permit, started)

    def enqueue(self, scope: TenantScope, request: ActionRequest) -> str:
        """Record an action and queue it; returns the call's id.  Raises what `execute` raises before it sends anything."""
        if self._enqueue is None:
            raise ValidationFailed("this process has no queue; omit async")
        enqueue, proposal = self._enqueue, self._prepare(scope, request)
        permit = self._permit(scope, proposal)
        draft = draft_of(proposal, permit)

        def record() -> str:
            call_id, is_new = records.enqueue_call(scope, draft)
            if is_new:
                self._store_pending(scope, call_id, replace(proposal, described=permit.take(f"call:{call_id}")))
                enqueue(TASK, scope.tenant_id, call_id)
            return call_id

        return db.write(record)

    def retry(self, scope: TenantScope, integration: str, call_id: str, approval_id: str | None = None) -> str:
        """Queue a failed call again with its original key; returns the id of the new record.

        NotFound; Conflict unless it failed and cannot happen twice; raises what `execute` raises before it sends anything.  If an
        approval is required, the retry needs its own.
        """
        if self._enqueue is None:
            raise ValidationFailed("this process has no queue to retry the call in; send the request to one that has")
        enqueue, original = self._enqueue, retrying.find_repeatable(scope, integration, call_id)
        request = ActionRequest(integration, original.action, original.input, seconds=original.seconds, approval_id=approval_id)
        proposal = self._prepare(scope, request)
        permit = self._permit(scope, proposal)

        def record() -> str:
            retry_id = retrying.enqueue_retry(scope, integration, call_id, original, proposal.effect)
            records.note_decision(scope, retry_id, draft_of(proposal, permit))
            self._store_pending(scope, retry_id, replace(proposal, described=permit.take(f"call:{retry_id}")))
            enqueue(TASK, scope.tenant_id, retry_id)
            return retry_id

        return db.write(record)

    def _store_pending(self, scope: TenantScope, call_id: str, proposal: Proposal) -> None:
        request = proposal.request
        payload = {"action": request.action, "input": proposal.given, "seconds": request.seconds}
        payload |= {"documents": sorted(request.documents), "subject": asdict(proposal.subject)}
        sealed = self._integrations.sealer.seal(db.dump_json(payload).encode(), _context(scope, call_id))
        records.keep_pending(scope, call_id, sealed)

    def run_queued(self, scope: TenantScope, call_id: str) -> None:
        """Run a queued call; no effect if another worker claimed it.  Failures are stored in the record.

        The policies are evaluated again: the call is not sent if it was switched off or denied meanwhile, or if its requester lost
        access; an approval is only valid under the policies it was given for.
        """
        row = records.claim_queued(scope, call_id, self._instance)
        if row is None:
            return
        started = Begun(call_id, row.sent_key, clock.now_ms())
        actor = TenantScope(scope.tenant_id, row.actor, scope.scopes, row.request_id)
        try:
            refuse_departed(actor, row.actor, {"integrations.execute"})
            proposal = self._prepare(actor, self._pending_request(actor, call_id, row.integration_id, bytes(row.pending or b"")))
            used_approval = Held(row.approval_id, (row.decision or {}).get("action_digest", "")) if row.approval_id else None
            permit = self._governor.permit(actor, proposal.subject, proposal.described, held=used_approval, asks=False)
        except ApplianceError as error:
            failure = {"class": error.code, "message": error.message, "details": {}}
            draft = Draft(row.integration_id, row.connector, row.action, "read", None, row.request_digest)
            records.finish_call(actor, started, draft, Ending("failed", "not_done", error=failure))
            return
        completion, failed = self._make(actor, proposal, permit, started.sent_key)
        if isinstance(failed, Withheld) and clock.now_ms() - row.created_at < _MAX_QUEUED_MS:
            records.put_back(actor, row)  # nothing was sent: `sweep` queues it again once the foreign system may be called
        else:
            records.finish_call(actor, started, draft_of(proposal, permit), completion)

    def _pending_request(self, actor: TenantScope, call_id: str, slug: str, pending: bytes) -> ActionRequest:
        payload = json.loads(self._integrations.sealer.open(pending, _context(actor, call_id)))
        documents = frozenset(payload.get("documents", ()))
        subject = subject_from(payload["subject"]) if "subject" in payload else None
        return ActionRequest(
            slug, payload["action"], payload["input"], seconds=payload["seconds"], documents=documents, subject=subject
        )

    def sweep(self, *, queue_is_empty: bool) -> int:
        """Close calls whose process is gone; returns their number.  If the queue is empty, queue waiting calls again."""
        enqueue = self._enqueue
        if queue_is_empty and enqueue is not None:
            for tenant_id, call_id in records.waiting_in_queue(_REQUEUE_AFTER_MS):
                db.write(partial(enqueue, TASK, tenant_id, call_id))
        return records.close_orphans(self._is_alive)

    def test_integration(self, scope: TenantScope, slug: str) -> Check:
        """Test the settings against the foreign system, and discover its actions.  NotFound, PolicyDenied (switched off)."""
        action = ToolAction(TOOL, "read", {}, integration=self._integrations.get_integration(scope, slug).slug, operation="test")
        self._governor.refuse_switched_off(scope, subject_of(scope), action)
        return self._integrations.test_integration(scope, slug)

    def try_settings(self, scope: TenantScope, spec: Spec, slug: str | None = None) -> Check:
        """As `Integrations.try_settings`; PolicyDenied (switched off)."""
        action = ToolAction(TOOL, "read", {}, integration=slug or spec.connector, operation="test")
        self._governor.refuse_switched_off(scope, subject_of(scope), action)
        return self._integrations.try_settings(scope, spec, slug)

    def describe_action(self, scope: TenantScope, request: ActionRequest) -> ToolAction:
        """The action as policies and approvals would see this call, without making it.  Raises what `execute` raises before."""
        return self._prepare(scope, request).described

    # -- the stages of one call

    def _prepare(self, scope: TenantScope, request: ActionRequest) -> Proposal:
        ready = self._integrations.ready(scope, request.integration, request.hidden)
        subject = request.subject or subject_of(scope)
        # Checked first, so that a system that is switched off is not called for its actions either.
        self._governor.refuse_switched_off(scope, subject, describe(ready, request.action, "read", {}))
        check_sendable(request.input)
        if not 0 < request.seconds <= MOST_SECONDS:
            raise ValidationFailed(
                Sentence(
                    "seconds must be greater than 0 and at most %(most_seconds)s", most_seconds=f"{MOST_SECONDS:g}"
                ),
                pointer="/seconds",
            )
        action = self._find_action(scope, ready, request, subject)
        offers.check_input(ready, action, dict(request.input))
        try:
            effect = self._integrations.calls.effect_of(ready, action, request.input)
        except ConnectorError as error:
            raise coded(error, action.effect, "") from error
        described = self._describer.describe_call(scope, ready, action, effect, dict(request.input))
        return Proposal(request, ready, action, described.effect, subject, described)

    def _permit(self, scope: TenantScope, proposal: Proposal) -> Permit:
        request, used_approval = proposal.request, None
        if request.approval_id is None and request.idempotency_key is not None:
            existing = records.find_approved(scope, draft_of(proposal))
            used_approval = Held(*existing) if existing else None
        asks = not request.hidden
        permit = self._governor.permit(scope, proposal.subject, proposal.described, request.approval_id, used_approval, asks=asks)
        if permit.used_approval is not None and request.hidden:
            raise PolicyDenied("a call with hidden input cannot be approved; add a policy that allows or denies it")
        return permit

    def _find_action(self, scope: TenantScope, ready: Ready, request: ActionRequest, subject: Subject) -> Action:
        def allow(effect: Effect, is_known: bool) -> None:
            action = describe(ready, request.action, effect, dict(request.input), self._describer.kin_of(scope, ready))
            if self._governor.consider(scope, subject, action).verdict == "deny":
                refusal = denied(action, self._governor.judge(scope, subject, action))
                raise refusal if is_known else offers.judged_unknown(refusal, ready)

        try:
            query = offers.Wanted(ready, request.action, request.seconds, allow)
            return offers.find_action(self._integrations, self._gate, scope, query)
        except ConnectorError as error:
            raise coded(error, "read", "") from error

    def poll(self, scope: TenantScope, request: PollRequest) -> Polled:
        """Poll an integration for new items; policies treat the poll as an action that reads.

        NotFound, ValidationFailed, PolicyDenied, BudgetExceeded, ActionFailed, AddressNotAllowed.
        """

        allow = partial(polling.admit, self._governor, scope, request, self._describer)
        try:
            return polling.poll(self._integrations, self._gate, scope, request, allow, self._governor)
        except ConnectorError as error:
            raise coded(error, "read", "") from error

    def _read(self, scope: TenantScope, proposal: Proposal, permit: Permit) -> ActionResult:
        """Make a call that changes nothing; it is recorded once, when it has finished."""
        began_at, draft = clock.now_ms(), draft_of(proposal, permit)
        completion, error = self._make(scope, proposal, permit, draft.key or draft.digest)
        call_id = records.record_read(scope, draft, completion, began_at)
        if error is not None:
            raise coded(error, "read", call_id) from error
        return ActionResult("executed", "read", completion.output, call_id)

    def _send(self, scope: TenantScope, proposal: Proposal, permit: Permit, started: Begun) -> ActionResult:
        completion, error = self._make(scope, proposal, permit, started.sent_key)
        records.finish_call(scope, started, draft_of(proposal, permit), completion)
        if error is not None:
            raise coded(error, proposal.effect, started.call_id) from error
        return ActionResult("executed", proposal.effect, completion.output, started.call_id)

    def _make(
        self, scope: TenantScope, proposal: Proposal, permit: Permit, key: str
    ) -> tuple[Ending, ConnectorError | PolicyDenied | None]:
        """Make the call; returns its completion with what the connector logged, and the error if it failed."""
        lines: list[Line] = []
        traffic = Traffic()

        def log_line(level: Level, message: str, fields: Json) -> None:
            if len(lines) < _MAX_LOG_LINES:
                lines.append(records.make_line(scope, proposal.request.origin, level, message, dict(fields)))

        request, ready, hops = proposal.request, proposal.ready, Hops(self._governor, permit)

        def call(seconds: float) -> dict[str, Any]:
            documents = self._documents.of_call(scope, request.documents) if self._documents else None
            shot = Shot(proposal.action, proposal.given, key, seconds, log_line, traffic, documents, permit.hides, hops.admit)
            permit.refuse_switched_off()  # it may have waited for a free slot
            try:
                with call_span(scope, ready, proposal.action.name):
                    return self._integrations.calls.make(ready, shot)
            except ConnectorError as error:
                permit.conceal_failure(error)  # before the circuit breaker stores its message
                raise

        run = partial(self._gate.run, scope, ready.slug, request.seconds, call, ready.concurrency)
        completion, failed = self._run_call(proposal, run)
        visible_traffic = permit.conceal_traffic(ready.redactor.json(traffic.told()))
        return replace(completion, output=permit.conceal(completion.output), lines=lines, traffic=visible_traffic), failed

    @staticmethod
    def _run_call(proposal: Proposal, run: Callable[[], Any]) -> tuple[Ending, ConnectorError | PolicyDenied | None]:
        try:
            return Ending("succeeded", "done", run()), None
        except ConnectorError as error:
            return records.ending_of(error, proposal.effect), error
        except PolicyDenied as error:  # switched off just before sending
            failure = {"class": error.code, "message": error.message, "details": {}}
            return Ending("failed", "not_done", error=failure), error

    def _preview(self, scope: TenantScope, proposal: Proposal) -> ActionResult:
        """What would be sent, and the policies' decision; PolicyDenied if they deny it."""
        request, ready = proposal.request, proposal.ready
        decision = self._governor.consider(scope, proposal.subject, proposal.described)
        if decision.verdict == "deny":
            raise denied(proposal.described, self._governor.judge(scope, proposal.subject, proposal.described))
        shot = Shot(proposal.action, proposal.given, request.idempotency_key or "preview", request.seconds, log_to_process)
        try:
            requests = self._integrations.calls.preview(ready, shot)
        except ConnectorError as error:
            raise coded(error, proposal.effect, "") from error
        digest = canonical_action(scope, proposal.subject, proposal.described, decision.version).digest
        if decision.obligations.dry_run_first:
            db.write(lambda: budgets.note_preview(scope, proposal.subject, digest))
        preview = Preview(request.action, ready.redactor.json(proposal.given), tuple(requests))
        return ActionResult("previewed", proposal.effect, preview=preview, ruling=Ruling(decision, digest))


def _context(scope: TenantScope, call_id: str) -> str:
    return f"{scope.tenant_id}/integration-call/{call_id}"
