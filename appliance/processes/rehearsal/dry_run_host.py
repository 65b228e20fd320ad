"""The host of a code step in a dry run: checks the grants of calls and answers them without side effects."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from appliance.core import clock
from appliance.core.errors import ApplianceError, PolicyDenied, TimedOut, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.processes.definitions.nodes import Step
from appliance.processes.engine import waits
from appliance.processes.engine.task import Task
from appliance.processes.host.call_errors import error_object
from appliance.processes.host.grant_checks import check_action_grant, check_read_grants, check_write_grants
from appliance.processes.host.journal import ACTION
from appliance.processes.host.model_calls import GENERATE, check_model_grant, check_prompt
from appliance.processes.host.protocols import READS, WRITES
from appliance.processes.host.vault import SECRET
from appliance.sandbox import HostCall, Settled

from .dry_run_calls import DryCalls

POLL_SECONDS = 0.2
Answer = tuple[bool, Any]


def timeout_message() -> str:
    return "the test took longer than limits.replay_seconds; test a single step with `step`, or mock slow calls"


class DryHost:
    """Answers calls one at a time, in the order in which they were made, each in a thread of `submit_io`."""

    def __init__(
        self, calls: DryCalls, task: Task, checks: waits.Waits, submit_io: Callable[[Callable[[], Any]], "Future[Any]"], ends: float
    ) -> None:
        self._calls, self._task, self._checks = calls, task, checks
        self._submit_io, self._ends = submit_io, ends
        self._new: deque[HostCall] = deque()
        self._under_way: tuple[HostCall, Future[Answer]] | None = None

    def submit(self, call: HostCall, clock: list[int]) -> None:
        """Queues a call."""
        self._new.append(call)

    def poll(self) -> None:
        """Called several times a second while the step computes; raises TimedOut after the deadline."""
        if clock.monotonic() > self._ends:
            raise TimedOut(timeout_message())

    def wait(self, timeout: float) -> Settled | None:
        """The answer to the oldest call; None while there is none."""
        self.poll()
        if self._under_way is None:
            if not self._new:
                return None
            call = self._new.popleft()
            self._under_way = call, self._submit_io(lambda: self._answer(call, timeout))
        call, future = self._under_way
        if not wait([future], min(timeout, POLL_SECONDS)).done:
            return None
        self._under_way = None
        return Settled(call.id, *future.result())

    def _answer(self, call: HostCall, seconds: float) -> Answer:
        step: Step = self._task.step
        try:
            self._check(call)
        except ApplianceError as error:
            return False, error_object(error)
        return self._calls.answer(step, self._task.iteration, call.method, call.args, seconds)

    def _check(self, call: HostCall) -> None:
        """Raises the refusals of a real execution for this call."""
        grants, method = self._task.grants, call.method
        if method == ACTION:
            check_action_grant(grants, call.args)
        elif method in READS:
            check_read_grants(grants, call)
        elif method in WRITES:
            check_write_grants(grants, call)
        elif method == SECRET:
            name = str(call.args[0] if call.args else None)[:63]
            if name not in grants.secrets:
                raise PolicyDenied(
                    Sentence("this step has no grant for the secret %(name)s; add grants: secrets: [%(name)s]", name=name)
                )
        elif method == GENERATE:
            check_prompt(check_model_grant(grants, call.args))
        elif method in waits.METHODS:
            self._checks.prepare(call)
        elif not self._calls.mocks.has_call(self._task.step, method, call.args):
            name = method[:60]
            raise ValidationFailed(
                Sentence("api.%(name)s is not answered in a test without a mock; add mocks: {%(name)s: {output: …}}", name=name)
            )
