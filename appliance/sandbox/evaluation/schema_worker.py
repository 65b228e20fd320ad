"""The sandbox process's side of schema checks: compiles admitted schemas and checks one value at a time."""

import json
import os
import resource
from collections import OrderedDict
from io import FileIO
from typing import Any

import jsonschema_rs

from appliance.core.json_schema.checking import MOST_LISTED
from appliance.core.json_schema.schema import first_error, list_problems, make_validator
from appliance.sandbox.wire import Channel, Header, Verb

# The memory available to one check: the value, its schema and the errors.
MEMORY_BYTES = 64 << 20
# The memory that earlier checks may leave behind; beyond it the process reports that it must be replaced.
KEPT_BYTES = 16 << 20
_STACK_BYTES = 16 << 20  # of the thread that checks
_MOST_VALIDATORS = 16
# Checks can use a processor fully, so they run at a lower priority than everything else.
_NICENESS = 10


class SchemaChecks:
    """Checks one value at a time: first whether it is valid, then on request lists all of its problems.

    Every check has `MEMORY_BYTES` of its own; an answer has `full` set if too much memory remains in use afterwards.
    """

    def __init__(self) -> None:
        self._validators: OrderedDict[bytes, jsonschema_rs.Draft202012Validator] = OrderedDict()
        self._current: tuple[jsonschema_rs.Draft202012Validator, Any] | None = None
        os.nice(_NICENESS)
        make_validator({}).is_valid({})
        self._status = FileIO("/proc/self/status")  # no files can be opened once the process is confined
        self._most_kept = self._private_bytes() + _STACK_BYTES + KEPT_BYTES
        self._limit = self._most_kept + MEMORY_BYTES
        self.verbs: dict[str, Verb] = {"check": self._check, "list": self._list}

    def begin(self) -> None:
        """Limit the process's memory."""
        resource.setrlimit(resource.RLIMIT_DATA, (self._limit, self._limit))

    def _check(self, channel: Channel, header: Header, parts: list[bytes]) -> None:
        schema, value = parts
        self._current = None  # free the last value before the next one is loaded
        validator, instance = self._validator_of(schema), json.loads(value)
        del parts[:], value
        if validator.is_valid(instance):
            del instance
            self._end(channel, [])
            return
        self._current = validator, instance
        self._end(channel, [_to_wire(each) for each in first_error(validator, instance)[:MOST_LISTED]])

    def _list(self, channel: Channel, header: Header, parts: list[bytes]) -> None:
        if self._current is None:
            raise ValueError("there is no value to list the problems of")
        problems = list_problems(*self._current)[:MOST_LISTED]
        self._current = None
        self._end(channel, [_to_wire(each) for each in problems])

    def _end(self, channel: Channel, problems: list[list[str]]) -> None:
        channel.send({"op": "end", "problems": problems, "full": self._private_bytes() > self._most_kept})

    def _private_bytes(self) -> int:
        """The bytes that currently count against RLIMIT_DATA."""
        self._status.seek(0)
        lines = (self._status.read(1 << 16) or b"").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(b"VmData:"))

    def _validator_of(self, schema: bytes) -> "jsonschema_rs.Draft202012Validator":
        validator = self._validators.get(schema)
        if validator is None:
            validator = self._validators[schema] = make_validator(json.loads(schema))
            while len(self._validators) > _MOST_VALIDATORS:
                self._validators.popitem(last=False)
        self._validators.move_to_end(schema)
        return validator


def _to_wire(detail: Any) -> list[str]:
    return [detail.pointer, detail.code, detail.message]

