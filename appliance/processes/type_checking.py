"""Type errors and missing grants of a process's code and expressions, as problems of its draft."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from appliance.sandbox import CodeStep, Failure, Finding, Pool, Reach, TypeCheck, TypedExpression, instead_of

from .compiled import make_program
from .nodes import AFTER_FAILURE, Definition, Grants, Problem, Severity, Step
from .php_grants import find_missing
from .surroundings import Look, Named, Surroundings
from .template import Expression, Template
from .typings import API_FILE, agents_used, all_grants, code_steps, declare_expression_names, declare_process, grants_of

_UNKNOWN_NAME = re.compile(r"Cannot find name '(\w+)'")
_SENTENCES = 3


def has_typescript(definition: Definition) -> bool:
    """Whether publishing waits for the type checker: without TypeScript it does not."""
    return any(step.settings["language"] == "typescript" for step in code_steps(definition))


def look_for(definition: Definition, look: Look) -> Surroundings:
    """What of the surroundings the process is granted."""
    grants = all_grants(definition)
    return look(Named(sorted(grants.integrations), sorted(grants.datapool), agents_used(definition)))


def unknown_agents(definition: Definition, look: Look) -> list[Problem]:
    """A problem for every step whose agent is known not to be there."""
    used = agents_used(definition)
    known = look(Named(agents=used)).agents if used else {}
    return [
        Problem(f"{step.pointer}/agent/use", "agent_unknown", f"there is no agent {step.settings['use']!r} here; define it")
        for step in definition.all_steps()
        if step.kind == "agent" and known.get(step.settings["use"], {}) is None
    ]  # fmt: skip


def type_problems(
    pool: Pool, tenant_id: str, definition: Definition, files: Mapping[str, str], around: Surroundings
) -> list[Problem]:
    """What the type checker finds; in a process without TypeScript its findings are only warnings."""
    in_php = _php_problems(tenant_id, definition, files)
    located = dict(_locate_expressions(definition))
    steps = list(code_steps(definition))
    if not steps and not located:
        return in_php
    found = pool.check_types(_make_check(tenant_id, definition, files, around, located))
    if isinstance(found, Failure):
        return [*in_php, Problem("/steps", "types_unchecked", found.message, severity=_severity(found))]
    problems = [_problem(steps, located, finding) for finding in found]
    if not has_typescript(definition):
        problems = [replace(problem, severity="warning") for problem in problems]
    return [*in_php, *problems]


def _php_problems(tenant_id: str, definition: Definition, files: Mapping[str, str]) -> list[Problem]:
    """Of PHP only calls are known whose names are literals; each file is looked at for the first step that runs it."""
    problems: dict[tuple[str, int, int, str], Problem] = {}
    for step in definition.all_steps():
        if step.kind != "code" or step.settings["language"] != "php":
            continue
        program = make_program(tenant_id, step, files)
        for line, column, missing in find_missing(program.files.get(program.entry, ""), grants_of(definition, step)):
            told = grant_sentence(missing)
            problem = Problem(f"{step.pointer}/code", "grant_missing", told, program.entry, line, column, "warning")
            problems.setdefault((program.entry, line, column, told), problem)
    return list(problems.values())


def _severity(failure: Failure) -> Severity:
    """Code that is too much for the checker is an error; a checker that cannot be had just now is none of the author's."""
    return "error" if failure.failure_class == "validation" else "warning"


def _make_check(
    tenant_id: str, definition: Definition, files: Mapping[str, str], around: Surroundings, located: "Located"
) -> TypeCheck:
    texts: dict[str, str] = {}
    steps = []
    for step in code_steps(definition):
        program = make_program(tenant_id, step, files)
        texts.update(program.files)
        steps.append(CodeStep(step.id, program.entry, _reach(grants_of(definition, step))))
    texts.pop(API_FILE, None)
    declared = declare_process(definition, around) + declare_expression_names(definition, around)
    expressions = [TypedExpression(key, expression.text, names) for key, (expression, names) in located.items()]
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
    pointer = next((f"{step.pointer}/code" for step in steps if _entry(step) == finding.file), f"{steps[0].pointer}/code")
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
