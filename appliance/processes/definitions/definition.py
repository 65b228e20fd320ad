"""A process definition, parsed with every problem at once; pure, no database."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from appliance.processes.triggers.kinds import read_triggers

from .concurrency import read_concurrency
from .kinds import READERS
from .nodes import (
    AFTER_FAILURE,
    KINDS,
    MAX_DEPTH,
    MAX_STEPS,
    MOST_BRANCHES,
    Block,
    Definition,
    DefinitionProblems,
    Grants,
    OnFailure,
    Problem,
    Step,
    StepLimits,
)
from .options import ON_ERROR, OPTIONS, read_cache, read_continue, read_retry
from .reading import Reader, pointer_token
from .template import Template

__all__ = ["Definition", "DefinitionProblems", "Problem", "Step", "parse_definition"]

Read = TypeVar("Read")

# Kinds that take no time of their own: a limit there would be mistaken for one on what is waited for.
_NO_LIMITS = {
    "agent": "the agent's budget bounds what a run works, `timeout` inside `agent` how long the step waits; take this out",
    "human": "a person has the time that `expires` says; take this out",
    "process": "the child has limits of its own; take this out, and give the child's definition a `timeout`",
    "wait": "an event has the time that `timeout` inside `wait` says; take this out",
}
_STEP_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SEEN_NAMES = frozenset({"input", "steps", "execution", "tenant", "index", "error", "secrets"})
_JAVASCRIPT_WORDS = frozenset({
    "arguments", "await", "break", "case", "catch", "class", "const", "continue", "debugger", "default", "delete", "do",
    "else", "enum", "eval", "export", "extends", "false", "finally", "for", "function", "if", "implements", "import", "in",
    "instanceof", "interface", "let", "new", "null", "package", "private", "protected", "public", "return", "static", "super",
    "switch", "this", "throw", "true", "try", "typeof", "undefined", "var", "void", "while", "with", "yield", "NaN",
    "Infinity",
})  # fmt: skip


def parse_definition(data: Any, files: Mapping[str, str]) -> Definition:
    """The definition as typed data; DefinitionProblems lists everything that is wrong with it."""
    parser = _Parser(files)
    definition = parser.process(data)
    if parser.problems or definition is None:
        raise DefinitionProblems(parser.problems, definition)
    return definition


class _Parser(Reader):
    """Knows the document, its steps, and the steps that hold steps; the other kinds are in `kinds`."""

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__(files)
        self.ids: dict[str, str] = {}
        self.count = 0
        self.is_after = False

    def process(self, data: Any) -> Definition | None:
        known = (
            "id", "name", "description", "input", "output", "grants", "timeout", "concurrency", "expires", "triggers", "on_failure",
            "steps",
        )  # fmt: skip
        document = self.mapping(data, "", known, ("id", "steps"))
        if not document:
            return None
        schema = document.get("input")
        if schema is not None and not isinstance(schema, dict):
            self.problem("/input", "this must be a JSON Schema (an object)")
            schema = None
        steps = self.steps(document["steps"], "/steps", "", 1) if "steps" in document else ()
        on_failure = self.on_failure(document.get("on_failure"))
        if self.count > MAX_STEPS:
            self.problem("/steps", f"a process has at most {MAX_STEPS} steps, this one has {self.count}")
        process_id = self.process_id(document.get("id")) if "id" in document else ""
        for name in ("name", "description"):
            if document.get(name) is not None:
                self.text(document[name], f"/{name}")
        output = document.get("output")
        # What they say is read again where an execution begins, see `concurrency.read_rules`.
        read_concurrency(self, document.get("concurrency"), "/concurrency")
        self.duration(document.get("expires"), "/expires", least=1)
        return Definition(
            process_id, str(document.get("name") or process_id), steps, schema,
            None if output is None else self.template(output, "/output"),
            self.grants(document.get("grants"), "/grants"), self.duration(document.get("timeout"), "/timeout", least=1),
            read_triggers(self, document.get("triggers")), on_failure,
        )  # fmt: skip

    def process_id(self, value: Any) -> str:
        return self.slug(value, "/id")

    def grants(self, value: Any, pointer: str) -> Grants:
        if value is None:
            return Grants()
        known = ("integrations", "datapool", "documents", "processes", "secrets", "human", "llm")
        given = self.mapping(value, pointer, known)
        integrations: dict[str, frozenset[str]] = {}
        for slug, actions in self.open_mapping(given.get("integrations", {}), f"{pointer}/integrations").items():
            at = f"{pointer}/integrations/{pointer_token(slug)}"
            integrations[slug] = frozenset({"*"}) if actions == "*" else frozenset(self.texts(actions, at))
        data: dict[str, frozenset[str]] = {}
        for name, access in self.open_mapping(given.get("datapool", {}), f"{pointer}/datapool").items():
            at = f"{pointer}/datapool/{pointer_token(name)}"
            data[name] = frozenset(self.choice(word, at, ("read", "write")) for word in self.texts(access, at))
        human = given.get("human", False)
        if not isinstance(human, bool):
            self.problem(f"{pointer}/human", "this must be true or false")
        words = self.texts(given.get("documents", []), f"{pointer}/documents")
        documents = frozenset(self.choice(word, f"{pointer}/documents", ("read", "write")) for word in words)
        named = {n: frozenset(self.texts(given.get(n, []), f"{pointer}/{n}")) for n in ("processes", "secrets", "llm")}
        return Grants(integrations, data, named["processes"], named["secrets"], human is True, named["llm"], documents)

    # -- steps

    def steps(self, value: Any, pointer: str, path: str, depth: int) -> tuple[Step, ...]:
        if not isinstance(value, list) or not value:
            self.problem(pointer, "this must be a list with at least one step")
            return ()
        if depth > MAX_DEPTH:
            self.problem(pointer, f"steps are nested at most {MAX_DEPTH} deep")
            return ()
        self.count += len(value)
        if self.count > MAX_STEPS:
            return ()
        found = [self.step(item, f"{pointer}/{index}", path, depth) for index, item in enumerate(value)]
        return tuple(step for step in found if step is not None)

    def step(self, value: Any, pointer: str, path: str, depth: int) -> Step | None:
        if not isinstance(value, dict):
            self.problem(pointer, "a step is an object")
            return None
        kind = self.kind_of(value, pointer)
        if kind is None:
            return None
        self.mapping(value, pointer, (*OPTIONS, kind), ("id",))
        step_id = self.step_id(value["id"], f"{pointer}/id", pointer) if "id" in value else f"step{self.count}"
        inner_path = f"{path}/{step_id}" if path else step_id
        blocks: tuple[Block, ...] = ()
        settings: dict[str, Any] = {}
        templates: dict[str, Template] = {}
        at = f"{pointer}/{kind}"
        if kind == "branch":
            blocks = self.branch(value[kind], at, inner_path, depth)
        elif kind == "for_each":
            settings, templates, blocks = self.for_each(value[kind], at, inner_path, depth)
        elif kind == "parallel":
            blocks = self.parallel(value[kind], at, inner_path, depth)
        elif isinstance(value[kind], dict):
            settings, templates = READERS[kind](self, value[kind], at)
        else:
            self.problem(at, "this must be an object")
        if kind == "stop" and self.is_after:
            self.problem(at, "the execution has ended already where this stands; take the stop out")
        if value.get("undo") is not None and any(inner.id == "undo" for block in blocks for inner in block.steps):
            self.problem(f"{pointer}/undo", "a step in this one has the id 'undo'; give that another id")
        if "input" in value:
            templates["step_input"] = self.template(value["input"], f"{pointer}/input")
        return Step(
            step_id, kind, inner_path, pointer, settings, templates,
            self.expression(value.get("when"), f"{pointer}/when"),
            read_retry(self, value.get("retry"), f"{pointer}/retry", kind), self.limits(value, pointer, kind), blocks,
            self.grants(value["grants"], f"{pointer}/grants") if "grants" in value else None,
            self.mock(value, f"{pointer}/mock"),
            read_continue(self, value.get("continue_on_error"), f"{pointer}/continue_on_error"),
            read_cache(self, value, f"{pointer}/cache", kind), self.undo(value, pointer, inner_path, depth),
        )  # fmt: skip

    def undo(self, step: Mapping[str, Any], pointer: str, path: str, depth: int) -> tuple[Step, ...]:
        """What undoes a step: steps in order, or one that needs no id of its own."""
        value = step.get("undo")
        if value is None:
            return ()
        if self.is_after:
            self.problem(f"{pointer}/undo", "what runs after the end is not undone itself; take `undo` out")
            return ()
        if isinstance(value, dict):
            self.count += 1
            named = {"id": f"undo_{step.get('id')}"[:63], **value}
            found = self.after(lambda: self.step(named, f"{pointer}/undo", f"{path}/undo", depth + 1))
            return () if found is None else (found,)
        return self.after(lambda: self.steps(value, f"{pointer}/undo", f"{path}/undo", depth + 1))

    def on_failure(self, value: Any) -> OnFailure:
        if value is None:
            return OnFailure()
        given = self.mapping(value, "/on_failure", ("process", "steps"))
        if not {"process", "steps"} & given.keys():
            self.problem("/on_failure", "on_failure has `process`, `steps`, or both")
        process = self.slug(given["process"], "/on_failure/process") if "process" in given else None
        if "steps" not in given:
            return OnFailure(process)
        if AFTER_FAILURE in self.ids:
            self.problem(self.ids[AFTER_FAILURE], f"beside the steps of on_failure no step has the id {AFTER_FAILURE!r}")
        return OnFailure(process, self.after(lambda: self.steps(given["steps"], "/on_failure/steps", AFTER_FAILURE, 2)))

    def after(self, read: Callable[[], Read]) -> Read:
        """Read steps that run only after the end."""
        self.is_after = True
        try:
            return read()
        finally:
            self.is_after = False

    def mock(self, value: Mapping[str, Any], pointer: str) -> Template | None:
        """What stands for the step's output in a test."""
        if "mock" not in value:
            return None
        given = self.mapping(value["mock"], pointer, ("output",), ("output",))
        return self.template(given["output"], f"{pointer}/output") if "output" in given else None

    def kind_of(self, value: dict[str, Any], pointer: str) -> str | None:
        """The one kind the step has; None, with the problem noted, otherwise."""
        kinds = [name for name in KINDS if name in value]
        if len(kinds) == 1:
            return kinds[0]
        self.problem(pointer, f"a step has exactly one of {', '.join(KINDS)}")
        return None

    def step_id(self, value: Any, pointer: str, step_pointer: str) -> str:
        if not isinstance(value, str) or not _STEP_ID.fullmatch(value):
            self.problem(pointer, "a step's id has letters, digits and underscores and begins with a letter")
            return f"step{self.count}"
        if value in self.ids:
            self.problem(pointer, f"the id {value!r} is taken by the step at {self.ids[value]}; ids are unique in a process")
        self.ids[value] = step_pointer
        return value

    def limits(self, value: Mapping[str, Any], pointer: str, kind: str) -> StepLimits:
        # Versions that were published when only times were waited for may carry a limit, and go on running.
        is_former = kind == "wait" and not (isinstance(value[kind], dict) and "event" in value[kind])
        for name in ("timeout", "limits"):
            if name in value and kind in _NO_LIMITS and not is_former:
                self.problem(f"{pointer}/{name}", _NO_LIMITS[kind])
                return StepLimits()
        given = self.mapping(value.get("limits", {}), f"{pointer}/limits", ("time", "cpu", "memory_mb"))
        if "timeout" in value and "time" in given:
            self.problem(f"{pointer}/timeout", "`timeout` and `limits.time` are the same; give one of them")
        at = f"{pointer}/timeout" if "timeout" in value else f"{pointer}/limits/time"
        time = self.duration(value.get("timeout", given.get("time")), at, least=1)
        if time is not None and time > 15 * 60_000:
            self.problem(at, "a step runs at most 15m")
        cpu = self.duration(given.get("cpu"), f"{pointer}/limits/cpu", least=1)
        return StepLimits(time, cpu, self.whole(given.get("memory_mb"), f"{pointer}/limits/memory_mb", 8, 512))

    # -- steps that hold steps

    def branch(self, value: Any, pointer: str, path: str, depth: int) -> tuple[Block, ...]:
        if not isinstance(value, list) or not value:
            self.problem(pointer, "a branch is a list of options, each with `when` and `steps`")
            return ()
        blocks = []
        for index, option in enumerate(value):
            at = f"{pointer}/{index}"
            given = self.mapping(option, at, ("when", "steps"), ("steps",))
            if "when" not in given and index != len(value) - 1:
                self.problem(at, "only the last option may be without `when`: it is taken when no other is")
            steps = self.steps(given["steps"], f"{at}/steps", path, depth + 1) if "steps" in given else ()
            blocks.append(Block(steps, self.expression(given.get("when"), f"{at}/when")))
        return tuple(blocks)

    def parallel(self, value: Any, pointer: str, path: str, depth: int) -> tuple[Block, ...]:
        if not isinstance(value, dict) or not 1 <= len(value) <= MOST_BRANCHES:
            self.problem(pointer, f"a parallel is an object of 1 to {MOST_BRANCHES} named lists of steps")
            return ()
        blocks = []
        for name, steps in value.items():
            at = f"{pointer}/{pointer_token(name)}"
            if not isinstance(name, str) or not _STEP_ID.fullmatch(name):
                self.problem(at, "a branch's name has letters, digits and underscores and begins with a letter")
            blocks.append(Block(self.steps(steps, at, path, depth + 1), name=str(name)))
        return tuple(blocks)

    def for_each(
        self, value: Any, pointer: str, path: str, depth: int
    ) -> tuple[dict[str, Any], dict[str, Template], tuple[Block, ...]]:
        given = self.mapping(value, pointer, ("items", "as", "concurrency", "on_error", "steps", "collect"), ("items", "steps"))
        name = given.get("as", "item")
        if not isinstance(name, str) or not _STEP_ID.fullmatch(name) or name in _SEEN_NAMES | _JAVASCRIPT_WORDS:
            self.problem(f"{pointer}/as", f"the item's name must be a plain word, none of {', '.join(sorted(_SEEN_NAMES))}")
        concurrency = self.whole(given.get("concurrency"), f"{pointer}/concurrency", 1, 50) or 1
        collect = self.template(given["collect"], f"{pointer}/collect") if "collect" in given else None
        steps = self.steps(given["steps"], f"{pointer}/steps", path, depth + 1) if "steps" in given else ()
        items = {"items": self.template(given["items"], f"{pointer}/items")} if "items" in given else {}
        if "items" in given and not isinstance(given["items"], list | str):
            self.problem(f"{pointer}/items", "this must be a list or an expression")
        on_error = self.choice(given.get("on_error", "stop"), f"{pointer}/on_error", ON_ERROR)
        return {"as": name, "concurrency": concurrency, "on_error": on_error}, items, (Block(steps, collect=collect),)
