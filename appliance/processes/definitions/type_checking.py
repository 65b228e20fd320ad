"""Type errors and missing grants of a process's code and expressions, as problems of its draft."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from appliance.sandbox import CodeStep, Failure, Finding, Pool, Reach, TypeCheck, TypedExpression, instead_of, resolve

from .action_inputs import integrations_used
from .compiled import MODULE_SUFFIXES, make_program
from .nodes import AFTER_FAILURE, Definition, Grants, Problem, Severity, Step
from .php_grants import find_missing
from .surroundings import Look, Named, Surroundings
from .template import Expression, Template
from .typings import API_FILE, agents_used, all_grants, code_steps, declare_expression_names, declare_process, grants_of

_UNKNOWN_NAME = re.compile(r"Cannot find name '(\w+)'")
_SENTENCES = 3
_IMPORT = re.compile(r"""\b(?:from|import)\s*\(?\s*["'](\.{1,2}/[^"']+)["']""")
# Where one of these is wrong, a code step is not checked: its types follow from them.
_TYPED_MEMBERS = ("id", "code", "grants", "input")


@dataclass(frozen=True)
class Broken:
    """What other checks have found wrong in a draft and the type checker leaves out: places in the definition, and files.

    `structure`: the definition was read in part only, so expressions may name what stands in the other part.
    """

    pointers: Collection[str] = ()
    files: Collection[str] = ()
    structure: bool = False

    def touches(self, pointer: str) -> bool:
        """Whether something is wrong at this place or in it."""
        return any(f"{each}/".startswith(f"{pointer}/") for each in self.pointers)

    def touches_types(self, step: Step) -> bool:
        """Whether something is wrong that the types of a code step follow from."""
        members = (f"{step.pointer}/{name}" for name in _TYPED_MEMBERS)
        return step.pointer in self.pointers or any(map(self.touches, members))


@dataclass(frozen=True)
class Checkable:
    """A process with its files, what is around it, and what of it is left out."""

    definition: Definition
    files: Mapping[str, str]
    around: Surroundings
    broken: Broken = Broken()


def has_typescript(definition: Definition) -> bool:
    """Whether publishing waits for the type checker: without TypeScript it does not."""
    return any(step.settings["language"] == "typescript" for step in code_steps(definition))


def look_for(definition: Definition, look: Look) -> Surroundings:
    """What of the surroundings the process is granted, or uses in a step."""
    grants = all_grants(definition)
    integrations = sorted({*grants.integrations, *integrations_used(definition)})
    return look(Named(integrations, sorted(grants.datapool), agents_used(definition)))


def unknown_agents(definition: Definition, look: Look) -> list[Problem]:
    """A problem for every step whose agent is known not to be there."""
    used = agents_used(definition)
    known = look(Named(agents=used)).agents if used else {}
    return [
        Problem(f"{step.pointer}/agent/use", "agent_unknown", f"there is no agent {step.settings['use']!r} here; define it")
        for step in definition.all_steps()
        if step.kind == "agent" and known.get(step.settings.get("use", ""), {}) is None
    ]  # fmt: skip


def type_problems(pool: Pool, tenant_id: str, process: Checkable) -> list[Problem]:
    """What the type checker finds outside of what is broken; in a process without TypeScript its findings are only warnings,
    and so are those in files that no step uses."""
    broken = process.broken
    if broken.touches("/grants"):
        return []
    if broken.touches("/input"):
        process = replace(process, definition=replace(process.definition, input_schema=None))
    definition, files = process.definition, process.files
    in_php = _php_problems(tenant_id, process)
    located = {} if broken.structure else {
        key: each for key, each in _locate_expressions(definition) if each[0].pointer not in broken.pointers
    }  # fmt: skip
    steps = [step for step in code_steps(definition) if not broken.touches_types(step)]
    unused = unused_files(definition, files) - set(broken.files)
    if not steps and not located and not unused:
        return in_php
    found = pool.check_types(_make_check(tenant_id, process, _Checked(steps, located, unused)))
    if isinstance(found, Failure):
        return [*in_php, Problem("/steps", "types_unchecked", found.message, severity=_severity(found))]
    problems = [_problem(steps, located, finding) for finding in found if finding.file not in broken.files]
    is_certain = has_typescript(definition)
    return [
        *in_php,
        *(each if is_certain and each.file not in unused else replace(each, severity="warning") for each in problems),
    ]


def unused_files(definition: Definition, files: Mapping[str, str]) -> set[str]:
    """The modules of a draft that no step reaches by its imports."""
    reached: set[str] = set()
    for step in code_steps(definition):
        program = make_program("", step, files)
        new = [program.entry]
        while new:
            path = new.pop()
            if path not in reached:
                reached.add(path)
                new += [resolve(program.files, path, each) for each in _IMPORT.findall(program.files.get(path) or "")]
    return {path for path in files if path.endswith(MODULE_SUFFIXES) and path != API_FILE} - reached


def _php_problems(tenant_id: str, process: Checkable) -> list[Problem]:
    """Of PHP only calls are known whose names are literals; each file is looked at for the first step that runs it."""
    problems: dict[tuple[str, int, int, str], Problem] = {}
    for step in process.definition.all_steps():
        if step.kind != "code" or step.settings.get("language") != "php" or process.broken.touches_types(step):
            continue
        program = make_program(tenant_id, step, process.files)
        for line, column, missing in find_missing(program.files.get(program.entry, ""), grants_of(process.definition, step)):
            told = grant_sentence(missing)
            problem = Problem(f"{step.pointer}/code", "grant_missing", told, program.entry, line, column, "warning")
            problems.setdefault((program.entry, line, column, told), problem)
    return list(problems.values())


def _severity(failure: Failure) -> Severity:
    """Code that is too much for the checker is an error; a checker that cannot be had just now is none of the author's."""
    return "error" if failure.failure_class == "validation" else "warning"


@dataclass(frozen=True)
class _Checked:
    """What of a process goes to the type checker: code steps, expressions by key, and files that no step reaches."""

    steps: list[Step]
    located: "Located"
    unused: set[str]


def _make_check(tenant_id: str, process: Checkable, checked: _Checked) -> TypeCheck:
    definition, files = process.definition, process.files
    texts = {path: files[path] for path in checked.unused}
    steps = []
    for step in checked.steps:
        program = make_program(tenant_id, step, files)
        texts.update(program.files)
        steps.append(CodeStep(step.id, program.entry, _reach(grants_of(definition, step))))
    texts.pop(API_FILE, None)
    declared = declare_process(definition, process.around) + declare_expression_names(definition, process.around)
    expressions = [TypedExpression(key, expression.text, names) for key, (expression, names) in checked.located.items()]
    # The checker looks at what is reached from a step or an expression, so an expression that imports a file has it looked at.
    expressions += [TypedExpression(f"file:{path}", f'import("./process/{path}")', {}) for path in sorted(checked.unused)]
    return TypeCheck(texts, declared, steps, _reach(all_grants(definition)), expressions, tenant_id)


def _reach(grants: Grants) -> Reach:
    return Reach(
        {slug: sorted(actions) for slug, actions in sorted(grants.integrations.items())},
        {name: sorted(access) for name, access in sorted(grants.datapool.items())},
        sorted(grants.secrets), sorted(grants.processes), grants.human, sorted(grants.documents),
    )  # fmt: skip


# -- expressions

Located = dict[str, tuple[Expression, Mapping[str, str]]]


def _locate_expressions(definition: Definition) -> Iterator[tuple[str, tuple[Expression, Mapping[str, str]]]]:
    """Every expression by a key, with the types of the names around it."""
    names = {
        "input": "ExpressionInput",
        "steps": "ExpressionSteps",
        "errors": "ExpressionErrors",
        "execution": "ExpressionExecution",
        "tenant": "ExpressionTenant",
    }
    count = 0
    loops = {step.path: step.settings["as"] for step in definition.all_steps() if step.kind == "for_each"}
    placed: list[tuple[Template | None, Mapping[str, str]]] = [(definition.output, names)]
    for step in definition.all_steps():
        seen = {**names}
        for path, item in loops.items():
            if step.path == path or step.path.startswith(f"{path}/"):
                seen |= {item: "any", "index": "number"}
        if step.path in definition.aftermath:
            seen |= {"error": "any"} if step.path.startswith(f"{AFTER_FAILURE}/") else {"error": "any", "output": "any"}
        blocks = [template for block in step.blocks for template in (block.when, block.collect)]
        placed += [(template, seen) for template in (*step.option_templates, *step.templates.values(), *blocks)]
    for template, around in placed:
        for expression in template.expressions if template is not None else ():
            yield f"e{count}", (expression, around)
            count += 1


# -- problems


def _problem(steps: list[Step], located: Located, finding: Finding) -> Problem:
    if finding.expression is not None:
        expression = located[finding.expression][0]
        return Problem(expression.pointer, "type_error", _told(finding), column=finding.column)
    elsewhere = f"{steps[0].pointer}/code" if steps else "/files"
    pointer = next((f"{step.pointer}/code" for step in steps if _entry(step) == finding.file), elsewhere)
    code, message = ("grant_missing", grant_sentence(finding.missing)) if finding.missing else ("type_error", _told(finding))
    return Problem(pointer, code, message, finding.file, finding.line, finding.column, finding.severity)


def _entry(step: Step) -> str:
    return make_program("", step, {}).entry


def grant_sentence(missing: tuple[str, str, str]) -> str:
    """What a call needs and does not have, with what to write."""
    kind, name, detail = missing
    if kind == "integrations":
        listed = f"[{detail}]" if detail else '"*"'
        return f"no grant for {detail or 'actions'} of {name}: add grants: integrations: {{{name}: {listed}}}"
    if kind == "datapool":
        return f"no grant to {detail} {name}: add grants: datapool: {{{name}: [{detail}]}}"
    if kind == "documents":
        return f"no grant to {detail} documents: add grants: documents: [{detail}]"
    if kind == "human":
        return "no grant to ask people: add grants: human: true"
    return f"no grant for {name}: add grants: {kind}: [{name}]"


def _told(finding: Finding) -> str:
    """The compiler's words in one line; a name that exists in browsers and servers gets what is here instead."""
    unknown = _UNKNOWN_NAME.search(finding.message)
    advice = instead_of(unknown[1]) if unknown else None
    if unknown and advice:
        return f"'{unknown[1]}' does not exist in a step; {advice}"
    lines = [line.strip() for line in finding.message.splitlines() if line.strip()]
    chosen = lines if len(lines) <= _SENTENCES else [lines[0], *lines[1 - _SENTENCES :]]
    return " ".join(chosen)[:1000]
