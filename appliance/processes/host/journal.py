"""The host of one step run: checks grants, answers calls, journals every answer, and replays the journal after a crash."""

import queue
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.governance import ActionNeedsApproval
from appliance.processes.definitions.nodes import Grants
from appliance.processes.engine import suspension, waits
from appliance.processes.engine.store import Claim, JournalEntry, append_journal, check_fence, record
from appliance.processes.engine.suspension import PendingCall, StoredVM
from appliance.processes.engine.tracing import span_key
from appliance.processes.engine.waits import PreparedCall, Waits
from appliance.sandbox import SUSPEND, HostCall, Outcome, Settled, Suspend

from .call_errors import answer_too_large, error_object, try_call
from .final_entries import build_final_entry
from .grant_checks import check_action_grant, check_read_grants, check_write_grants
from .model_calls import GENERATE, Generated, ModelCalls, answer_model_call, recorded_args, replay_answer, split_answer
from .protocols import BEFORE_RECORDING, READS, WRITES, ActionCall, Actions, PreparedData
from .vault import SECRET, Vault

ACTION = "integrations.execute"
STARTED = -1  # the position of a call that was started and has no answer yet


class Cancelled(Exception):
    """The execution was cancelled while the step was waiting for an answer."""


class Nondeterministic(Exception):
    """The code made other calls than in the recorded run."""


@dataclass(frozen=True)
class StepContext:
    """Everything a step run can call, its limits, and the key under which it is recorded."""

    claim: Claim
    run_key: tuple[str, str, int]
    grants: Grants
    data: PreparedData
    actions: Actions
    submit_io: Callable[[Callable[[], Any]], "Future[Any]"]
    is_cancelled: Callable[[], bool]
    waits: Waits
    vault: Vault
    models: ModelCalls
    answer_bytes: int = 8 << 20
    can_wait: bool = True
    """Whether the code can be suspended."""


