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
from appliance.core.leases import OrphanFinder
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.governance import budgets
from appliance.governance.actions import canonical_action
from appliance.governance.executor import action_lookup, polling
from appliance.governance.executor.documents import CallDocumentsFactory
from appliance.governance.executor.input_checks import check_serializable
from appliance.governance.executor.polling import PollRequest
from appliance.governance.executor.redirects import HostChecks
from appliance.governance.executor.requests import (
    MOST_SECONDS,
    ActionRequest,
    ActionResult,
    PreviewDecision,
    Proposal,
    build_draft,
    to_api_error,
)
from appliance.governance.executor.threads import TenantThreads
from appliance.governance.executor.tool_actions import TOOL, ToolActionBuilder, build_tool_action
from appliance.governance.governor import Governor, Permit, UsedApproval, build_denial
from appliance.governance.policies.decision import ToolAction
from appliance.governance.subjects import Subject, load_subject, subject_of
from appliance.integrations import (
    Check,
    Completion,
    Draft,
    EarlierResult,
    Gate,
    Integrations,
    IntegrationSpec,
    OpenedIntegration,
    StartedCall,
    Withheld,
    call_span,
    gate,
    open_slots,
    records,
    retries,
)
from appliance.integrations.calls import CallSpec, log_to_process
from appliance.monitor import Line, audit
from appliance.tenants.grants import continued_access

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
        self, integrations: Integrations, governor: Governor, instance: Instance, documents: CallDocumentsFactory | None = None
    ) -> None:
        self._integrations = integrations
        self._governor = governor
        self._describer = ToolActionBuilder(integrations, governor)
        self._instance = instance.name
        self._enqueue = instance.enqueue
        self._is_alive = instance.is_alive or instance.name.__eq__
        self._orphans = OrphanFinder(records.LEASES, instance.name, self._is_alive, lambda key: False)
        self._documents = documents
        self._gate = Gate(open_slots(instance.name, self._is_alive))
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
        if proposal.effect == "read" and not permit.needs_write:
            return self._read(scope, proposal, permit)
        approved: dict[str, ToolAction] = {}

        def admit(call_id: str, is_again: bool) -> None:
            approved[call_id] = permit.consume(f"call:{call_id}", uses=not is_again)

        started = records.begin_call(scope, build_draft(proposal, permit), self._instance, self._is_alive, admit)
        if isinstance(started, EarlierResult):
            return ActionResult("recorded", proposal.effect, permit.redact(started.output), started.call_id)
        return self._send(scope, replace(proposal, described=approved[started.call_id]), permit, started)

    def enqueue(self, scope: TenantScope, request: ActionRequest) -> str:
        """Record an action and queue it; returns the call's id.  Raises what `execute` raises before it sends anything."""
        if self._enqueue is None:
            raise ValidationFailed("this process has no queue; omit async")
        enqueue, proposal = self._enqueue, self._prepare(scope, request)
        permit = self._permit(scope, proposal)
        draft = build_draft(proposal, permit)

        def record() -> str:
            call_id, is_new = records.enqueue_call(scope, draft)
            if is_new:
                self._store_pending(scope, call_id, replace(proposal, described=permit.consume(f"call:{call_id}")))
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
        enqueue, original = self._enqueue, retries.get_retry_request(scope, integration, call_id)
        request = ActionRequest(integration, original.action, original.input, seconds=original.seconds, approval_id=approval_id)
        proposal = self._prepare(scope, request)
        permit = self._permit(scope, proposal)

        def record() -> str:
            retry_id = retries.enqueue_retry(scope, integration, call_id, original, proposal.effect)
            audit.record(scope, "call.retry", call_id, {"integration": integration, "retried_as": retry_id})
            records.record_decision(scope, retry_id, build_draft(proposal, permit))
            self._store_pending(scope, retry_id, replace(proposal, described=permit.consume(f"call:{retry_id}")))
            enqueue(TASK, scope.tenant_id, retry_id)
            return retry_id

        return db.write(record)

    def _store_pending(self, scope: TenantScope, call_id: str, proposal: Proposal) -> None:
        request = proposal.request
        payload = {"action": request.action, "input": proposal.input_values, "seconds": request.seconds}
        payload |= {"documents": sorted(request.documents), "subject": asdict(proposal.subject)}
        sealed = self._integrations.sealer.seal(db.dump_json(payload).encode(), _context(scope, call_id))
        records.store_pending(scope, call_id, sealed)

    def run_queued(self, scope: TenantScope, call_id: str) -> None:
        """Run a queued call; no effect if another worker claimed it.  Failures are stored in the record.

        The policies are evaluated again: the call is not sent if it was switched off or denied meanwhile, or if its requester lost
        access; an approval is only valid under the policies it was given for.
        """
        claimed = records.claim_queued(scope, call_id, self._instance)
        if claimed is None:
            return
        row, started = claimed
        actor = TenantScope(
            scope.tenant_id, row.actor, scope.scopes, row.request_id, limits=continued_access.limits_of(scope, row.actor)
        )
        try:
            continued_access.check_still_allowed(actor, row.actor, {"integrations.execute"})
            actor.check_reach("integration", row.integration_id)
            proposal = self._prepare(actor, self._pending_request(actor, call_id, row.integration_id, bytes(row.pending or b"")))
            used_approval = (
                UsedApproval(row.approval_id, (row.decision or {}).get("action_digest", "")) if row.approval_id else None
            )
            permit = self._governor.permit(
                actor, proposal.subject, proposal.described, used_approval=used_approval, may_request=False
            )
        except ApplianceError as error:
            failure = {"class": error.code, "message": error.message, "details": {}}
            draft = Draft(row.integration_id, row.connector, row.action, "read", None, row.request_digest)
            records.finish_call(actor, started, draft, Completion("failed", "not_done", error=failure))
            return
        completion, failed = self._call(actor, proposal, permit, started.sent_key)
        if isinstance(failed, Withheld) and clock.now_ms() - row.created_at < _MAX_QUEUED_MS:
            records.requeue(actor, row)  # nothing was sent: `sweep` queues it again once the foreign system may be called
        else:
            records.finish_call(actor, started, build_draft(proposal, permit), completion)

    def _pending_request(self, actor: TenantScope, call_id: str, slug: str, pending: bytes) -> ActionRequest:
        payload = json.loads(self._integrations.sealer.open(pending, _context(actor, call_id)))
        documents = frozenset(payload.get("documents", ()))
        subject = load_subject(payload["subject"]) if "subject" in payload else None
        return ActionRequest(
            slug, payload["action"], payload["input"], seconds=payload["seconds"], documents=documents, subject=subject
        )

    def sweep(self, *, queue_is_empty: bool) -> int:
        """Close calls whose process is gone; returns their number.  If the queue is empty, queue waiting calls again."""
        enqueue = self._enqueue
        if queue_is_empty and enqueue is not None:
            for tenant_id, call_id in gate.waiting_in_queue(_REQUEUE_AFTER_MS):
                db.write(partial(enqueue, TASK, tenant_id, call_id))
        return records.close_orphans(self._orphans)

    def test_integration(self, scope: TenantScope, slug: str) -> Check:
        """Test the settings against the foreign system, and discover its actions.  NotFound, PolicyDenied (switched off)."""
        action = ToolAction(TOOL, "read", {}, integration=self._integrations.get_integration(scope, slug).slug, operation="test")
        self._governor.refuse_switched_off(scope, subject_of(scope), action)
        return self._integrations.test_integration(scope, slug)

    def try_settings(self, scope: TenantScope, spec: IntegrationSpec, slug: str | None = None) -> Check:
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
        self._governor.refuse_switched_off(scope, subject, build_tool_action(ready, request.action, "read", {}))
        check_serializable(request.input)
        if not 0 < request.seconds <= MOST_SECONDS:
            raise ValidationFailed(
                Sentence(
                    "seconds must be greater than 0 and at most %(most_seconds)s", most_seconds=f"{MOST_SECONDS:g}"
                ),
                pointer="/seconds",
            )
        action = self._find_action(scope, ready, request, subject)
        action_lookup.check_input(ready, action, dict(request.input))
        try:
            effect = self._integrations.calls.effect_of(ready, action, request.input)
        except ConnectorError as error:
            raise to_api_error(error, action.effect, "") from error
        described = self._describer.describe_call(scope, ready, action, effect, dict(request.input))
        return Proposal(request, ready, action, described.effect, subject, described)

    def _permit(self, scope: TenantScope, proposal: Proposal) -> Permit:
        request, used_approval = proposal.request, None
        if request.approval_id is None and request.idempotency_key is not None:
            existing = records.find_approved(scope, build_draft(proposal))
            used_approval = UsedApproval(*existing) if existing else None
        permit = self._governor.permit(
            scope, proposal.subject, proposal.described, request.approval_id, used_approval, may_request=not request.hidden
        )
        if permit.used_approval is not None and request.hidden:
            raise PolicyDenied("a call with hidden input cannot be approved; add a policy that allows or denies it")
        return permit

    def _find_action(self, scope: TenantScope, ready: OpenedIntegration, request: ActionRequest, subject: Subject) -> Action:
        def allow(effect: Effect, is_known: bool) -> None:
            action = build_tool_action(ready, request.action, effect, dict(request.input), self._describer.kin_of(scope, ready))
            if self._governor.evaluate(scope, subject, action).verdict == "deny":
                refusal = build_denial(action, self._governor.evaluate_and_audit(scope, subject, action))
                raise refusal if is_known else action_lookup.unknown_action_denied(refusal, ready)

        try:
            query = action_lookup.ActionQuery(ready, request.action, request.seconds, allow)
            return action_lookup.find_action(self._integrations, self._gate, scope, query)
        except ConnectorError as error:
            raise to_api_error(error, "read", "") from error

    def poll(self, scope: TenantScope, request: PollRequest) -> Polled:
        """Poll an integration for new items; policies treat the poll as an action that reads.

        NotFound, ValidationFailed, PolicyDenied, BudgetExceeded, ActionFailed, AddressNotAllowed.
        """

        allow = partial(polling.permit_poll, self._governor, scope, request, self._describer)
        try:
            return polling.poll(self._integrations, self._gate, scope, request, allow, self._governor)
        except ConnectorError as error:
            raise to_api_error(error, "read", "") from error

    def _read(self, scope: TenantScope, proposal: Proposal, permit: Permit) -> ActionResult:
        """Make a call that changes nothing; it is recorded once, when it has finished."""
        began_at, draft = clock.now_ms(), build_draft(proposal, permit)
        completion, error = self._call(scope, proposal, permit, draft.key or draft.digest)
        call_id = records.record_read(scope, draft, completion, began_at)
        if error is not None:
            raise to_api_error(error, "read", call_id) from error
        return ActionResult("executed", "read", completion.output, call_id)

    def _send(self, scope: TenantScope, proposal: Proposal, permit: Permit, started: StartedCall) -> ActionResult:
        completion, error = self._call(scope, proposal, permit, started.sent_key)
        records.finish_call(scope, started, build_draft(proposal, permit), completion)
        if error is not None:
            raise to_api_error(error, proposal.effect, started.call_id) from error
        return ActionResult("executed", proposal.effect, completion.output, started.call_id)

    def _call(
        self, scope: TenantScope, proposal: Proposal, permit: Permit, key: str
    ) -> tuple[Completion, ConnectorError | PolicyDenied | None]:
        """Make the call; returns its completion with what the connector logged, and the error if it failed."""
        lines: list[Line] = []
        traffic = Traffic()

        def log_line(level: Level, message: str, fields: Json) -> None:
            if len(lines) < _MAX_LOG_LINES:
                lines.append(records.make_line(scope, proposal.request.origin, level, message, dict(fields)))

        request, ready, hops = proposal.request, proposal.ready, HostChecks(self._governor, permit)

        def call(seconds: float) -> dict[str, Any]:
            documents = self._documents.of_call(scope, request.documents) if self._documents else None
            shot = CallSpec(
                action=proposal.action, input=proposal.input_values, key=key, seconds=seconds, sink=log_line, traffic=traffic,
                documents=documents, hides_output=permit.redacts, admit=hops.check,
            )
            permit.refuse_switched_off()  # it may have waited for a free slot
            try:
                with call_span(scope, ready, proposal.action.name):
                    return self._integrations.calls.make(ready, shot)
            except ConnectorError as error:
                permit.redact_failure(error)  # before the circuit breaker stores its message
                raise

        run = partial(self._gate.run, scope, ready.slug, request.seconds, call, ready.concurrency)
        completion, failed = self._run_call(proposal, run)
        visible_traffic = permit.redact_traffic(ready.redactor.json(traffic.to_record()))
        return replace(completion, output=permit.redact(completion.output), lines=lines, traffic=visible_traffic), failed

    @staticmethod
    def _run_call(proposal: Proposal, run: Callable[[], Any]) -> tuple[Completion, ConnectorError | PolicyDenied | None]:
        try:
            return Completion("succeeded", "done", run()), None
        except ConnectorError as error:
            return records.completion_of(error, proposal.effect), error
        except PolicyDenied as error:  # switched off just before sending
            failure = {"class": error.code, "message": error.message, "details": {}}
            return Completion("failed", "not_done", error=failure), error

    def _preview(self, scope: TenantScope, proposal: Proposal) -> ActionResult:
        """What would be sent, and the policies' decision; PolicyDenied if they deny it."""
        request, ready = proposal.request, proposal.ready
        decision = self._governor.evaluate(scope, proposal.subject, proposal.described)
        if decision.verdict == "deny":
            raise build_denial(proposal.described, self._governor.evaluate_and_audit(scope, proposal.subject, proposal.described))
        shot = CallSpec(
            proposal.action, proposal.input_values, request.idempotency_key or "preview", request.seconds, log_to_process
        )
        try:
            requests = self._integrations.calls.preview(ready, shot)
        except ConnectorError as error:
            raise to_api_error(error, proposal.effect, "") from error
        digest = canonical_action(scope, proposal.subject, proposal.described, decision.version).digest
        if decision.obligations.dry_run_first:
            db.write(lambda: budgets.record_preview(scope, proposal.subject, digest))
        preview = Preview(request.action, ready.redactor.json(proposal.input_values), tuple(requests))
        return ActionResult("previewed", proposal.effect, preview=preview, ruling=PreviewDecision(decision, digest))


def _context(scope: TenantScope, call_id: str) -> str:
    return f"{scope.tenant_id}/integration-call/{call_id}"
