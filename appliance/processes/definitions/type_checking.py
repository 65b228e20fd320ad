"""Type errors and missing grants of a process's code and expressions, as problems of its draft."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from appliance.sandbox import CodeStep, Failure, Finding, Pool, Reach, TypeCheck, TypedExpression, instead_of, resolve

from .action_inputs import integrations_used
from .compiled import MODULE_SUFFIXES, build_program
from .dependencies import Dependencies, LoadDependencies, References
from .nodes import AFTER_FAILURE, Definition, Grants, Problem, Severity, Step
from .php_grants import find_missing_grants
from .template import Expression, Template
from .typings import API_FILE, agents_used, all_grants, code_steps, declare_expression_names, declare_process, grants_of

_UNKNOWN_NAME = re.compile(r"Cannot find name '(\w+)'")
_MAX_LINES = 3
_IMPORT = re.compile(r"""\b(?:from|import)\s*\(?\s*["'](\.{1,2}/[^"']+)["']""")
# If one of these members has a problem, the code step is not type-checked: its types depend on them.
_MEMBERS_WITH_TYPES = ("id", "code", "grants", "input")


@dataclass(frozen=True)
class BrokenParts:
    """The parts of a draft with problems from other checks, which the type checker skips: places in the definition, and files.

    `is_partial`: only a part of the definition could be parsed, so expressions may refer to what is missing.
    """

    pointers: Collection[str] = ()
    files: Collection[str] = ()
    is_partial: bool = False

    def contains(self, pointer: str) -> bool:
        """Whether there is a problem at this place or inside it."""
        return any(f"{each}/".startswith(f"{pointer}/") for each in self.pointers)

    def affects_types(self, step: Step) -> bool:
        """Whether there is a problem that the types of a code step depend on."""
        members = (f"{step.pointer}/{name}" for name in _MEMBERS_WITH_TYPES)
        return step.pointer in self.pointers or any(map(self.contains, members))


@dataclass(frozen=True)
class Checkable:
    """A process to type-check: definition, files, what its types depend on, and the parts to skip."""

    definition: Definition
    files: Mapping[str, str]
    dependencies: Dependencies
    broken: BrokenParts = BrokenParts()


def has_typescript(definition: Definition) -> bool:
    """Whether publishing has to wait for the type checker, which only TypeScript needs."""
    return any(step.settings["language"] == "typescript" for step in code_steps(definition))


def load_used_dependencies(definition: Definition, load: LoadDependencies) -> Dependencies:
    """Load what the process is granted or uses in a step."""
    grants = all_grants(definition)
    integrations = sorted({*grants.integrations, *integrations_used(definition)})
    return load(References(integrations, sorted(grants.datapool), agents_used(definition)))


def unknown_agents(definition: Definition, load: LoadDependencies) -> list[Problem]:
    """A problem for every step whose agent does not exist."""
    used = agents_used(definition)
    agents = load(References(agents=used)).agents if used else {}
    return [
        Problem(f"{step.pointer}/agent/use", "agent_unknown", f"there is no agent {step.settings['use']!r}; create it first")
        for step in definition.all_steps()
        if step.kind == "agent" and agents.get(step.settings.get("use", ""), {}) is None
    ]  # fmt: skip


def type_problems(pool: Pool, tenant_id: str, process: Checkable) -> list[Problem]:
    """The findings of the type checker outside the broken parts.  They are only warnings in a process without TypeScript, and
    in files that no step uses."""
    broken = process.broken
    if broken.contains("/grants"):
        return []
    if broken.contains("/input"):
        process = replace(process, definition=replace(process.definition, input_schema=None))
    definition, files = process.definition, process.files
    php_problems = _php_problems(tenant_id, process)
    located = {} if broken.is_partial else {
        key: each for key, each in _locate_expressions(definition) if each[0].pointer not in broken.pointers
    }  # fmt: skip
    steps = [step for step in code_steps(definition) if not broken.affects_types(step)]
    unused = unused_files(definition, files) - set(broken.files)
    if not steps and not located and not unused:
        return php_problems
    findings = pool.check_types(_build_check(tenant_id, process, _CheckScope(steps, located, unused)))
    if isinstance(findings, Failure):
        return [*php_problems, Problem("/steps", "types_unchecked", findings.message, severity=_severity(findings))]
    problems = [_problem(steps, located, finding) for finding in findings if finding.file not in broken.files]
    is_certain = has_typescript(definition)
    return [
        *php_problems,
        *(each if is_certain and each.file not in unused else replace(each, severity="warning") for each in problems),
    ]


def unused_files(definition: Definition, files: Mapping[str, str]) -> set[str]:
    """The modules of a draft that no step imports, directly or indirectly."""
    imported: set[str] = set()
    for step in code_steps(definition):
        program = build_program("", step, files)
        new = [program.entry]
        while new:
            path = new.pop()
            if path not in imported:
                imported.add(path)
                new += [resolve(program.files, path, each) for each in _IMPORT.findall(program.files.get(path) or "")]
    return {path for path in files if path.endswith(MODULE_SUFFIXES) and path != API_FILE} - imported


def _php_problems(tenant_id: str, process: Checkable) -> list[Problem]:
    """Missing grants in PHP, where only calls with literal names are recognised; each file is reported once, for its first step."""
    problems: dict[tuple[str, int, int, str], Problem] = {}
    for step in process.definition.all_steps():
        if step.kind != "code" or step.settings.get("language") != "php" or process.broken.affects_types(step):
            continue
        program = build_program(tenant_id, step, process.files)
        for line, column, missing in find_missing_grants(program.files.get(program.entry, ""), grants_of(process.definition, step)):
            message = grant_sentence(missing)
            problem = Problem(
                pointer=f"{step.pointer}/code", code="grant_missing", message=message, file=program.entry, line=line,
                column=column, severity="warning",
            )
            problems.setdefault((program.entry, line, column, message), problem)
    return list(problems.values())


def _severity(failure: Failure) -> Severity:
    """Code that exceeds the checker's limits is the author's error; a checker that is unavailable is only a warning."""
    return "error" if failure.failure_class == "validation" else "warning"


@dataclass(frozen=True)
class _CheckScope:
    """What is sent to the type checker: code steps, expressions by key, and files that no step imports."""

    steps: list[Step]
    located: "Located"
    unused: set[str]


def _build_check(tenant_id: str, process: Checkable, checked: _CheckScope) -> TypeCheck:
    definition, files = process.definition, process.files
    texts = {path: files[path] for path in checked.unused}
    steps = []
    for step in checked.steps:
        program = build_program(tenant_id, step, files)
        texts.update(program.files)
        steps.append(CodeStep(step.id, program.entry, _sandbox_grants(grants_of(definition, step))))
    texts.pop(API_FILE, None)
    declared = declare_process(definition, process.dependencies) + declare_expression_names(definition, process.dependencies)
    expressions = [TypedExpression(key, expression.text, names) for key, (expression, names) in checked.located.items()]
    # The checker only follows steps and expressions, so each unused file is imported by an expression of its own.
    expressions += [TypedExpression(f"file:{path}", f'import("./process/{path}")', {}) for path in sorted(checked.unused)]
    return TypeCheck(texts, declared, steps, _sandbox_grants(all_grants(definition)), expressions, tenant_id)


def _sandbox_grants(grants: Grants) -> Reach:
    return Reach(
        {slug: sorted(actions) for slug, actions in sorted(grants.integrations.items())},
        {name: sorted(access) for name, access in sorted(grants.datapool.items())},
        sorted(grants.secrets), sorted(grants.processes), grants.human, sorted(grants.documents),
    )  # fmt: skip


# -- expressions

Located = dict[str, tuple[Expression, Mapping[str, str]]]


def _locate_expressions(definition: Definition) -> Iterator[tuple[str, tuple[Expression, Mapping[str, str]]]]:
    """Every expression under a unique key, with the types of the names it can use."""
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
        visible = {**names}
        for path, item in loops.items():
            if step.path == path or step.path.startswith(f"{path}/"):
                visible |= {item: "any", "index": "number"}
        if step.path in definition.compensation_paths:
            visible |= {"error": "any"} if step.path.startswith(f"{AFTER_FAILURE}/") else {"error": "any", "output": "any"}
        blocks = [template for block in step.blocks for template in (block.when, block.collect)]
        placed += [(template, visible) for template in (*step.option_templates, *step.templates.values(), *blocks)]
    for template, visible_names in placed:
        for expression in template.expressions if template is not None else ():
            yield f"e{count}", (expression, visible_names)
            count += 1


# -- problems


def _problem(steps: list[Step], located: Located, finding: Finding) -> Problem:
    if finding.expression is not None:
        expression = located[finding.expression][0]
        return Problem(expression.pointer, "type_error", _sentence_of(finding), column=finding.column)
    elsewhere = f"{steps[0].pointer}/code" if steps else "/files"
    pointer = next((f"{step.pointer}/code" for step in steps if _entry(step) == finding.file), elsewhere)
    code, message = ("grant_missing", grant_sentence(finding.missing)) if finding.missing else ("type_error", _sentence_of(finding))
    return Problem(
        pointer=pointer, code=code, message=message, file=finding.file, line=finding.line, column=finding.column,
        severity=finding.severity,
    )


def _entry(step: Step) -> str:
    return build_program("", step, {}).entry


def grant_sentence(missing: tuple[str, str, str]) -> str:
    """Names the grant that a call lacks and what to add to the definition."""
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


def _sentence_of(finding: Finding) -> str:
    """The compiler's message in one line; for a global of browsers or Node, what to use instead."""
    unknown = _UNKNOWN_NAME.search(finding.message)
    advice = instead_of(unknown[1]) if unknown else None
    if unknown and advice:
        return f"'{unknown[1]}' does not exist in a step; {advice}"
    lines = [line.strip() for line in finding.message.splitlines() if line.strip()]
    chosen = lines if len(lines) <= _MAX_LINES else [lines[0], *lines[1 - _MAX_LINES :]]
    return " ".join(chosen)[:1000]
