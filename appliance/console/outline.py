"""A definition as a list that people read: what every step does, in a sentence."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.processes.nodes import AFTER_FAILURE

KIND_NAMES: Mapping[str, str] = {
    "rule": "Rule", "code": "Code", "integration": "Integration", "datapool": "DataPool", "branch": "Branch",
    "for_each": "For each", "parallel": "Parallel", "wait": "Wait", "stop": "Stop", "human": "Person", "process": "Process",
    "llm": "Model", "agent": "Agent", "file": "File", "ocr": "OCR",
}  # fmt: skip
_LANGUAGES = {"typescript": "TypeScript", "javascript": "JavaScript", "php": "PHP"}
_DATA_VERBS = {
    "create": "Create an entity in", "update": "Update an entity of", "upsert": "Create or update an entity of",
    "delete": "Delete an entity of", "find": "Find an entity of", "query": "Query",
}  # fmt: skip


@dataclass(frozen=True)
class StepGroup:
    """Steps inside a step; `title` says when they are taken."""

    title: str
    steps: "list[StepLine]"


@dataclass(frozen=True)
class StepLine:
    """One step: `text` is what it does, `name` what its builder calls that, `file` where it is written, `when` its condition.

    `path` joins the ids of the enclosing steps as executions do; `undo` are the steps that undo it; `process` is whose
    execution it starts; `goes_on`: the process goes on although it failed; `item` is what a for_each calls each of its items.
    """

    id: str
    kind: str
    kind_name: str
    text: str
    name: str = ""
    when: str = ""
    file: str = ""
    source: str = ""
    retries: int = 0
    groups: list[StepGroup] = field(default_factory=list)
    path: str = ""
    undo: "list[StepLine]" = field(default_factory=list)
    process: str = ""
    goes_on: bool = False
    item: str = ""

    @property
    def key(self) -> str:
        """Names it in the addresses of a page."""
        return self.path.replace("/", "-")


def outline(definition: Mapping[str, Any]) -> list[StepLine]:
    """The steps of a definition, a draft's mistakes included: what cannot be read is shown as it is."""
    return _lines(definition.get("steps"), "")


def after_failure(definition: Mapping[str, Any]) -> tuple[str, list[StepLine]]:
    """What follows when an execution fails: the process that is started, and the steps that run."""
    given = definition.get("on_failure")
    if not isinstance(given, Mapping):
        return "", []
    return str(given.get("process") or ""), _lines(given.get("steps"), AFTER_FAILURE)


def every_line(lines: Iterable[StepLine]) -> Iterator[StepLine]:
    """All steps of an outline, outer before inner, what undoes a step behind it."""
    for line in lines:
        yield line
        for group in line.groups:
            yield from every_line(group.steps)
        yield from every_line(line.undo)


def _lines(steps: Any, above: str) -> list[StepLine]:
    return [_line(step, above) for step in steps if isinstance(step, Mapping)] if isinstance(steps, list) else []


def _line(step: Mapping[str, Any], above: str) -> StepLine:
    kind = next((name for name in KIND_NAMES if name in step), "")
    given = step.get(kind)
    settings: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    text = _SENTENCES.get(kind, _unknown)(settings)
    step_id = str(step.get("id", ""))
    path = f"{above}/{step_id}" if above else step_id
    return StepLine(
        step_id, kind, KIND_NAMES.get(kind, "Step"), text, str(step.get("name") or ""),
        _plain(step.get("when")), _file(kind, settings), str(settings.get("source", "")) if kind == "code" else "",
        _retries(step.get("retry")), _groups(kind, given, path), path,
        _undo(step, path), str(settings.get("use", "")) if kind == "process" else "", bool(step.get("continue_on_error")),
        str(settings.get("as", "item")) if kind == "for_each" else "",
    )  # fmt: skip


def _retries(given: Any) -> int:
    """How often a step is tried again at most, by whichever of its policies."""
    policies = given if isinstance(given, list) else [given]
    attempts = [each.get("max_attempts", 1) for each in policies if isinstance(each, Mapping)]
    return max([0, *(each - 1 for each in attempts if isinstance(each, int))])


def _undo(step: Mapping[str, Any], path: str) -> list[StepLine]:
    """The steps that undo a step; a single one needs no id of its own."""
    given = step.get("undo")
    if isinstance(given, Mapping):
        given = [{"id": f"undo_{step.get('id')}"[:63], **given}]
    return _lines(given, f"{path}/undo")


def _plain(expression: Any) -> str:
    """An expression without its equals sign."""
    return expression.removeprefix("=").strip() if isinstance(expression, str) else ""


def _file(kind: str, settings: Mapping[str, Any]) -> str:
    name = settings.get("file") if kind == "code" else settings.get("decision") if kind == "rule" else None
    return name if isinstance(name, str) else ""


