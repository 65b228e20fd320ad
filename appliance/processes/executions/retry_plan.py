"""Retry plans: which step runs a retry would reuse or run again, and which effects would be repeated."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.core.texts import mark_error
from appliance.processes.definitions.compiled import CompiledVersion
from appliance.processes.definitions.dependencies import Actions
from appliance.processes.definitions.nodes import BLOCK_KINDS, Step
from appliance.processes.engine.decide import FINISHED, StepRun
from appliance.processes.engine.waits import CHILD
from appliance.processes.files.naming import LOAD, READ_FILES, file_method
from appliance.processes.host.agent_runs import RUN, AgentEffect, Agents
from appliance.processes.host.journal import ACTION
from appliance.processes.host.model_calls import GENERATE
from appliance.processes.host.protocols import READS, WRITES
from appliance.processes.host.vault import SECRET

from . import retries
from .record import ExecutionRecord, RecordedRun

Fate = Literal["reused", "continued", "passed_over", "again", "first", "dropped"]
FindActions = Callable[[str], Actions | None]
HUMAN = "human.request"
_READ_METHODS = READS | {SECRET, "wait.for", "wait.until", "events.wait", "end"}
_FATES: Mapping[Fate, Sentence] = {
    "reused": mark_error("%(count)s reused"), "continued": mark_error("%(count)s continued"),
    "passed_over": mark_error("%(count)s skipped"), "again": mark_error("%(count)s run again"),
    "first": mark_error("%(count)s may run for the first time"), "dropped": mark_error("%(count)s not in this version"),
}  # fmt: skip

# What a step would do, by the method of its call; in English here, translated where it is shown.
_REPEATED = mark_error("%(sentence)s (%(count)s times)")
_UNCERTAIN = mark_error("%(sentence)s; it may have been done before")
_CALL = mark_error("%(step)s would call %(action)s of %(slug)s again, under a new idempotency key")
_WRITE = mark_error("%(step)s would write again to %(target)s")
_BATCH = mark_error("%(step)s would write the same batch of records again")
_DOCUMENTS = mark_error("%(step)s would create its documents again")
_OTHER = mark_error("%(step)s would call %(method)s again")
_REPEATED_EFFECTS: Mapping[str, Sentence] = {
    CHILD: mark_error("%(step)s would execute %(target)s again"),
    GENERATE: mark_error("%(step)s would ask the model of %(target)s again, which costs again"),
    LOAD: mark_error("%(step)s would write the rows of its file again to %(target)s"),
    HUMAN: mark_error("%(step)s would ask the person again"),
    "documents.create": mark_error("%(step)s would store another document"),
    "datapool.create": mark_error("%(step)s would write another record to %(target)s"),
    "datapool.delete": mark_error("%(step)s would delete again from %(target)s"),
}
_AGENT = mark_error("%(step)s would start another run of the agent %(agent)s, which costs again")
_MAY_CALL = {
    True: mark_error("%(step)s may call %(action)s of %(target)s again, as the previous run did"),
    False: mark_error("%(step)s may call %(action)s of %(target)s again, which the previous run may have done"),
}
_MAY_USE = {
    True: mark_error("%(step)s may use %(target)s again, as the previous run did"),
    False: mark_error("%(step)s may use %(target)s again, which the previous run may have done"),
}


@dataclass(frozen=True)
class StepFate:
    """What a retry does with one step run; `first` stands for a step that the execution did not reach."""

    step: str
    path: str
    iteration: str
    kind: str
    fate: Fate


@dataclass(frozen=True)
class RepeatedEffect:
    """An effect that a step would repeat: by which call, on what target, and whether it `certain`ly happened before."""

    step: str
    path: str
    iteration: str
    attempt: int
    method: str
    target: str
    certain: bool
    sentence: str


@dataclass
class RetryPlan:
    """What a retry from `start_from` with this version would do."""

    execution_id: str
    start_from: str
    version: int
    steps: list[StepFate] = field(default_factory=list)
    effects: list[RepeatedEffect] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(step.fate for step in self.steps))

    @property
    def sentences(self) -> list[str]:
        """The plan in words: a summary of the step runs, then every effect with its count."""
        counts = self.counts
        summary = Sentence.joined(text % {"count": counts[fate]} for fate, text in _FATES.items() if fate in counts)
        repeated = Counter(effect.sentence for effect in self.effects)
        effects = [text if count == 1 else _REPEATED % {"sentence": text, "count": count} for text, count in repeated.items()]
        return [Sentence("Step runs: %(summary)s.", summary=summary), *(effects or ["No external action will be repeated."])]


@dataclass(frozen=True)
class PlanContext:
    """What the plan needs from other rooms: the actions of integrations, and the runs of agents."""

    find_actions: FindActions
    agents: Agents


def plan_retry(
    record: ExecutionRecord, compiled: CompiledVersion, context: PlanContext, start_from: str, version: int
) -> RetryPlan:
    """The plan of a retry with `compiled`; raises the same errors as the retry."""
    reused = {(run.path, run.iteration): run for run in retries.reusable_runs(record.scope, record.row, start_from, compiled)}
    plan = RetryPlan(record.row.id, start_from, version)
    runs = sorted(record.runs.values(), key=lambda each: (each.run.started_at or 0, each.run.path, each.run.iteration))
    again: list[RecordedRun] = []
    compensation_paths = record.compiled.definition.compensation_paths | compiled.definition.compensation_paths
    for recorded in runs:
        run = recorded.run
        if run.path in compensation_paths:
            continue  # compensation, which runs only if the retry fails too
        fate = _fate(run, reused.get((run.path, run.iteration)), compiled.steps.get(run.path))
        plan.steps.append(StepFate(run.step, run.path, run.iteration, run.kind, fate))
        if fate == "again":
            again.append(recorded)
    known_paths = {each.run.path for each in runs}
    new = [step for path, step in compiled.steps.items() if path not in known_paths | compensation_paths]
    plan.steps += [StepFate(step.id, step.path, "", step.kind, "first") for step in new]
    plan.effects = list(_effects(record, again, context))
    return plan


def _fate(run: StepRun, reused: StepRun | None, step: Step | None) -> Fate:
    if reused is None:
        return "dropped" if step is None else "again"
    if reused.status == "running":
        return "continued"
    return "passed_over" if reused.status == "skipped" != run.status else "reused"


def _ended(sentence: Sentence) -> Sentence:
    return Sentence("%(sentence)s.", sentence=sentence)


# -- effects


def _effects(record: ExecutionRecord, again: list[RecordedRun], context: PlanContext) -> Iterator[RepeatedEffect]:
    describer = _EffectDescriber(record.compiled, context.find_actions)
    calls = _Calls(record.scope)
    for recorded in again:
        run = recorded.run
        if run.kind in BLOCK_KINDS or run.status == "skipped":
            continue
        if run.kind == "code":
            for attempt, method, args, answered in calls.of(recorded):
                yield from describer.describe(run, attempt, method, args, certain=answered)
        elif run.kind == "agent":
            calls_made = context.agents.effects_of(record.scope, recorded.claim.execution_id, run.path, run.iteration)
            yield from _agent_effects(record.compiled.steps[run.path], run, calls_made)
        else:
            yield from _step_effects(describer, record.compiled.steps[run.path], run)


def _agent_effects(step: Step, run: StepRun, calls: list[AgentEffect]) -> Iterator[RepeatedEffect]:
    """The effects of an agent step: a new run decides for itself, so it may repeat what the previous one did."""
    name = step.settings["use"]
    place = (run.step, run.path, run.iteration, run.attempt)
    yield RepeatedEffect(*place, RUN, name, True, _ended(_AGENT % {"step": run.step, "agent": name}))
    for call in calls:
        slug, _, operation = call.target.partition("/")
        sentence = (_MAY_CALL if operation else _MAY_USE)[call.certain] % {"step": run.step, "target": slug, "action": operation}
        yield RepeatedEffect(*place, RUN, f"{name}/{call.target}", False, _ended(sentence))


def _step_effects(describer: "_EffectDescriber", step: Step, run: StepRun) -> Iterator[RepeatedEffect]:
    """The effects of a step other than code: it makes a single call, which may have had its effect even if it failed."""
    settings, is_finished = step.settings, run.status in FINISHED
    if step.kind == "datapool":
        if is_finished:  # a failed write is rolled back
            yield from describer.describe(
                run, run.attempt, f"datapool.{settings['operation']}", [settings["collection"]], certain=True
            )
    elif step.kind == "integration":
        if is_finished or (run.error or {}).get("failure_class") in ("connector", "timeout", "system") or run.status == "cancelled":
            yield from describer.describe(run, run.attempt, ACTION, [settings["use"], settings["action"]], certain=is_finished)
    elif step.kind == "llm":
        yield from describer.describe(run, run.attempt, GENERATE, [{"profile": settings["profile"]}], certain=is_finished)
    elif step.kind in ("file", "ocr"):
        if is_finished and (method := file_method(step)) not in READ_FILES:
            target = [settings["to"]["collection"]] if method == LOAD else []
            yield from describer.describe(run, run.attempt, method, target, certain=True)
    elif step.kind == "process":
        yield from describer.describe(run, run.attempt, CHILD, [settings["use"]], certain=is_finished)
    elif step.kind == "human":
        yield from describer.describe(run, run.attempt, HUMAN, [], certain=is_finished)
    elif step.kind not in ("rule", "wait", "stop"):
        yield from describer.describe(run, run.attempt, step.kind, [], certain=is_finished)


class _Calls:
    """The calls made by code steps, loaded once per execution."""

    def __init__(self, scope: TenantScope) -> None:
        self._scope = scope
        self._by_execution: dict[str, dict[tuple[str, str], list[tuple[int, str, Any, bool]]]] = {}

    def of(self, recorded: RecordedRun) -> list[tuple[int, str, Any, bool]]:
        """(attempt, method, args, whether it succeeded) of each call; refused calls had no effect and are left out."""
        execution_id = recorded.claim.execution_id
        if execution_id not in self._by_execution:
            self._by_execution[execution_id] = self._load(execution_id)
        return self._by_execution[execution_id].get((recorded.run.path, recorded.run.iteration), [])

    def _load(self, execution_id: str) -> dict[tuple[str, str], list[tuple[int, str, Any, bool]]]:
        calls: dict[tuple[str, str], list[tuple[int, str, Any, bool]]] = {}
        rows = db.rows(
            "SELECT path, iteration, attempt, method, args, ok, position, CASE WHEN ok = 0 THEN answer END FROM journal "
            "WHERE tenant_id = ? AND execution_id = ? AND call > 0 ORDER BY path, iteration, attempt, call",
            (self._scope.tenant_id, execution_id),
        )
        for path, iteration, attempt, method, args, ok, position, fault in rows:
            if method in _READ_METHODS or (position >= 0 and not ok and (method in WRITES or _is_refusal(fault))):
                continue
            # A call to another system may have had its effect even if it failed or was never answered.
            calls.setdefault((path, iteration), []).append((attempt, method, json.loads(args), bool(ok) and position >= 0))
        return calls


def _is_refusal(fault: str | None) -> bool:
    """Whether a call was refused before it had any effect."""
    return fault is not None and json.loads(fault).get("failure_class") in ("policy", "validation")


class _EffectDescriber:
    """Describes which effect a call would repeat."""

    def __init__(self, compiled: CompiledVersion, find_actions: FindActions) -> None:
        self._steps = compiled.steps
        self._find_actions = find_actions
        self._actions: dict[str, Actions] = {}

    def describe(self, run: StepRun, attempt: int, method: str, args: list[Any], *, certain: bool) -> Iterator[RepeatedEffect]:
        """The effect of the call; none if it only reads."""
        if method == GENERATE:
            args = [args[0].get("profile")]
        target = "/".join(str(arg) for arg in args[: 2 if method == ACTION else 1] if isinstance(arg, str))
        pattern = self._pattern(method, args, target)
        if pattern is not None:
            slug, _, action = target.partition("/")
            text = pattern % {"step": run.step, "method": method, "target": target, "slug": slug, "action": action}
            sentence = text if certain else _UNCERTAIN % {"sentence": text}
            yield RepeatedEffect(
                step=run.step, path=run.path, iteration=run.iteration, attempt=attempt, method=method, target=target,
                certain=certain, sentence=_ended(sentence),
            )

    def _pattern(self, method: str, args: list[Any], target: str) -> Sentence | None:
        if method == ACTION:
            return self._action(args)
        if method in _REPEATED_EFFECTS and (target or method in (HUMAN, "documents.create")):
            return _REPEATED_EFFECTS[method]
        if method.startswith("file."):
            return _DOCUMENTS
        if method in WRITES:
            return _WRITE if target else _BATCH
        return None if method in _READ_METHODS else _OTHER

    def _action(self, args: list[Any]) -> Sentence | None:
        slug, name = (str(part) for part in [*args[:2], "", ""][:2])
        if slug not in self._actions:
            self._actions[slug] = self._find_actions(slug) or {}
        action = self._actions[slug].get(name)
        return None if action is not None and action.effect == "read" else _CALL
