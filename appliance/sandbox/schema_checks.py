"""Values checked against a JSON Schema in a sandbox process of their own, where neither time nor memory is anybody else's."""

from __future__ import annotations

from appliance.core.errors import Detail, Overloaded
from appliance.core.json_schema import Findings, OutOfBounds, Question
from appliance.core.json_schema.checking import CHECK_SECONDS, LIST_SECONDS
from appliance.sandbox.conversation import Conversation, Lost, Overdue
from appliance.sandbox.lane import Busy
from appliance.sandbox.occasional import OccasionalLane
from appliance.sandbox.process import Slot, StartFailed
from appliance.sandbox.schema_worker import MEMORY_BYTES

# How long a value may wait for its turn, and how many of one tenant may: more would only hold memory and threads.
PATIENCE_SECONDS, PLACES_EACH = 10.0, 3


class SchemaChecker:
    """The worker of `core.json_schema`, over a lane of one process; tenants take turns."""

    def __init__(self, lane: OccasionalLane) -> None:
        self._lane = lane

    def check(self, question: Question) -> Findings:
        """What is wrong with the value; OutOfBounds, Overloaded."""
        try:
            with self._lane.slot(PATIENCE_SECONDS, question.namespace) as slot:
                if not slot.channel.is_gone():
                    return self._check(slot, question)
                self._lane.condemn(slot.process)  # it ended while nobody used it
            with self._lane.slot(PATIENCE_SECONDS, question.namespace) as slot:
                return self._check(slot, question)
        except (Busy, StartFailed) as refusal:
            raise Overloaded(
                "this value takes long to check against its schema, and others are being checked; send it again later",
                headers={"Retry-After": "2"},
            ) from refusal

    def process_ids(self) -> list[int]:
        return self._lane.process_ids()

    def _check(self, slot: Slot, question: Question) -> Findings:
        try:
            first = self._ask(slot, CHECK_SECONDS, "check", question.schema, question.value)
        except Overdue as fault:
            raise OutOfBounds(f"To check this value against its schema takes longer than {CHECK_SECONDS:g} s.") from fault
        except Lost as fault:
            raise OutOfBounds(f"To check this value against its schema takes more than {MEMORY_BYTES >> 20} MB.") from fault
        if not first:
            return Findings([])
        if not question.lists:
            return Findings(first[:1], is_complete=False)
        try:
            return Findings(self._ask(slot, LIST_SECONDS, "list"))
        except (Overdue, Lost):
            return Findings(first[:1], is_complete=False)

    def _ask(self, slot: Slot, seconds: float, operation: str, *parts: bytes) -> list[Detail]:
        try:
            answer, _ = Conversation(slot, seconds).ask({"op": operation}, *parts)
            return [Detail(*each) for each in answer["problems"]]
        except Overdue:
            self._lane.condemn(slot.process, "overdue")
            raise
        except (Lost, KeyError, TypeError) as fault:
            self._lane.condemn(slot.process)
            raise Lost from fault
