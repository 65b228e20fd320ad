"""Samples: named inputs and step outputs, pinned to a process for testing its draft and its steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import Conflict, ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit
from appliance.processes.engine import store
from appliance.processes.engine.decide import FINISHED
from appliance.processes.executions import service as executions
from appliance.processes.models import Process, SampleRow

__all__ = ["SampleRow"]
MOST = 50
MOST_BYTES = 1 << 20
OUTPUT_BYTES = 256 << 10


@dataclass(frozen=True)
class Sample:
    """The content of a sample: an input and outputs by step id.

    With `from_execution` they are taken from that execution; `steps`, and an `input` that is not None, override them.
    """

    input: Mapping[str, Any] | None = None
    steps: Mapping[str, Any] = field(default_factory=dict)
    from_execution: str | None = None


def pin_sample(scope: TenantScope, process_id: str, name: str, sample: Sample) -> tuple[SampleRow, bool]:
    """Creates or replaces a sample; returns it and whether it is new.

    Raises NotFound (process, execution), ValidationFailed for an invalid slug or too much data, Conflict when the process
    has the maximum number.  Outputs of steps inside a for_each, and those over 256 KiB, are not taken from an execution.
    """
    ids.check_slug(name, pointer="/name")
    scope.get(Process, id=process_id)
    payload, steps = _contents(scope, process_id, sample)
    size = len(db.dump_json([payload, steps]).encode())
    if size > MOST_BYTES:
        raise ValidationFailed(Sentence(
            "a sample has at most %(most_bytes)s KiB, this one %(size)s; pin fewer steps",
            most_bytes=MOST_BYTES >> 10, size=size >> 10,
        ))
    now = clock.now_ms()
    values = {"input": payload, "steps": steps, "from_execution": sample.from_execution, "updated_at": now}

    def pin() -> tuple[SampleRow, bool]:
        existing = scope.find(SampleRow, process_id=process_id, name=name)
        if existing is None:
            scope.get(Process, id=process_id)
            count = scope.select(SampleRow).where(SampleRow.process_id == process_id).count()
            if count >= MOST:
                raise Conflict(Sentence("a process has at most %(most)s samples; delete one first", most=MOST))
            scope.insert(SampleRow, process_id=process_id, name=name, created_at=now, **values)
        else:
            mine = (SampleRow.process_id == process_id) & (SampleRow.name == name)
            scope.update(SampleRow, **values).where(mine).execute()
        audit.record(scope, "sample.set", process_id, {"sample": name, "from": sample.from_execution})
        return get_sample(scope, process_id, name), existing is None

    return db.write(pin)


def _contents(scope: TenantScope, process_id: str, sample: Sample) -> tuple[dict[str, Any], dict[str, Any]]:
    """The input and the outputs, from the sample's execution and its own values."""
    if sample.from_execution is None:
        return dict(sample.input or {}), dict(sample.steps)
    row = executions.get_execution(scope, sample.from_execution, process_id)
    runs = [run for run in store.load_runs(scope, row.id) if run.status in FINISHED and not run.iteration]
    outputs = {run.step: run.output for run in runs if len(db.dump_json(run.output).encode()) <= OUTPUT_BYTES}
    return dict(row.input if sample.input is None else sample.input), {**outputs, **sample.steps}


def get_sample(scope: TenantScope, process_id: str, name: str) -> SampleRow:
    """The sample; raises NotFound without one."""
    scope.get(Process, id=process_id)
    return scope.get(SampleRow, process_id=process_id, name=name)


def list_samples(scope: TenantScope, process_id: str, page: PageRequest) -> Page[SampleRow]:
    """The samples of a process, sorted by name."""
    scope.get(Process, id=process_id)
    query = scope.select(SampleRow).where(SampleRow.process_id == process_id)
    return paginate(query, page, {"name": SampleRow.name, "updated_at": SampleRow.updated_at}, default="name", tie="name")


def delete_sample(scope: TenantScope, process_id: str, name: str) -> None:
    """Deletes a sample; raises NotFound without one."""

    def delete() -> None:
        get_sample(scope, process_id, name)
        mine = (SampleRow.process_id == process_id) & (SampleRow.name == name)
        scope.delete(SampleRow).where(mine).execute()
        audit.record(scope, "sample.delete", process_id, {"sample": name})

    db.write(delete)
