"""The calls of a dry run: reads are performed; calls with side effects are recorded and answered by a mock or a default."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ApplianceError, PolicyDenied, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.processes.definitions.compiled import CompiledVersion
from appliance.processes.definitions.nodes import Step
from appliance.processes.engine.store import Claim
from appliance.processes.engine.waits import CHILD, Child
from appliance.processes.executions import service as executions
from appliance.processes.files.naming import LOAD, READ_FILES
from appliance.processes.host.call_errors import error_object
from appliance.processes.host.journal import ACTION
from appliance.processes.host.model_calls import GENERATE
from appliance.processes.host.protocols import READS, WRITES, ActionCall, Actions, Data
from appliance.processes.host.vault import SECRET

from .mocks import Mocks

HUMAN = "human.request"
EffectOf = Literal["read", "idempotent", "write", "wait"]
AnsweredBy = Literal["live", "mock", "default"]


@dataclass(frozen=True)
class DryCall:
    """One call: its `effect`, who answered it, and the answer or, if not `ok`, the error object."""

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


class _RollBack(Exception):
    """Rolls back a trial write and carries its answer."""

    def __init__(self, answer: Any) -> None:
        super().__init__("rolled back")
        self.answer = answer


@dataclass(frozen=True)
class RealSystems:
    """The real systems of a dry run: they answer reads and validate writes."""

    data: Data
    actions: Actions
    load: Callable[[TenantScope, str, int], CompiledVersion]


class DryCalls:
    """Answers the calls of one dry run and lists them in order.

    A write to the DataPool is performed and rolled back at once, so that it is validated and answered as usual and leaves
    no trace.  Entities created or changed by the run are remembered, so that later calls see them.  `held` are the scopes
    available for real calls; a mocked call needs none.
    """

    def __init__(self, claim: Claim, outside: RealSystems, mocks: Mocks, scopes: frozenset[str]) -> None:
        self._claim, self._outside, self.mocks, self._scopes = claim, outside, mocks, scopes
        self._records: dict[tuple[str, str], Any] = {}
        self._contents: dict[str, Any] = {}
        self.calls: list[DryCall] = []

    def answer(self, step: Step, iteration: str, method: str, args: list[Any], seconds: float = 0.0) -> tuple[bool, Any]:
        """(ok, the answer or error object) of a call whose grant has been checked; a read takes at most `seconds`."""
        mocked = self.mocks.answer_call(step, method, args)
        effect = _effect_of(method)
        by: AnsweredBy = "mock" if mocked else "default"
        try:
            if mocked is not None:
                ok, value = _complete(method, mocked)
            elif method == ACTION:
                effect, by, value = self._act(step, iteration, args, seconds)
                ok = True
            elif method in READS | WRITES:
                self.require_scope(_SCOPES[method.partition(".")[0]][method in WRITES], method)
                ok, value = True, (self._document if method.startswith("documents.") else self._data)(method, args)
                by = "live" if method in READS else "default"
            else:
                ok, value = True, _default_answer(method, args)
        except ApplianceError as error:
            ok, value = False, error_object(error)
        self.calls.append(DryCall(
            step=step.id, path=step.path, iteration=iteration, method=method, args=args, effect=effect, answered_by=by, ok=ok,
            answer=value,
        ))
        return ok, value

    def require_scope(self, scope: str, what: str) -> None:
        """Raises PolicyDenied unless the tester has `scope`, because `what` would be performed for real."""
        if scope not in self._scopes:
            raise PolicyDenied(
                Sentence(
                    "%(what)s would be performed for real in this test, which requires the scope %(scope)s, and you do "
                    "not have it; add a mock, use a key with that scope, or publish the process and have an owner allow "
                    "its access",
                    what=what, scope=scope,
                ),
                extra={"scope": scope},
            )  # fmt: skip

    def note_read(self, step: Step, iteration: str, method: str, args: list[Any], answer: Any) -> None:
        """Records a read that the step performed by itself."""
        self.calls.append(DryCall(
            step=step.id, path=step.path, iteration=iteration, method=method, args=args, effect="read", answered_by="live",
            ok=True, answer=answer,
        ))

    def _act(self, step: Step, iteration: str, args: list[Any], seconds: float) -> tuple[EffectOf, AnsweredBy, Any]:
        where = ".".join(part for part in (step.path, iteration, str(len(self.calls))) if part)
        call = ActionCall(args[0], args[1], args[2] if len(args) > 2 else {}, where)
        if self._outside.actions.preview(self._claim, call) == "read":
            self.require_scope("integrations.execute", f"{args[1]} of {args[0]}")
            return "read", "live", self._outside.actions.execute(self._claim, call, seconds)
        return "write", "default", None

    # -- DataPool

    def _data(self, method: str, args: list[Any]) -> Any:
        key = (str(args[0]), str(args[1])) if len(args) > 1 and all(isinstance(part, str) for part in args[:2]) else ("", "")
        if key in self._records and method in ("datapool.find", "datapool.update", "datapool.delete"):
            return self._answer_remembered(method, key, args)
        if method in READS:
            return self._outside.data.perform(self._claim, method, args)
        answer = self._try_out(method, args)
        changes = answer if isinstance(answer, list) else [{"event": "", "collection": str(args[0]), "entity": answer}]
        for each in changes:
            entity = each["entity"]
            if isinstance(entity, dict) and "id" in entity:
                self._records[each["collection"], entity["id"]] = None if each["event"] == "deleted" else entity
        if method == "datapool.delete":
            self._records[key] = None
        return answer

    def _answer_remembered(self, method: str, key: tuple[str, str], args: list[Any]) -> Any:
        entity = self._records[key]
        if method == "datapool.find":
            return entity
        if entity is None:
            raise ValidationFailed(Sentence("this test has already deleted the record %(key)s", key=key[1]))
        if method == "datapool.delete":
            self._records[key] = None
            return None
        values = args[2] if len(args) > 2 and isinstance(args[2], dict) else {}
        changed = {**entity, **values, "_version": entity.get("_version", 1) + 1, "updated_at": clock.rfc3339(clock.now_ms())}
        self._records[key] = changed
        return changed

    def _document(self, method: str, args: list[Any]) -> Any:
        """Answers a document call; documents created by this run are found with their content."""
        created = self._contents.get(str(args[0])) if args else None
        if method == "documents.create":
            new_document = self._try_out(method, args)
            self._contents[new_document["id"]] = new_document, args[0]
            return new_document
        if created is None:
            return self._outside.data.perform(self._claim, method, args)
        document, arguments = created
        if method == "documents.get":
            return document
        metadata = {name: value for name, value in document.items() if name not in ("folder", "tags", "created_at", "updated_at")}
        return {**metadata, "encoding": arguments.get("encoding") or "text", "content": arguments["content"]}

    def _try_out(self, method: str, args: list[Any]) -> Any:
        def write() -> None:
            raise _RollBack(self._outside.data.perform(self._claim, method, args))

        try:
            db.write(write)
        except _RollBack as done:
            return done.answer
        raise AssertionError("a write that is tried out never ends well")

    # -- children

    def child_check(self, step: Step) -> "CheckedChildren":
        """Checks the child executions of a step without starting them."""
        return CheckedChildren(self, step)

    def check_child(self, step: Step, process_id: str, payload: Any) -> None:
        """Raises what starting the child would raise, unless it is mocked."""
        if self.mocks.has_call(step, CHILD, [process_id]):
            return
        if not isinstance(payload, dict):
            raise ValidationFailed("the input of a process is an object", pointer="/input")
        scope = self._claim.scope
        version = executions.resolve_version(scope, process_id, None)
        executions.check_input(scope, self._outside.load(scope, process_id, version), payload)


@dataclass(frozen=True)
class CheckedChildren:
    """Replaces the starter of child executions: checks them only."""

    calls: DryCalls
    step: Step

    def prepare(self, claim: Claim, process_id: str, payload: Any, *, awaited: bool = False) -> Child:
        """Checks the child; the result is never inserted."""
        self.calls.check_child(self.step, process_id, payload)
        return Child(dict)


def _effect_of(method: str) -> EffectOf:
    if method.startswith(("wait.", "events.")):
        return "wait"
    # A prompt to a model changes nothing but costs money every time.
    return "idempotent" if method == GENERATE else "read" if method in READS | READ_FILES | {SECRET} else "write"


def _default_answer(method: str, args: list[Any]) -> Any:
    """The default answer of a call that is neither performed nor mocked."""
    if method == HUMAN:
        return _default_human_answer(args[0] if isinstance(args[0], dict) else {})
    if method == SECRET:
        return f"[the secret {args[0] if args else ''}]"
    if method.startswith("file."):
        return _default_file_answer(method, args)
    if method == CHILD and not (args[2] if len(args) > 2 and isinstance(args[2], dict) else {}).get("wait"):
        return {"execution_id": "exe_test", "process_id": args[0], "version": 0, "status": "queued"}
    return None


DEFAULT_DOCUMENT_ID = "doc_test"


def _default_file_answer(method: str, args: list[Any]) -> Any:
    """The default answer of a `file` step that creates documents; None for one that stores rows."""
    if method == "file.unzip":
        return {"documents": [], "count": 0}
    return None if method == LOAD else {"document": {"id": DEFAULT_DOCUMENT_ID, "name": args[0].get("name")}}


def _default_human_answer(request: dict[str, Any]) -> dict[str, Any]:
    """The default answer of a person: approval, or the first choice; None for an input."""
    answer = request["choices"][0] if request.get("kind") == "choice" and request.get("choices") else None
    return {
        "status": "approved" if request.get("kind") == "approval" else "answered", "answer": answer, "comment": "",
        "decided_by": None, "decided_at": None, "request_id": "apr_test",
    }  # fmt: skip


def _complete(method: str, mocked: tuple[bool, Any]) -> tuple[bool, Any]:
    """A mocked answer; that of a person is completed with defaults, so that a mock can be partial."""
    ok, value = mocked
    if ok and method == HUMAN and isinstance(value, dict):
        return True, {**_default_human_answer({}), **value}
    return mocked
