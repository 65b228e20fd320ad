"""The outline of a definition: a nested list of its steps, each described in a sentence."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from appliance.core.texts import gettext as _
from appliance.core.texts import mark, ngettext
from appliance.processes.definitions import AFTER_FAILURE

KIND_NAMES: Mapping[str, str] = {
    "rule": mark("Rule"), "code": mark("Code"), "integration": mark("Integration"), "datapool": mark("DataPool"),
    "branch": mark("Branch"), "for_each": mark("For each"), "parallel": mark("Parallel"), "wait": mark("Wait"),
    "stop": mark("Stop"), "human": mark("Person"), "process": mark("Process"), "llm": mark("Model"), "agent": mark("Agent"),
    "file": mark("File"), "ocr": "OCR",
}  # fmt: skip
_LANGUAGES = {"typescript": mark("TypeScript"), "javascript": mark("JavaScript"), "php": "PHP"}
_DATA_SENTENCES = {
    "create": mark("Create an entity in %(collection)s"), "update": mark("Update an entity in %(collection)s"),
    "upsert": mark("Create or update an entity in %(collection)s"), "delete": mark("Delete an entity from %(collection)s"),
    "find": mark("Find an entity in %(collection)s"), "query": mark("Query %(collection)s"),
}  # fmt: skip


@dataclass(frozen=True)
class StepGroup:
    """A group of nested steps; `title` says when they run."""

    title: str
    steps: "list[StepLine]"


@dataclass(frozen=True)
class StepLine:
    """One step: `text` describes it, `name` is the builder's name for it, `file` holds its code, `when` is its condition.

    `path` joins the ids of the enclosing steps, as in executions; `undo` are its undo steps; `process` is the process that it
    starts; `goes_on` means that the process continues if it fails; `item` is the name of the current item in a for_each.
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
        """The id of the step in URLs and on the page."""
        return self.path.replace("/", "-")


def build_outline(definition: Mapping[str, Any]) -> list[StepLine]:
    """The steps of a definition, which may be an invalid draft: unreadable steps are listed as such."""
    return _lines(definition.get("steps"), "")


def after_failure(definition: Mapping[str, Any]) -> tuple[str, list[StepLine]]:
    """The failure handling of a definition: the process to start (or empty) and the steps to run."""
    settings = definition.get("on_failure")
    if not isinstance(settings, Mapping):
        return "", []
    return str(settings.get("process") or ""), _lines(settings.get("steps"), AFTER_FAILURE)


def kind_name(kind: str) -> str:
    """The display name of a kind of step."""
    return _(KIND_NAMES[kind]) if kind in KIND_NAMES else kind


def every_line(lines: Iterable[StepLine]) -> Iterator[StepLine]:
    """All steps of an outline depth first; undo steps come after the step and its nested steps."""
    for line in lines:
        yield line
        for group in line.groups:
            yield from every_line(group.steps)
        yield from every_line(line.undo)


def _lines(steps: Any, above: str) -> list[StepLine]:
    return [_line(step, above) for step in steps if isinstance(step, Mapping)] if isinstance(steps, list) else []


def _line(step: Mapping[str, Any], above: str) -> StepLine:
    kind = next((name for name in KIND_NAMES if name in step), "")
    raw = step.get(kind)
    settings: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
    text = _SENTENCES.get(kind, _unknown)(settings)
    step_id = str(step.get("id", ""))
    path = f"{above}/{step_id}" if above else step_id
    return StepLine(
        id=step_id, kind=kind, kind_name=_(KIND_NAMES.get(kind, mark("Step"))), text=text, name=str(step.get("name") or ""),
        when=_plain(step.get("when")), file=_file(kind, settings),
        source=str(settings.get("source", "")) if kind == "code" else "", retries=_retries(step.get("retry")),
        groups=_groups(kind, raw, path), path=path, undo=_undo(step, path),
        process=str(settings.get("use", "")) if kind == "process" else "", goes_on=bool(step.get("continue_on_error")),
        item=str(settings.get("as", "item")) if kind == "for_each" else "",
    )  # fmt: skip


def _retries(raw: Any) -> int:
    """The maximum number of retries of a step, over all its retry policies."""
    policies = raw if isinstance(raw, list) else [raw]
    attempts = [each.get("max_attempts", 1) for each in policies if isinstance(each, Mapping)]
    return max([0, *(each - 1 for each in attempts if isinstance(each, int))])


def _undo(step: Mapping[str, Any], path: str) -> list[StepLine]:
    """The undo steps of a step; a single one may omit its id."""
    raw = step.get("undo")
    if isinstance(raw, Mapping):
        raw = [{"id": f"undo_{step.get('id')}"[:63], **raw}]
    return _lines(raw, f"{path}/undo")


def _plain(expression: Any) -> str:
    """An expression without its leading equals sign."""
    return expression.removeprefix("=").strip() if isinstance(expression, str) else ""


def _file(kind: str, settings: Mapping[str, Any]) -> str:
    name = settings.get("file") if kind == "code" else settings.get("decision") if kind == "rule" else None
    return name if isinstance(name, str) else ""


