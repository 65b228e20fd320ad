"""A process definition as typed data: parsed with every problem at once, pure, no database."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from appliance.core import clock
from appliance.core.errors import ValidationFailed

from .template import Template, TemplateInvalid, compile_template

BLOCK_KINDS = ("branch", "for_each")
KINDS = ("rule", "code", "integration", "datapool", "wait", *BLOCK_KINDS)
RETRY_CLASSES = ("user_code", "connector", "timeout", "memory", "system", "policy", "validation")
MAX_STEPS = 1000
MAX_DEPTH = 8
_STEP_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_RESERVED_NAMES = frozenset({"input", "steps", "execution", "tenant", "index", "error", "secrets"})


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where (JSON pointer; file, line and column where known), a code and a sentence."""

    pointer: str
    code: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True)
class Retry:
    """When a failed attempt is tried again; times in milliseconds."""

    max_attempts: int = 1
    backoff: Literal["constant", "exponential"] = "exponential"
    initial_ms: int = 1_000
    max_ms: int = 60_000
    jitter: bool = True
    classes: tuple[str, ...] = ("connector", "timeout", "system")

    def delay_ms(self, attempt: int, fraction: float) -> int:
        """Wait before the attempt after `attempt`; `fraction` in [0, 1) spreads it over the upper half."""
        delay = self.initial_ms * (2 ** min(attempt - 1, 30) if self.backoff == "exponential" else 1)
        delay = min(delay, self.max_ms)
        return int(delay * (0.5 + fraction / 2)) if self.jitter else delay


@dataclass(frozen=True)
class StepLimits:
    """What a step may use; None means the appliance's default."""

    time_ms: int | None = None
    cpu_ms: int | None = None
    memory_mb: int | None = None


@dataclass(frozen=True)
class Block:
    """Steps that run in order: an option of a branch, the body of a for_each."""

    steps: tuple["Step", ...]
    when: Template | None = None
    collect: Template | None = None


@dataclass(frozen=True)
class Step:
    """One node.  `path` joins the ids of the enclosing steps; `settings` is the kind's own member, as templates."""

    id: str
    kind: str
    path: str
    pointer: str
    settings: Mapping[str, Any]
    templates: Mapping[str, Template]
    when: Template | None = None
    retry: Retry | None = None
    limits: StepLimits = field(default_factory=StepLimits)
    blocks: tuple[Block, ...] = ()
    grants: "Grants | None" = None


@dataclass(frozen=True)
class Grants:
    """What code may reach; all else is denied.  `*` stands for every action of an integration."""

    integrations: Mapping[str, frozenset[str]] = field(default_factory=dict)
    datapool: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def allows_action(self, integration: str, action: str) -> bool:
        actions = self.integrations.get(integration, frozenset())
        return "*" in actions or action in actions

    def allows_data(self, collection: str, access: str) -> bool:
        return access in self.datapool.get(collection, frozenset())


@dataclass(frozen=True)
class Definition:
    """A valid definition."""

    id: str
    name: str
    steps: tuple[Step, ...]
    input_schema: Mapping[str, Any] | None
    output: Template | None
    grants: Grants
    timeout_ms: int | None

    def all_steps(self) -> Iterator[Step]:
        """Every step, outer before inner, in order."""
        yield from _walk(self.steps)