class StepHost:
    """Answers calls from the journal first, in the recorded order, and then live.

    Everything but talking to foreign systems happens in `wait`, on the step's own thread, so that answers are recorded
    in the order in which the code received them.  `recorded` is the journal since the snapshot `stored`, or all of it
    when the code starts from the beginning.
    """

    def __init__(self, context: StepContext, recorded: list[JournalEntry], stored: StoredVM | None = None) -> None:
        self._context = context
        self._recorded = {entry.call: entry for entry in recorded}
        answered = [entry for entry in recorded if entry.position >= 0]
        self._due = deque(entry.call for entry in sorted(answered, key=lambda e: e.position))
        pending = stored.snapshot.pending if stored else ()
        self._submitted: set[int] = set(pending)
        self._waiting = {call for call in pending if call not in {entry.call for entry in answered}}
        actions = (entry for entry in recorded if entry.call in self._waiting and entry.method == ACTION)
        self._actions = {entry.call: HostCall(entry.call, entry.method, entry.args) for entry in actions}
        self._under_way = self._reported = 0
        self._new: deque[HostCall] = deque()
        self._live: queue.SimpleQueue[tuple[HostCall, Future[Any]]] = queue.SimpleQueue()
        self._clock: dict[int, list[int]] = {}
        self.position = (stored.position if stored else 0) + len(answered)
        self.unwritten: list[JournalEntry] = []
        self.retry_after: float | None = None
        self.fault_messages: dict[str, str] = {}  # by their own text, which is all that code returns of a Sentence

    # -- what the sandbox calls

    def submit(self, call: HostCall, clock: list[int]) -> None:
        """Accepts a call: compares it with the journal if it is recorded there, else queues it to be answered live."""
        entry = self._recorded.get(call.id)
        self._reported += len(clock)
        if entry is None:
            self._clock[call.id] = clock
        elif (entry.method, entry.args) != (call.method, recorded_args(call.method, call.args)):
            raise Nondeterministic(
                f"call {call.id} was {entry.method} in the recorded run and is {call.method} with other arguments now"
            )
        self._submitted.add(call.id)
        if entry is None or entry.position < 0:
            self._new.append(call)

    def poll(self) -> None:
        """Called several times a second while the step computes; raises Cancelled to end it."""
        if self._context.is_cancelled():
            raise Cancelled

    def wait(self, timeout: float) -> Settled | Suspend | None:
        """The next answer; None when there is none within `timeout` seconds, SUSPEND when only waiting calls are left.

        Cancelled and LeaseLost propagate.
        """
        if self._due:
            return self._replay(self._due.popleft())
        self.poll()
        answer = self._begin_new(timeout)
        if answer is not None:
            return answer
        if self._waiting and not self._under_way:
            answer = self._next_waiting_answer(timeout)
            if answer is not None or not self._under_way:
                return answer or SUSPEND
        try:
            call, future = self._live.get(timeout=min(timeout, 0.25))
        except queue.Empty:
            return None
        self._under_way -= 1
        ok, value = future.result()
        if isinstance(value, ActionNeedsApproval):
            return self._await_approval(call, value)
        return self._settle(call, ok, value, durable=True)

    def unreported_clock(self, clock: Sequence[int]) -> list[int]:
        """The clock values of this visit that no call has reported, because they were read after the last call."""
        return list(clock[self._reported :])

    def check_all_repeated(self) -> None:
        """Raises Nondeterministic when the code ended without making every call of the recorded run."""
        missing = sorted(self._recorded.keys() - self._submitted)
        if missing:
            entry = self._recorded[missing[0]]
            raise Nondeterministic(f"call {entry.call} was {entry.method} in the recorded run and is not made now")

    def close(self, result: Outcome, seed: int, wall_ms: int) -> None:
        """Ends the attempt: queues the final entry with the clock values and the seed that the journal does not have yet."""
        values = [value for number in sorted(self._clock) for value in self._clock[number]]
        lines = build_final_entry(result, seed, wall_ms, self.position, [*values, *self.unreported_clock(result.clock)])
        self.unwritten += lines

    def _replay(self, number: int) -> Settled:
        entry = self._recorded[number]
        if number not in self._submitted:
            raise Nondeterministic(f"call {number} was {entry.method} in the recorded run and is not made now")
        return Settled(number, entry.ok, replay_answer(self._context.vault, entry))

    def _begin_new(self, seconds: float) -> Settled | None:
        """Starts the new calls to foreign systems and those that wait; answers the first of the others at once."""
        actions = [call for call in self._new if call.method == ACTION]
        prompts = [call for call in self._new if call.method == GENERATE]
        if any(call.method not in BEFORE_RECORDING for call in self._new):
            record(self._context.claim)
        if actions or prompts:
            self._new = deque(call for call in self._new if call.method not in (ACTION, GENERATE))
        if actions:
            self._record_starts(actions)
        for call in actions:
            if call.id in self._recorded and self._is_pending(call):  # an earlier run of this attempt requested its approval
                self._waiting.add(call.id)
            else:
                self._begin_action(call, seconds)
        for call in prompts:
            self._begin_prompt(call, seconds)
        while self._new:
            first = self._new.popleft()
            if first.method in WRITES:
                return self._write(first)
            if first.method not in waits.METHODS:
                return self._settle(first, *try_call(partial(self._read, first)))
            answer = self._begin_wait(first)
            if answer is not None:
                return answer
        return None

    def _record_starts(self, calls: list[HostCall]) -> None:
        """Records, before anything is sent, the answers and clock values on which the calls' arguments may depend: without
        them a re-run could send different arguments, and the foreign system would carry out both calls."""
        last = max(call.id for call in calls)
        if not self.unwritten and not any(values for number, values in self._clock.items() if number <= last):
            return
        entries = []
        for call in calls:
            entry = replace(self._entry(call, False, None), position=STARTED)
            self._forget_clock(call.id)
            entries.append(entry)
        db.write(lambda: self._flush(entries), is_shared=True)
        self.unwritten.clear()

    # -- calls that wait

    def _begin_wait(self, call: HostCall) -> Settled | None:
        """Records what a call waits for, with everything it depends on; the answer if it does not have to wait."""
        if call.id in self._recorded:  # started by an earlier run of this attempt
            self._waiting.add(call.id)
            return None
        try:
            return self._wait_for(call, self._context.waits.prepare(call))
        except ApplianceError as error:
            return self._settle(call, False, error_object(error))

    def _await_approval(self, call: HostCall, refusal: ActionNeedsApproval) -> Settled | None:
        """Waits for the approval of an action, which is sent once it is granted."""
        if not self._context.can_wait:
            return self._settle(call, False, error_object(refusal), durable=True)
        self._actions[call.id] = call
        try:
            return self._wait_for(call, self._context.waits.await_approval(call.id, refusal.permit))
        except ApplianceError as error:
            return self._settle(call, False, error_object(error), durable=True)

    def _is_pending(self, call: HostCall) -> bool:
        claim = self._context.claim
        self._actions[call.id] = call
        return call.id in suspension.load_calls(claim.scope, claim.execution_id, self._context.run_key)

    def _wait_for(self, call: HostCall, wait: PreparedCall) -> Settled | None:
        pending, entry = db.write(lambda: self._record_wait(call, wait), is_shared=call.method in waits.OWN_METHODS)
        self.unwritten.clear()
        if pending is None:
            self._advance(entry)
            return Settled(call.id, entry.ok, entry.answer)
        self._forget_clock(call.id)
        self._waiting.add(call.id)
        return None

    def _record_wait(self, call: HostCall, wait: PreparedCall) -> tuple[PendingCall | None, JournalEntry]:
        check_fence(self._context.claim)
        pending, value = wait.record()
        entry = self._entry(call, pending is None, value)
        if pending is not None:
            entry = replace(entry, position=STARTED)
        append_journal(self._context.claim, self._context.run_key, [*self.unwritten, entry])
        return pending, entry

    def _next_waiting_answer(self, seconds: float) -> Settled | None:
        """The first answer to a waiting call; settles one whose deadline has passed, and sends an approved action."""
        claim, now = self._context.claim, clock.now_ms()
        pending_calls = suspension.load_calls(claim.scope, claim.execution_id, self._context.run_key)
        mine = [pending_calls[number] for number in sorted(self._waiting)]
        due = [each for each in mine if each.ok is not None or each.due_at <= now]
        if not due:
            return None
        first = min(due, key=lambda each: (each.answered_at or each.due_at, each.call))
        answer = db.write(lambda: self._record_answer(first), is_shared=True)
        self._waiting.discard(first.call)
        if answer is None:
            self._begin_action(self._actions[first.call], seconds, first.token)
            return None
        self.position += 1
        self.unwritten.clear()
        return Settled(first.call, *answer)

    def _record_answer(self, pending: PendingCall) -> tuple[bool, Any] | None:
        """Records and returns the answer; None when it is the approval to send an action."""
        claim = self._context.claim
        check_fence(claim)
        current = suspension.find_call(claim.scope, claim.execution_id, pending.token) or pending
        ok, value = (current.ok, current.answer) if current.ok is not None else self._context.waits.answer_due(pending)
        suspension.save_answer(claim.scope, pending.token, ok, value)
        if ok and pending.call in self._actions:
            if value["status"] == "approved":
                return None
            ok, value = False, waits.error_of_refusal(value)
        # It completes the entry of its start.
        entry = JournalEntry(call=pending.call, position=self.position, method="", args=[], ok=ok, answer=value, clock=[])
        append_journal(claim, self._context.run_key, [*self.unwritten, entry])
        return ok, value

    def next_due(self) -> int:
        """The earliest deadline of the waiting calls (epoch ms); now when one has been answered.  Called in the transaction
        that suspends the step, so that no answer is missed."""
        claim = self._context.claim
        pending_calls = suspension.load_calls(claim.scope, claim.execution_id, self._context.run_key)
        mine = [pending_calls[number] for number in self._waiting]
        return clock.now_ms() if any(each.ok is not None for each in mine) else min(each.due_at for each in mine)

    # -- how calls are answered

    def _settle(self, call: HostCall, ok: bool, value: Any, *, durable: bool = False) -> Settled:
        """Records an answer: with the next commit, or at once (`durable`) when the call may not be repeatable."""
        generated = value if isinstance(value, Generated) else None
        ok, value, recorded = (ok, value, value) if generated is None else split_answer(self._context.vault, call.id, generated)
        entry = self._entry(call, ok, self._context.vault.seal(call.id, value) if call.method == SECRET and ok else recorded)
        self._advance(entry)
        self.unwritten.append(entry)
        if durable:
            db.write(lambda: self._flush([], generated), is_shared=generated is None)
            self.unwritten.clear()
        return Settled(call.id, ok, value)

    def _entry(self, call: HostCall, ok: bool, value: Any) -> JournalEntry:
        """A journal entry with every clock value read before this call that no other entry has: earlier calls may still be
        unanswered, and a re-run must read their clock values again."""
        clock = [value for number in sorted(n for n in self._clock if n <= call.id) for value in self._clock[number]]
        args = recorded_args(call.method, call.args)
        return JournalEntry(call=call.id, position=self.position, method=call.method, args=args, ok=ok, answer=value, clock=clock)

    def _advance(self, entry: JournalEntry) -> None:
        """Advances the position past a recorded entry and drops its clock values."""
        self.position += 1
        self._forget_clock(entry.call)
        if not entry.ok:
            self.fault_messages[entry.answer["message"]] = entry.answer["message"]

    def _forget_clock(self, call: int) -> None:
        self._clock = {number: values for number, values in self._clock.items() if number > call}

    def _flush(self, more: list[JournalEntry], generated: Generated | None = None) -> None:
        check_fence(self._context.claim)
        if generated is not None:
            generated.settle(self._context.claim.scope)
        append_journal(self._context.claim, self._context.run_key, [*self.unwritten, *more])

    def _read(self, call: HostCall) -> Any:
        if call.method == SECRET:
            return self._context.vault.open(call.args)
        if call.method not in READS:
            raise ValidationFailed(Sentence("there is no api.%(method)s", method=call.method[:60]))
        check_read_grants(self._context.grants, call)
        return self._check_size(call, self._context.data.perform(self._context.claim, call.method, call.args))

    def _write(self, call: HostCall) -> Settled:
        """Performs a write and records it in one transaction, after checking the fence."""

        def commit() -> JournalEntry:
            check_fence(self._context.claim)
            try:
                with db.savepoint():
                    ok, value = True, self._check_size(call, perform())
            except ApplianceError as error:
                ok, value = False, error_object(error)
            entry = self._entry(call, ok, value)
            append_journal(self._context.claim, self._context.run_key, [*self.unwritten, entry])
            return entry

        try:
            check_write_grants(self._context.grants, call)
            perform = self._context.data.prepare(self._context.claim, call.method, call.args)
        except ApplianceError as error:
            return self._settle(call, False, error_object(error))
        entry = db.write(commit, is_shared=call.method.startswith("datapool."))
        self._advance(entry)
        self.unwritten.clear()
        return Settled(call.id, entry.ok, entry.answer)

    def _check_size(self, call: HostCall, value: Any) -> Any:
        """The answer, if the journal can store it whole; a shortened one could not be replayed after a crash."""
        size, most = len(db.dump_json(value)), self._context.answer_bytes
        if size <= most:
            return value
        raise answer_too_large(call.method, size, most, is_done=call.method == ACTION)

    def _begin_action(self, call: HostCall, seconds: float, approval_id: str | None = None) -> None:
        """Executes an action in a thread, because foreign systems are slow and calls may overlap."""
        where = ".".join(str(part) for part in (*self._context.run_key[:2], call.id) if part)

        def ask() -> tuple[bool, Any]:
            try:
                action = replace(self._action_call(call, where), approval_id=approval_id)
                return True, self._check_size(call, self._context.actions.execute(self._context.claim, action, seconds))
            except ActionNeedsApproval as refusal:
                return False, refusal
            except ApplianceError as error:
                self.retry_after = error.extra.get("retry_after")
                return False, error_object(error)

        self._under_way += 1
        self._context.submit_io(ask).add_done_callback(lambda done: self._live.put((call, done)))

    def _begin_prompt(self, call: HostCall, seconds: float) -> None:
        """Asks a model in a thread; unlike an action, the question may be repeated after a crash."""
        context = self._context

        def ask() -> tuple[bool, Any]:
            limits = clock.monotonic() + seconds, context.answer_bytes
            prompt = context.run_key, call.id, call.args
            ok, value = answer_model_call(context.models, context.claim, context.grants, prompt, limits)
            self.retry_after = (value.retry_after if ok else None) or self.retry_after
            return ok, value

        self._under_way += 1
        context.submit_io(ask).add_done_callback(lambda done: self._live.put((call, done)))

    def _action_call(self, call: HostCall, where: str) -> ActionCall:
        slug, action, payload = check_action_grant(self._context.grants, call.args)
        path, iteration, _ = self._context.run_key
        return ActionCall(slug, action, payload, where, self._context.grants.documents, step=span_key(path, iteration))
