"""The calls of a dry run: reads are made, whatever would have an effect is noted and answered by a mock or a stand-in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.definitions.compiled import Compiled
from appliance.processes.definitions.nodes import Step
from appliance.processes.engine.store import Claim
from appliance.processes.engine.waits import CHILD, Child
from appliance.processes.executions import service as executions
from appliance.processes.files.naming import LOAD, READ_FILES
from appliance.processes.host.faults import fault_of
from appliance.processes.host.journal import ACTION, READS, WRITES
from appliance.processes.host.model_calls import GENERATE
from appliance.processes.host.reached import ActionCall, Actions, Data
from appliance.processes.host.vault import SECRET

from .mocks import Mocks

HUMAN = "human.request"
EffectOf = Literal["read", "idempotent", "write", "wait"]
AnsweredBy = Literal["live", "mock", "default"]


@dataclass(frozen=True)
class DryCall:
    """One call: what it would do (`effect`), who answered it, and the answer or, not `ok`, the fault."""

    step: str
    path: str
    iteration: str
    method: str
    args: list[Any]
    effect: EffectOf
    answered_by: AnsweredBy
    ok: bool
    answer: Any


_SCOPES = {"datapool": ("entities.read", "entities.write"), "documents": ("documents.read", "documents.write")}


class _RolledBack(Exception):
    """A write that was tried out: its answer is known, and it must not stay."""

    def __init__(self, answer: Any) -> None:
        super().__init__("rolled back")
        self.answer = answer


@dataclass(frozen=True)
class Outside:
    """What lies around a dry run: reads reach it, and a write is looked at by it."""

    data: Data
    actions: Actions
    load: Callable[[TenantScope, str, int], Compiled]


class DryCalls:
    """Answers the calls of one dry run, and keeps them in order.

    A write to DataPool is made and rolled back at once: so it is checked and answered as it would be, and nothing stays.
    The records that the run itself made or changed are remembered, so that a later call for one of them finds it.
    `held` are the scopes within which anything real is reached; a mock takes none.
    """

    def __init__(self, claim: Claim, outside: Outside, mocks: Mocks, held: frozenset[str]) -> None:
        self._claim, self._outside, self.mocks, self._held = claim, outside, mocks, held
        self._records: dict[tuple[str, str], Any] = {}
        self._contents: dict[str, Any] = {}
        self.made: list[DryCall] = []

    def answer(self, step: Step, iteration: str, method: str, args: list[Any], seconds: float = 0.0) -> tuple[bool, Any]:
        """(ok, the answer or the fault) of a call for which the step has the grant; a read takes at most `seconds`."""
        mocked = self.mocks.answer_call(step, method, args)
        effect = _effect_of(method)
        by: AnsweredBy = "mock" if mocked else "default"
        try:
            if mocked is not None:
                ok, value = _whole(method, mocked)
            elif method == ACTION:
                effect, by, value = self._act(step, iteration, args, seconds)
                ok = True
            elif method in READS | WRITES:
                self.require(_SCOPES[method.partition(".")[0]][method in WRITES], method)
                ok, value = True, (self._document if method.startswith("documents.") else self._data)(method, args)
                by = "live" if method in READS else "default"
            else:
                ok, value = True, _stand_in(method, args)
        except ApplianceError as error:
            ok, value = False, fault_of(error)
        self.made.append(DryCall(step.id, step.path, iteration, method, args, effect, by, ok, value))
        return ok, value

    def require(self, scope: str, what: str) -> None:
        """PolicyDenied unless whoever tests may reach this for real."""
        if scope not in self._held:
            raise PolicyDenied(
                Sentence(
                    "%(what)s would be performed for real in this test, which takes the scope %(scope)s, and you do not "
                    "hold it; give a mock, use a key that holds it, or publish the process and have an owner allow what "
                    "it reaches",
                    what=what, scope=scope,
                ),
                extra={"scope": scope},
            )  # fmt: skip

    def note_read(self, step: Step, iteration: str, method: str, args: list[Any], answer: Any) -> None:
        """Something that was read by the step itself."""
        self.made.append(DryCall(step.id, step.path, iteration, method, args, "read", "live", True, answer))

    def _act(self, step: Step, iteration: str, args: list[Any], seconds: float) -> tuple[EffectOf, AnsweredBy, Any]:
        where = ".".join(part for part in (step.path, iteration, str(len(self.made))) if part)
        call = ActionCall(args[0], args[1], args[2] if len(args) > 2 else {}, where)
        if self._outside.actions.preview(self._claim, call) == "read":
            self.require("integrations.execute", f"{args[1]} of {args[0]}")
            return "read", "live", self._outside.actions.execute(self._claim, call, seconds)
        return "write", "default", None

    # -- DataPool

    def _data(self, method: str, args: list[Any]) -> Any:
        key = (str(args[0]), str(args[1])) if len(args) > 1 and all(isinstance(part, str) for part in args[:2]) else ("", "")
        if key in self._records and method in ("datapool.find", "datapool.update", "datapool.delete"):
            return self._remembered(method, key, args)
        if method in READS:
            return self._outside.data.perform(self._claim, method, args)
        answer = self._try_out(method, args)
        made = answer if isinstance(answer, list) else [{"event": "", "collection": str(args[0]), "entity": answer}]
        for each in made:
            entity = each["entity"]
            if isinstance(entity, dict) and "id" in entity:
                self._records[each["collection"], entity["id"]] = None if each["event"] == "deleted" else entity
        if method == "datapool.delete":
            self._records[key] = None
        return answer

    def _remembered(self, method: str, key: tuple[str, str], args: list[Any]) -> Any:
        known = self._records[key]
        if method == "datapool.find":
            return known
        if known is None:
            raise ValidationFailed(Sentence("the record %(key)s has been deleted by this test before", key=key[1]))
        if method == "datapool.delete":
            self._records[key] = None
            return None
        values = args[2] if len(args) > 2 and isinstance(args[2], dict) else {}
        changed = {**known, **values, "_version": known.get("_version", 1) + 1, "updated_at": clock.rfc3339(clock.now_ms())}
        self._records[key] = changed
        return changed

    def _document(self, method: str, args: list[Any]) -> Any:
        """A document that this run has made is found again, with its content."""
        known = self._contents.get(str(args[0])) if args else None
        if method == "documents.create":
            made = self._try_out(method, args)
            self._contents[made["id"]] = made, args[0]
            return made
        if known is None:
            return self._outside.data.perform(self._claim, method, args)
        document, given = known
        if method == "documents.get":
            return document
        kept = {name: value for name, value in document.items() if name not in ("folder", "tags", "created_at", "updated_at")}
        return {**kept, "encoding": given.get("encoding") or "text", "content": given["content"]}

    def _try_out(self, method: str, args: list[Any]) -> Any:
        def write() -> None:
            raise _RolledBack(self._outside.data.perform(self._claim, method, args))

        try:
            db.write(write)
        except _RolledBack as done:
            return done.answer
        raise AssertionError("a write that is tried out never ends well")

    # -- children

    def child_check(self, step: Step) -> "CheckedChildren":
        """The children of a step: looked at, never started."""
        return CheckedChildren(self, step)

    def check_child(self, step: Step, process_id: str, given: Any) -> None:
        """Refuse what starting a child would, unless a mock stands for it."""
        if self.mocks.has_call(step, CHILD, [process_id]):
            return
        if not isinstance(given, dict):
            raise ValidationFailed("the input of a process is an object", pointer="/input")
        scope = self._claim.scope
        version = executions.version_to_run(scope, process_id, None)
        executions.check_input(scope, self._outside.load(scope, process_id, version), given)


@dataclass(frozen=True)
class CheckedChildren:
    """Stands where children are started."""

    calls: DryCalls
    step: Step

    def prepare(self, claim: Claim, process_id: str, given: Any, *, awaited: bool = False) -> Child:
        """As for a real child; it is never inserted."""
        self.calls.check_child(self.step, process_id, given)
        return Child(dict)


def _effect_of(method: str) -> EffectOf:
    if method.startswith(("wait.", "events.")):
        return "wait"
    # Asking a model changes nothing, and costs something every time.
    return "idempotent" if method == GENERATE else "read" if method in READS | READ_FILES | {SECRET} else "write"


def _stand_in(method: str, args: list[Any]) -> Any:
    """What is answered where nobody is asked and no mock says it."""
    if method == HUMAN:
        return _human(args[0] if isinstance(args[0], dict) else {})
    if method == SECRET:
        return f"[the secret {args[0] if args else ''}]"
    if method.startswith("file."):
        return _made_by(method, args)
    if method == CHILD and not (args[2] if len(args) > 2 and isinstance(args[2], dict) else {}).get("wait"):
        return {"execution_id": "exe_test", "process_id": args[0], "version": 0, "status": "queued"}
    return None


MADE_DOCUMENT = "doc_test"


def _made_by(method: str, args: list[Any]) -> Any:
    """What a `file` step answers that makes documents; of rows that would be stored nothing is known."""
    if method == "file.unzip":
        return {"documents": [], "count": 0}
    return None if method == LOAD else {"document": {"id": MADE_DOCUMENT, "name": args[0].get("name")}}


def _human(asked: dict[str, Any]) -> dict[str, Any]:
    """Approved, or the first choice; an input is not known."""
    answer = asked["choices"][0] if asked.get("kind") == "choice" and asked.get("choices") else None
    return {
        "status": "approved" if asked.get("kind") == "approval" else "answered", "answer": answer, "comment": "",
        "decided_by": None, "decided_at": None, "request_id": "apr_test",
    }  # fmt: skip


def _whole(method: str, mocked: tuple[bool, Any]) -> tuple[bool, Any]:
    """A mocked answer of a person needs to name only what the test is about."""
    ok, value = mocked
    if ok and method == HUMAN and isinstance(value, dict):
        return True, {**_human({}), **value}
    return mocked