def _walk(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        for block in step.blocks:
            yield from _walk(block.steps)


class DefinitionProblems(Exception):
    """Everything that is wrong with a definition."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems[0].message if problems else "")
        self.problems = problems


def parse_definition(data: Any, files: Mapping[str, str]) -> Definition:
    """The definition as typed data; DefinitionProblems lists everything that is wrong with it."""
    parser = _Parser(files)
    definition = parser.process(data)
    if parser.problems or definition is None:
        raise DefinitionProblems(parser.problems)
    return definition


class _Parser:
    """Walks a definition and notes problems instead of stopping at the first."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files
        self.problems: list[Problem] = []
        self.ids: dict[str, str] = {}

    def problem(self, pointer: str, message: str, code: str = "definition_invalid") -> None:
        self.problems.append(Problem(pointer, code, message))

    # -- small readers: each notes a problem and answers a harmless value

    def mapping(self, value: Any, pointer: str, known: tuple[str, ...], required: tuple[str, ...] = ()) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.problem(pointer, "this must be an object")
            return {}
        for name in value:
            if name not in known:
                self.problem(f"{pointer}/{_token(name)}", f"{str(name)[:60]!r} is not known here; known are {', '.join(known)}")
        for name in required:
            if name not in value:
                self.problem(f"{pointer}/{name}", f"{name!r} is required")
        return value

    def text(self, value: Any, pointer: str, default: str = "") -> str:
        if isinstance(value, str) and value.strip():
            return value
        self.problem(pointer, "this must be a text that is not empty")
        return default

    def duration(self, value: Any, pointer: str) -> int | None:
        if value is None:
            return None
        try:
            return clock.parse_duration(value if isinstance(value, str) else repr(value))
        except ValidationFailed as error:
            self.problem(pointer, error.message)
            return None

    def whole(self, value: Any, pointer: str, low: int, high: int) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.problem(pointer, f"this must be a whole number from {low} to {high}")
            return None
        return value

    def choice(self, value: Any, pointer: str, known: tuple[str, ...]) -> str:
        if value in known:
            return str(value)
        self.problem(pointer, f"this must be one of {', '.join(known)}")
        return known[0]

    def template(self, value: Any, pointer: str) -> Template:
        try:
            return compile_template(value, pointer)
        except TemplateInvalid as error:
            self.problem(error.pointer, error.message)
            return Template(pointer, None, (), (), constant=True)

    def expression(self, value: Any, pointer: str) -> Template | None:
        if value is None:
            return None
        if not isinstance(value, str) or not value.startswith("="):
            self.problem(pointer, 'this must be an expression: a text that starts with "="')
            return None
        return self.template(value, pointer)

    # -- the document

    def process(self, data: Any) -> Definition | None:
        known = ("id", "name", "description", "input", "output", "grants", "timeout", "steps")
        document = self.mapping(data, "", known, ("id", "steps"))
        if not document:
            return None
        schema = document.get("input")
        if schema is not None and not isinstance(schema, dict):
            self.problem("/input", "this must be a JSON Schema (an object)")
            schema = None
        steps = self.steps(document.get("steps"), "/steps", "", 1)
        if len(self.ids) > MAX_STEPS:
            self.problem("/steps", f"a process has at most {MAX_STEPS} steps")
        process_id = self.text(document.get("id"), "/id")
        output = document.get("output")
        return Definition(
            process_id, str(document.get("name") or process_id), steps, schema,
            None if output is None else self.template(output, "/output"),
            self.grants(document.get("grants"), "/grants"), self.duration(document.get("timeout"), "/timeout"),
        )  # fmt: skip

    def grants(self, value: Any, pointer: str) -> Grants:
        if value is None:
            return Grants()
        given = self.mapping(value, pointer, ("integrations", "datapool"))
        integrations: dict[str, frozenset[str]] = {}
        for slug, actions in self.mapping(
            given.get("integrations", {}), f"{pointer}/integrations", _any(given, "integrations")
        ).items():
            at = f"{pointer}/integrations/{_token(slug)}"
            integrations[slug] = frozenset({"*"}) if actions == "*" else frozenset(self.texts(actions, at))
        data: dict[str, frozenset[str]] = {}
        for name, access in self.mapping(given.get("datapool", {}), f"{pointer}/datapool", _any(given, "datapool")).items():
            at = f"{pointer}/datapool/{_token(name)}"
            data[name] = frozenset(self.choice(word, at, ("read", "write")) for word in self.texts(access, at))
        return Grants(integrations, data)

    def texts(self, value: Any, pointer: str) -> list[str]:
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return value
        self.problem(pointer, "this must be a list of texts")
        return []

    def steps(self, value: Any, pointer: str, path: str, depth: int) -> tuple[Step, ...]:
        if not isinstance(value, list) or not value:
            self.problem(pointer, "this must be a list with at least one step")
            return ()
        if depth > MAX_DEPTH:
            self.problem(pointer, f"steps are nested at most {MAX_DEPTH} deep")
            return ()
        found = [self.step(item, f"{pointer}/{index}", path, depth) for index, item in enumerate(value)]
        return tuple(step for step in found if step is not None)

    def step(self, value: Any, pointer: str, path: str, depth: int) -> Step | None:
        if not isinstance(value, dict):
            self.problem(pointer, "a step is an object")
            return None
        kinds = [name for name in KINDS if name in value]
        if len(kinds) != 1:
            self.problem(pointer, f"a step has exactly one of {', '.join(KINDS)}")
            return None
        kind = kinds[0]
        options = ("id", "name", "when", "retry", "limits", "timeout", "grants", "input", kind)
        self.mapping(value, pointer, options, ("id",))
        step_id = self.step_id(value.get("id"), f"{pointer}/id", pointer)
        inner_path = f"{path}/{step_id}" if path else step_id
        settings, templates, blocks = self.kind(kind, value[kind], f"{pointer}/{kind}", inner_path, depth)
        if "input" in value:
            templates["step_input"] = self.template(value["input"], f"{pointer}/input")
        return Step(
            step_id, kind, inner_path, pointer, settings, templates,
            self.expression(value.get("when"), f"{pointer}/when"),
            self.retry(value.get("retry"), f"{pointer}/retry"), self.limits(value, pointer), blocks,
            self.grants(value["grants"], f"{pointer}/grants") if "grants" in value else None,
        )  # fmt: skip

    def step_id(self, value: Any, pointer: str, step_pointer: str) -> str:
        if not isinstance(value, str) or not _STEP_ID.fullmatch(value):
            self.problem(pointer, "a step's id has letters, digits and underscores and begins with a letter")
            return f"step{len(self.ids)}"
        if value in self.ids:
            self.problem(pointer, f"the id {value!r} is taken by the step at {self.ids[value]}; ids are unique in a process")
        self.ids[value] = step_pointer
        return value

    def retry(self, value: Any, pointer: str) -> Retry | None:
        if value is None:
            return None
        given = self.mapping(value, pointer, ("max_attempts", "backoff", "initial", "max", "jitter", "classes"), ("max_attempts",))
        classes = self.texts(given.get("classes", ["connector", "timeout", "system"]), f"{pointer}/classes")
        for index, name in enumerate(classes):
            self.choice(name, f"{pointer}/classes/{index}", RETRY_CLASSES)
        jitter = given.get("jitter", True)
        if not isinstance(jitter, bool):
            self.problem(f"{pointer}/jitter", "this must be true or false")
        return Retry(
            self.whole(given.get("max_attempts"), f"{pointer}/max_attempts", 1, 100) or 1,
            "constant" if self.choice(given.get("backoff", "exponential"), f"{pointer}/backoff", ("constant", "exponential"))
            == "constant" else "exponential",
            self.duration(given.get("initial", "1s"), f"{pointer}/initial") or 0,
            self.duration(given.get("max", "1m"), f"{pointer}/max") or 0, bool(jitter), tuple(classes),
        )  # fmt: skip

    def limits(self, value: Mapping[str, Any], pointer: str) -> StepLimits:
        given = self.mapping(value.get("limits", {}), f"{pointer}/limits", ("time", "cpu", "memory_mb"))
        time = self.duration(value.get("timeout", given.get("time")), f"{pointer}/limits/time")
        if time is not None and not 1 <= time <= 15 * 60_000:
            self.problem(f"{pointer}/limits/time", "a step runs at most 15m")
        cpu = self.duration(given.get("cpu"), f"{pointer}/limits/cpu")
        return StepLimits(time, cpu, self.whole(given.get("memory_mb"), f"{pointer}/limits/memory_mb", 8, 512))

    # -- the kinds

    def kind(
        self, kind: str, value: Any, pointer: str, path: str, depth: int
    ) -> tuple[dict[str, Any], dict[str, Template], tuple[Block, ...]]:
        if kind == "branch":
            return {}, {}, self.branch(value, pointer, path, depth)
        if kind == "for_each":
            return self.for_each(value, pointer, path, depth)
        settings, templates = getattr(self, f"kind_{kind}")(value, pointer)
        return settings, templates, ()

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
            steps = self.steps(given.get("steps"), f"{at}/steps", path, depth + 1)
            blocks.append(Block(steps, self.expression(given.get("when"), f"{at}/when")))
        return tuple(blocks)

    def for_each(
        self, value: Any, pointer: str, path: str, depth: int
    ) -> tuple[dict[str, Any], dict[str, Template], tuple[Block, ...]]:
        given = self.mapping(value, pointer, ("items", "as", "concurrency", "steps", "collect"), ("items", "steps"))
        name = given.get("as", "item")
        if not isinstance(name, str) or not _STEP_ID.fullmatch(name) or name in _RESERVED_NAMES:
            self.problem(f"{pointer}/as", f"the item's name must be a plain word, none of {', '.join(sorted(_RESERVED_NAMES))}")
        concurrency = self.whole(given.get("concurrency"), f"{pointer}/concurrency", 1, 50) or 1
        collect = self.template(given["collect"], f"{pointer}/collect") if "collect" in given else None
        block = Block(self.steps(given.get("steps"), f"{pointer}/steps", path, depth + 1), collect=collect)
        templates = {"items": self.template(given.get("items"), f"{pointer}/items")}
        return {"as": name, "concurrency": concurrency}, templates, (block,)

    def kind_rule(self, value: Any, pointer: str) -> tuple[dict[str, Any], dict[str, Template]]:
        given = self.mapping(value, pointer, ("expression", "decision", "input"))
        if ("expression" in given) == ("decision" in given):
            self.problem(pointer, "a rule has either `expression` or `decision`")
        if "expression" in given:
            found = self.expression(given["expression"], f"{pointer}/expression")
            return {}, {"expression": found} if found else {}
        decision = given.get("decision")
        if isinstance(decision, str) and decision not in self.files:
            self.problem(f"{pointer}/decision", f"there is no file {decision[:100]!r} in this process")
        elif not isinstance(decision, str | dict):
            self.problem(f"{pointer}/decision", "this must be a file's path or a JSON Decision Model")
        templates = {"input": self.template(given["input"], f"{pointer}/input")} if "input" in given else {}
        return {"decision": decision}, templates

    def kind_code(self, value: Any, pointer: str) -> tuple[dict[str, Any], dict[str, Template]]:
        given = self.mapping(value, pointer, ("language", "file", "source"), ("language",))
        language = self.choice(given.get("language"), f"{pointer}/language", ("typescript", "javascript"))
        if ("file" in given) == ("source" in given):
            self.problem(pointer, "code has either `file` or `source`")
        if "file" in given and given["file"] not in self.files:
            self.problem(f"{pointer}/file", f"there is no file {str(given['file'])[:100]!r} in this process")
        if "source" in given:
            self.text(given["source"], f"{pointer}/source")
        return {"language": language, "file": given.get("file"), "source": given.get("source")}, {}

    def kind_integration(self, value: Any, pointer: str) -> tuple[dict[str, Any], dict[str, Template]]:
        given = self.mapping(value, pointer, ("use", "action", "input"), ("use", "action"))
        templates = {"input": self.template(given["input"], f"{pointer}/input")} if "input" in given else {}
        use = self.text(given.get("use"), f"{pointer}/use")
        return {"use": use, "action": self.text(given.get("action"), f"{pointer}/action")}, templates

    def kind_datapool(self, value: Any, pointer: str) -> tuple[dict[str, Any], dict[str, Template]]:
        operations = {
            "create": ("values",), "update": ("id", "values"), "upsert": ("key", "values"), "delete": ("id",),
            "find": ("id",), "query": (),
        }  # fmt: skip
        given = self.mapping(value, pointer, ("collection", *operations, "batch"))
        chosen = [name for name in (*operations, "batch") if name in given]
        if len(chosen) != 1:
            self.problem(pointer, f"a datapool step has exactly one of {', '.join((*operations, 'batch'))}")
            return {}, {}
        operation = chosen[0]
        collection = "" if operation == "batch" else self.text(given.get("collection"), f"{pointer}/collection")
        at = f"{pointer}/{operation}"
        if operation in operations and isinstance(given[operation], dict):
            for name in operations[operation]:
                if name not in given[operation]:
                    self.problem(f"{at}/{name}", f"{name!r} is required")
        return {"collection": collection, "operation": operation}, {"arguments": self.template(given[operation], at)}

    def kind_wait(self, value: Any, pointer: str) -> tuple[dict[str, Any], dict[str, Template]]:
        given = self.mapping(value, pointer, ("for", "until"))
        if ("for" in given) == ("until" in given):
            self.problem(pointer, "a wait has either `for` or `until`")
            return {}, {}
        name = "for" if "for" in given else "until"
        if name == "for" and not str(given["for"]).startswith("="):
            self.duration(given["for"], f"{pointer}/for")
        return {}, {name: self.template(given[name], f"{pointer}/{name}")}


def _any(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Names chosen by the builder: whatever stands there is known."""
    value = given.get(name)
    return tuple(value) if isinstance(value, dict) else ()


def _token(part: str | int) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")
