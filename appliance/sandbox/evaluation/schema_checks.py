"""Checks costly values against a JSON Schema in a separate sandbox process with its own time and memory limits."""

from __future__ import annotations

from dataclasses import dataclass

from appliance.core.errors import Detail, Overloaded
from appliance.core.json_schema import Findings, OutOfBounds, Question
from appliance.core.json_schema.checking import CHECK_SECONDS, LIST_SECONDS
from appliance.core.sentences import Sentence
from appliance.sandbox.evaluation.schema_worker import MEMORY_BYTES
from appliance.sandbox.pool.conversation import Conversation, Lost, Overdue
from appliance.sandbox.pool.lane import Busy
from appliance.sandbox.pool.occasional import OccasionalLane
from appliance.sandbox.pool.process import Process, Slot, StartFailed

# How long a value may wait, and how many of one tenant may wait at once: more would only occupy memory and threads.
PATIENCE_SECONDS, PLACES_EACH = 10.0, 3
MOST_PROCESSES = 3  # processes in which one check may be attempted


class SchemaChecker:
    """The worker of `core.json_schema`, with a lane of one process; serves tenants in turn and isolates their checks."""

    def __init__(self, lane: OccasionalLane) -> None:
        self._lane = lane
        self._used: Process | None = None

    def check(self, question: Question) -> Findings:
        """The problems of the value; raises OutOfBounds, Overloaded."""
        try:
            for _ in range(MOST_PROCESSES):
                with self._lane.slot(PATIENCE_SECONDS, question.namespace) as slot:
                    if slot.channel.is_gone():
                        self._lane.condemn(slot.process)  # it died while it was idle
                        continue
                    is_fresh, self._used = slot.process is not self._used, slot.process
                    try:
                        return self._check(slot, question)
                    except Lost:
                        if is_fresh:
                            break  # a used process may have died of memory left by others, so only a fresh one counts
        except (Busy, StartFailed) as refusal:
            raise Overloaded(
                "checking this value against its schema takes long, and other values are being checked; send it again later",
                headers={"Retry-After": "2"},
            ) from refusal
        raise OutOfBounds(Sentence("To check this value against its schema takes more than %(size)s MB.", size=MEMORY_BYTES >> 20))

    def process_ids(self) -> list[int]:
        return self._lane.process_ids()

    def _check(self, slot: Slot, question: Question) -> Findings:
        """Check the value in one process; raises Lost if the process ends, such as for using too much memory."""
        try:
            answer = self._ask(slot, CHECK_SECONDS, "check", question.schema, question.value)
        except Overdue as fault:
            raise OutOfBounds(
                Sentence("To check this value against its schema takes longer than %(seconds)s s.", seconds=f"{CHECK_SECONDS:g}")
            ) from fault
        first, is_complete = answer.problems, not answer.problems
        if first and question.lists:
            try:
                answer = self._ask(slot, LIST_SECONDS, "list")
            except (Overdue, Lost):
                return Findings(first[:1], is_complete=False)
            first, is_complete = answer.problems, True
        if answer.is_full:
            self._lane.condemn(slot.process, "memory")
        return Findings(first if is_complete else first[:1], is_complete=is_complete)

    def _ask(self, slot: Slot, seconds: float, operation: str, *parts: bytes) -> _Answer:
        try:
            answer, _ = Conversation(slot, seconds).ask({"op": operation}, *parts)
            return _Answer([Detail(*each) for each in answer["problems"]], bool(answer["full"]))
        except Overdue:
            self._lane.condemn(slot.process, "overdue")
            raise
        except (Lost, KeyError, TypeError) as fault:
            self._lane.condemn(slot.process)
            raise Lost from fault


@dataclass(frozen=True)
class _Answer:
    """The problems found, and whether the process retains so much memory that it must be replaced."""

    problems: list[Detail]
    is_full: bool