def _groups(kind: str, raw: Any, path: str) -> list[StepGroup]:
    if kind == "for_each" and isinstance(raw, Mapping):
        return [StepGroup("", _lines(raw.get("steps"), path))]
    if kind == "parallel" and isinstance(raw, Mapping):
        return [StepGroup(str(name), _lines(steps, path)) for name, steps in raw.items()]
    if kind != "branch" or not isinstance(raw, list):
        return []
    options = [option for option in raw if isinstance(option, Mapping)]
    return [StepGroup(_condition(option.get("when")), _lines(option.get("steps"), path)) for option in options]


def otherwise() -> str:
    """The title of the branch that is taken when no condition applies."""
    return _("otherwise")


def _condition(when: Any) -> str:
    return _("when %(condition)s", condition=_plain(when)) if when else otherwise()


def _rule(settings: Mapping[str, Any]) -> str:
    if "expression" in settings:
        return _("Compute %(expression)s", expression=_plain(settings["expression"]))
    decision = settings.get("decision")
    return _("Decide with %(file)s", file=decision) if isinstance(decision, str) else _("Decide with a table")


def _code(settings: Mapping[str, Any]) -> str:
    language = _(_LANGUAGES.get(str(settings.get("language")), mark("code")))
    if settings.get("file"):
        return _("Run %(file)s (%(language)s)", file=settings["file"], language=language)
    return _("Run %(language)s", language=language)


def _integration(settings: Mapping[str, Any]) -> str:
    return _("Call %(action)s of %(integration)s", action=settings.get("action", "?"), integration=settings.get("use", "?"))


def _data(settings: Mapping[str, Any]) -> str:
    sentence = next((text for name, text in _DATA_SENTENCES.items() if name in settings), "")
    return _(sentence, collection=settings.get("collection", "")) if sentence else _("Change several entities at once")


def _for_each(settings: Mapping[str, Any]) -> str:
    item, items = settings.get("as", "item"), _plain(settings.get("items")) or _("a list")
    at_once = settings.get("concurrency", 1)
    if at_once == 1:
        return _("For each %(item)s of %(items)s", item=item, items=items)
    return _("For each %(item)s of %(items)s, %(count)s at a time", item=item, items=items, count=at_once)


def _wait(settings: Mapping[str, Any]) -> str:
    if "event" in settings:
        event, timeout = _plain(settings["event"]), settings.get("timeout")
        if timeout:
            return _("Wait up to %(timeout)s for the event %(event)s", event=event, timeout=timeout)
        return _("Wait for the event %(event)s", event=event)
    if "until" in settings:
        return _("Wait until %(time)s", time=_plain(settings["until"]))
    return _("Wait for %(duration)s", duration=settings.get("for", "?"))


def _branch(settings: Mapping[str, Any]) -> str:
    return _("Take the first branch that applies")


def _parallel(settings: Mapping[str, Any]) -> str:
    return ngettext("Run one branch", "Run %(num)s branches in parallel", len(settings))


def _stop(settings: Mapping[str, Any]) -> str:
    return _("End the execution here")


def _human(settings: Mapping[str, Any]) -> str:
    kind, title = settings.get("kind"), _plain(settings.get("title")) or "?"
    if kind == "approval":
        return _("Ask for approval: %(title)s", title=title)
    return _("Ask for a choice: %(title)s", title=title) if kind == "choice" else _("Ask a person: %(title)s", title=title)


def _process(settings: Mapping[str, Any]) -> str:
    name = settings.get("use", "?")
    return _("Start %(name)s", name=name) if settings.get("wait") is False else _("Run %(name)s and wait for the result", name=name)


def _llm(settings: Mapping[str, Any]) -> str:
    return _("Ask the model of %(profile)s", profile=settings.get("profile", "?"))


def _agent(settings: Mapping[str, Any]) -> str:
    agent, timeout = settings.get("use", "?"), settings.get("timeout")
    if timeout:
        return _("Run the agent %(agent)s and wait up to %(timeout)s for its answer", agent=agent, timeout=timeout)
    return _("Run the agent %(agent)s and wait for its answer", agent=agent)


def _file_step(settings: Mapping[str, Any]) -> str:
    form, operation = str(settings.get("format", "")).upper(), settings.get("operation")
    if operation == "parse":
        return _reading(settings, form or _("a document"))
    if operation == "write":
        return _("Write %(format)s", format=form or "?")
    if operation == "convert":
        return _("Convert to %(format)s", format=form or "?")
    sentences = {"zip": _("Pack documents into an archive"), "unzip": _("Unpack an archive")}
    return sentences.get(str(operation), _("Process a file"))


def _reading(settings: Mapping[str, Any], what: str) -> str:
    target = settings.get("to")
    if isinstance(target, Mapping) and target:
        return _("Read %(what)s into %(collection)s", what=what, collection=target.get("collection", "?"))
    return _("Read %(what)s into a document", what=what) if "as" in settings else _("Read %(what)s", what=what)


def _ocr(settings: Mapping[str, Any]) -> str:
    return _("Recognise text in a scan")


def _unknown(settings: Mapping[str, Any]) -> str:
    return _("Unreadable step. Validate the draft.")


_SENTENCES = {
    "rule": _rule, "code": _code, "integration": _integration, "datapool": _data, "for_each": _for_each, "wait": _wait,
    "branch": _branch, "parallel": _parallel, "stop": _stop, "human": _human, "process": _process,
    "llm": _llm, "agent": _agent, "file": _file_step, "ocr": _ocr,
}  # fmt: skip