def _groups(kind: str, given: Any, path: str) -> list[StepGroup]:
    if kind == "for_each" and isinstance(given, Mapping):
        return [StepGroup("", _lines(given.get("steps"), path))]
    if kind == "parallel" and isinstance(given, Mapping):
        return [StepGroup(str(name), _lines(steps, path)) for name, steps in given.items()]
    if kind != "branch" or not isinstance(given, list):
        return []
    options = [option for option in given if isinstance(option, Mapping)]
    return [StepGroup(_condition(option.get("when")), _lines(option.get("steps"), path)) for option in options]


def _condition(when: Any) -> str:
    return f"when {_plain(when)}" if when else "otherwise"


def _rule(settings: Mapping[str, Any]) -> str:
    if "expression" in settings:
        return f"Compute {_plain(settings['expression'])}"
    decision = settings.get("decision")
    return f"Decide by {decision}" if isinstance(decision, str) else "Decide by a table"


def _code(settings: Mapping[str, Any]) -> str:
    language = _LANGUAGES.get(str(settings.get("language")), "code")
    return f"Run {settings['file']} ({language})" if settings.get("file") else f"Run {language}"


def _integration(settings: Mapping[str, Any]) -> str:
    return f"Call {settings.get('action', '?')} of {settings.get('use', '?')}"


def _data(settings: Mapping[str, Any]) -> str:
    collection = settings.get("collection", "")
    verb = next((text for name, text in _DATA_VERBS.items() if name in settings), "")
    return f"{verb} {collection}" if verb else "Change several entities at once"


def _for_each(settings: Mapping[str, Any]) -> str:
    at_once = settings.get("concurrency", 1)
    suffix = f", {at_once} at once" if at_once != 1 else ""
    return f"For each {settings.get('as', 'item')} of {_plain(settings.get('items')) or 'a list'}{suffix}"


def _wait(settings: Mapping[str, Any]) -> str:
    if "event" in settings:
        within = f", at most {settings['timeout']}" if settings.get("timeout") else ""
        return f"Wait for the event {_plain(settings['event'])}{within}"
    return f"Wait until {_plain(settings['until'])}" if "until" in settings else f"Wait for {settings.get('for', '?')}"


def _branch(settings: Mapping[str, Any]) -> str:
    return "Take the first branch that applies"


def _parallel(settings: Mapping[str, Any]) -> str:
    return f"Do {len(settings)} things side by side" if len(settings) != 1 else "Do one thing"


def _stop(settings: Mapping[str, Any]) -> str:
    return "End the execution here"


def _human(settings: Mapping[str, Any]) -> str:
    asked = {"approval": "Ask for approval", "choice": "Ask for a choice"}.get(str(settings.get("kind")), "Ask a person")
    return f"{asked}: {_plain(settings.get('title')) or '?'}"


def _process(settings: Mapping[str, Any]) -> str:
    name = settings.get("use", "?")
    return f"Start {name}" if settings.get("wait") is False else f"Execute {name} and wait for it"


def _llm(settings: Mapping[str, Any]) -> str:
    return f"Ask the model of {settings.get('profile', '?')}"


def _agent(settings: Mapping[str, Any]) -> str:
    within = f", at most {settings['timeout']}" if settings.get("timeout") else ""
    return f"Have the agent {settings.get('use', '?')} do it, and wait for its answer{within}"


def _file_step(settings: Mapping[str, Any]) -> str:
    form = str(settings.get("format", "")).upper()
    target = settings.get("to") if isinstance(settings.get("to"), Mapping) else {}
    goes = f" into {target.get('collection', '?')}" if target else " into a document" if "as" in settings else ""
    sentences = {
        "parse": f"Read {form or 'a document'}{goes}", "write": f"Write {form or '?'}", "convert": f"Convert to {form or '?'}",
        "zip": "Pack documents into an archive", "unzip": "Unpack an archive",
    }  # fmt: skip
    return sentences.get(str(settings.get("operation")), "Work on a file")


def _ocr(settings: Mapping[str, Any]) -> str:
    return "Recognise the text of a scan"


def _unknown(settings: Mapping[str, Any]) -> str:
    return "A step that cannot be read; validate the draft"


_SENTENCES = {
    "rule": _rule, "code": _code, "integration": _integration, "datapool": _data, "for_each": _for_each, "wait": _wait,
    "branch": _branch, "parallel": _parallel, "stop": _stop, "human": _human, "process": _process,
    "llm": _llm, "agent": _agent, "file": _file_step, "ocr": _ocr,
}  # fmt: skip


def grants_of(definition: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the process may reach, as (name, what) pairs."""
    grants = definition.get("grants")
    if not isinstance(grants, Mapping):
        return []
    found = []
    for kind in ("integrations", "datapool"):
        members = grants.get(kind)
        for name, what in members.items() if isinstance(members, Mapping) else ():
            allowed = "every action" if what == "*" else ", ".join(map(str, what)) if isinstance(what, list) else str(what)
            found.append((str(name), allowed))
    for kind, what in (("processes", "execute"), ("secrets", "read the secret"), ("llm", "ask the model")):
        names = grants.get(kind)
        found += [(str(name), what) for name in names] if isinstance(names, list) else []
    return [*found, ("people", "ask")] if grants.get("human") is True else found
