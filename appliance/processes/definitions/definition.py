"""Parses a process definition and reports every problem at once; pure, no database."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from appliance.processes.triggers.kinds import parse_triggers

from .concurrency import parse_concurrency
from .kinds import PARSERS
from .nodes import (
    AFTER_FAILURE,
    KINDS,
    MAX_BRANCHES,
    MAX_DEPTH,
    MAX_STEPS,
    Block,
    Definition,
    DefinitionProblems,
    Grants,
    OnFailure,
    Problem,
    Step,
    StepLimits,
)
from .options import ON_ERROR, OPTIONS, parse_cache, parse_continue, parse_retry
from .reader import Reader, pointer_token
from .template import Template

__all__ = ["Definition", "DefinitionProblems", "Problem", "Step", "parse_definition"]

Parsed = TypeVar("Parsed")

# Kinds without limits of their own: a limit there would be mistaken for one on the work that the step waits for.
_NO_LIMITS = {
    "agent": "remove this: the agent's budget limits the run, and `timeout` inside `agent` how long the step waits",
    "human": "remove this: `expires` says how long a person has to answer",
    "process": "remove this: the child process has its own limits; set `timeout` in its definition",
    "wait": "remove this: `timeout` inside `wait` says how long to wait for the event",
}
_STEP_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PREDEFINED_NAMES = frozenset({"input", "steps", "execution", "tenant", "index", "error", "secrets"})
_JAVASCRIPT_WORDS = frozenset({
    "arguments", "await", "break", "case", "catch", "class", "const", "continue", "debugger", "default", "delete", "do",
    "else", "enum", "eval", "export", "extends", "false", "finally", "for", "function", "if", "implements", "import", "in",
    "instanceof", "interface", "let", "new", "null", "package", "private", "protected", "public", "return", "static", "super",
    "switch", "this", "throw", "true", "try", "typeof", "undefined", "var", "void", "while", "with", "yield", "NaN",
    "Infinity",
})  # fmt: skip


def parse_definition(data: Any, files: Mapping[str, str]) -> Definition:
    """The definition as typed data; DefinitionProblems lists every problem if there are any."""
    parser = _Parser(files)
    definition = parser.process(data)
    if parser.problems or definition is None:
        raise DefinitionProblems(parser.problems, definition)
    return definition


class _Parser(Reader):
    """Parses the document, the members common to all steps, and steps that contain steps; other kinds are in `kinds`."""

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__(files)
        self.ids: dict[str, str] = {}
        self.count = 0
        self.is_after_end = False

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
        # Only checked here; `concurrency.load_rules` reads both again when an execution is recorded.
        parse_concurrency(self, document.get("concurrency"), "/concurrency")
        self.duration(document.get("expires"), "/expires", minimum=1)
        return Definition(
            id=process_id, name=str(document.get("name") or process_id), steps=steps, input_schema=schema,
            output=None if output is None else self.template(output, "/output"),
            grants=self.grants(document.get("grants"), "/grants"),
            timeout_ms=self.duration(document.get("timeout"), "/timeout", minimum=1),
            triggers=parse_triggers(self, document.get("triggers")), on_failure=on_failure,
        )  # fmt: skip

    def process_id(self, value: Any) -> str:
        return self.slug(value, "/id")

    def grants(self, value: Any, pointer: str) -> Grants:
        if value is None:
            return Grants()
        known = ("integrations", "datapool", "documents", "processes", "secrets", "human", "llm")
        members = self.mapping(value, pointer, known)
        integrations: dict[str, frozenset[str]] = {}
        for slug, actions in self.open_mapping(members.get("integrations", {}), f"{pointer}/integrations").items():
            at = f"{pointer}/integrations/{pointer_token(slug)}"
            integrations[slug] = frozenset({"*"}) if actions == "*" else frozenset(self.texts(actions, at))
        data: dict[str, frozenset[str]] = {}
        for name, access in self.open_mapping(members.get("datapool", {}), f"{pointer}/datapool").items():
            at = f"{pointer}/datapool/{pointer_token(name)}"
            data[name] = frozenset(self.choice(word, at, ("read", "write")) for word in self.texts(access, at))
        human = members.get("human", False)
        if not isinstance(human, bool):
            self.problem(f"{pointer}/human", "this must be true or false")
        words = self.texts(members.get("documents", []), f"{pointer}/documents")
        documents = frozenset(self.choice(word, f"{pointer}/documents", ("read", "write")) for word in words)
        names = {n: frozenset(self.texts(members.get(n, []), f"{pointer}/{n}")) for n in ("processes", "secrets", "llm")}
        return Grants(
            integrations=integrations, datapool=data, processes=names["processes"], secrets=names["secrets"], human=human is True,
            llm=names["llm"], documents=documents,
        )

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
        parsed = [self.step(item, f"{pointer}/{index}", path, depth) for index, item in enumerate(value)]
        return tuple(step for step in parsed if step is not None)

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
            settings, templates = PARSERS[kind](self, value[kind], at)
        else:
            self.problem(at, "this must be an object")
        if kind == "stop" and self.is_after_end:
            self.problem(at, "these steps run after the execution has ended; remove the stop")
        if value.get("undo") is not None and any(inner.id == "undo" for block in blocks for inner in block.steps):
            self.problem(f"{pointer}/undo", "a step in this one has the id 'undo'; give that another id")
        if "input" in value:
            templates["step_input"] = self.template(value["input"], f"{pointer}/input")
        return Step(
            id=step_id, kind=kind, path=inner_path, pointer=pointer, settings=settings, templates=templates,
            when=self.expression(value.get("when"), f"{pointer}/when"),
            retry=parse_retry(self, value.get("retry"), f"{pointer}/retry", kind), limits=self.limits(value, pointer, kind),
            blocks=blocks, grants=self.grants(value["grants"], f"{pointer}/grants") if "grants" in value else None,
            mock=self.mock(value, f"{pointer}/mock"),
            continue_on_error=parse_continue(self, value.get("continue_on_error"), f"{pointer}/continue_on_error"),
            cache=parse_cache(self, value, f"{pointer}/cache", kind), undo=self.undo(value, pointer, inner_path, depth),
        )  # fmt: skip

    def undo(self, step: Mapping[str, Any], pointer: str, path: str, depth: int) -> tuple[Step, ...]:
        """The compensation of a step: a list of steps, or a single step, which needs no id of its own."""
        value = step.get("undo")
        if value is None:
            return ()
        if self.is_after_end:
            self.problem(f"{pointer}/undo", "steps that run after the end are not undone; remove `undo`")
            return ()
        if isinstance(value, dict):
            self.count += 1
            with_id = {"id": f"undo_{step.get('id')}"[:63], **value}
            parsed = self.parse_after_end(lambda: self.step(with_id, f"{pointer}/undo", f"{path}/undo", depth + 1))
            return () if parsed is None else (parsed,)
        return self.parse_after_end(lambda: self.steps(value, f"{pointer}/undo", f"{path}/undo", depth + 1))

    def on_failure(self, value: Any) -> OnFailure:
        if value is None:
            return OnFailure()
        members = self.mapping(value, "/on_failure", ("process", "steps"))
        if not {"process", "steps"} & members.keys():
            self.problem("/on_failure", "on_failure has `process`, `steps`, or both")
        process = self.slug(members["process"], "/on_failure/process") if "process" in members else None
        if "steps" not in members:
            return OnFailure(process)
        if AFTER_FAILURE in self.ids:
            self.problem(self.ids[AFTER_FAILURE], f"{AFTER_FAILURE!r} is reserved because on_failure has steps; rename this step")
        return OnFailure(process, self.parse_after_end(lambda: self.steps(members["steps"], "/on_failure/steps", AFTER_FAILURE, 2)))

    def parse_after_end(self, parse: Callable[[], Parsed]) -> Parsed:
        """Parse steps that run only after the execution has ended."""
        self.is_after_end = True
        try:
            return parse()
        finally:
            self.is_after_end = False

    def mock(self, value: Mapping[str, Any], pointer: str) -> Template | None:
        """The output that replaces the step in a test."""
        if "mock" not in value:
            return None
        members = self.mapping(value["mock"], pointer, ("output",), ("output",))
        return self.template(members["output"], f"{pointer}/output") if "output" in members else None

    def kind_of(self, value: dict[str, Any], pointer: str) -> str | None:
        """The step's kind; None, with a problem noted, unless it has exactly one."""
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
        # Versions published before waits for events existed may have a limit here, and must keep running.
        is_legacy_wait = kind == "wait" and not (isinstance(value[kind], dict) and "event" in value[kind])
        for name in ("timeout", "limits"):
            if name in value and kind in _NO_LIMITS and not is_legacy_wait:
                self.problem(f"{pointer}/{name}", _NO_LIMITS[kind])
                return StepLimits()
        members = self.mapping(value.get("limits", {}), f"{pointer}/limits", ("time", "cpu", "memory_mb"))
        if "timeout" in value and "time" in members:
            self.problem(f"{pointer}/timeout", "`timeout` and `limits.time` mean the same; give only one of them")
        at = f"{pointer}/timeout" if "timeout" in value else f"{pointer}/limits/time"
        time = self.duration(value.get("timeout", members.get("time")), at, minimum=1)
        if time is not None and time > 15 * 60_000:
            self.problem(at, "a step runs at most 15m")
        cpu = self.duration(members.get("cpu"), f"{pointer}/limits/cpu", minimum=1)
        return StepLimits(time, cpu, self.integer(members.get("memory_mb"), f"{pointer}/limits/memory_mb", 8, 512))

    # -- steps that contain steps

    def branch(self, value: Any, pointer: str, path: str, depth: int) -> tuple[Block, ...]:
        if not isinstance(value, list) or not value:
            self.problem(pointer, "a branch is a list of options, each with `when` and `steps`")
            return ()
        blocks = []
        for index, option in enumerate(value):
            at = f"{pointer}/{index}"
            members = self.mapping(option, at, ("when", "steps"), ("steps",))
            if "when" not in members and index != len(value) - 1:
                self.problem(at, "only the last option may be without `when`: it is taken when no other is")
            steps = self.steps(members["steps"], f"{at}/steps", path, depth + 1) if "steps" in members else ()
            blocks.append(Block(steps, self.expression(members.get("when"), f"{at}/when")))
        return tuple(blocks)

    def parallel(self, value: Any, pointer: str, path: str, depth: int) -> tuple[Block, ...]:
        if not isinstance(value, dict) or not 1 <= len(value) <= MAX_BRANCHES:
            self.problem(pointer, f"a parallel is an object of 1 to {MAX_BRANCHES} named lists of steps")
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
        members = self.mapping(value, pointer, ("items", "as", "concurrency", "on_error", "steps", "collect"), ("items", "steps"))
        name = members.get("as", "item")
        if not isinstance(name, str) or not _STEP_ID.fullmatch(name) or name in _PREDEFINED_NAMES | _JAVASCRIPT_WORDS:
            self.problem(f"{pointer}/as", f"the item's name must be a plain word, none of {', '.join(sorted(_PREDEFINED_NAMES))}")
        concurrency = self.integer(members.get("concurrency"), f"{pointer}/concurrency", 1, 50) or 1
        collect = self.template(members["collect"], f"{pointer}/collect") if "collect" in members else None
        steps = self.steps(members["steps"], f"{pointer}/steps", path, depth + 1) if "steps" in members else ()
        items = {"items": self.template(members["items"], f"{pointer}/items")} if "items" in members else {}
        if "items" in members and not isinstance(members["items"], list | str):
            self.problem(f"{pointer}/items", "this must be a list or an expression")
        on_error = self.choice(members.get("on_error", "stop"), f"{pointer}/on_error", ON_ERROR)
        return {"as": name, "concurrency": concurrency, "on_error": on_error}, items, (Block(steps, collect=collect),)
