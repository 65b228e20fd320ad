"""Computes the access a process needs: its `grants`, those of its steps, and what steps and triggers use implicitly; pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from appliance.processes.definitions.definition import Definition, DefinitionProblems, Step, parse_definition
from appliance.processes.definitions.nodes import Grants, Trigger
from appliance.processes.steps.datapool import READS
from appliance.tenants.grants import AccessSpec, build_access_spec

EVERY_COLLECTION = "*"
Members = dict[str, Any]
_NOTHING = build_access_spec({})


def subject_of(process_id: str) -> str:
    """The subject under which grants of a process are stored."""
    return f"process:{process_id}"


def required_access(definition: Definition) -> AccessSpec:
    """Everything outside itself that an execution of this definition may access."""
    collected = _AccessCollector()
    collected.add_grants(definition.grants)
    for step in definition.all_steps():
        if step.grants is not None:
            collected.add_grants(step.grants)
        collected.add_step(step)
    if definition.on_failure.process is not None:
        collected.sets["processes"].add(definition.on_failure.process)
    for trigger in definition.triggers:
        collected.add_trigger(trigger)
    return build_access_spec({**collected.sets, **collected.maps, "human": collected.human, "on_documents": collected.on_documents})


def required_access_of_draft(definition: Mapping[str, Any], files: Mapping[str, str]) -> AccessSpec:
    """The access of a stored definition; empty when the definition is invalid, since it cannot run either."""
    try:
        return required_access(parse_definition(dict(definition), files))
    except DefinitionProblems:
        return _NOTHING


class _AccessCollector:
    """Collects the access of all parts of a definition."""

    def __init__(self) -> None:
        self.sets: defaultdict[str, set[str]] = defaultdict(set)
        self.maps: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.human = False
        self.on_documents = False

    def add_grants(self, grants: Grants) -> None:
        for slug, actions in grants.integrations.items():
            self.maps["integrations"][slug] |= actions
        for name, access in grants.datapool.items():
            self.maps["datapool"][name] |= access
        self.sets["documents"] |= grants.documents
        self.sets["processes"] |= grants.processes
        self.sets["secrets"] |= grants.secrets
        self.sets["llm"] |= grants.llm
        self.human = self.human or grants.human

    def add_step(self, step: Step) -> None:
        """Adds what a declarative step uses; such a step needs no grant besides itself."""
        settings = step.settings
        if step.kind == "integration":
            self.maps["integrations"][settings["use"]].add(settings["action"])
        elif step.kind == "datapool":
            self._add_operation(step)
        elif step.kind in ("file", "ocr"):
            self._add_documents(step)
        elif step.kind == "llm":
            self.sets["llm"].add(settings["profile"])
            if {"documents", "images"} & _argument_names(step):
                self.sets["documents"].add("read")
        elif step.kind == "agent":
            self.sets["agents"].add(settings["use"])
        elif step.kind == "process":
            self.sets["processes"].add(settings["use"])
        elif step.kind == "human":
            self.human = True

    def _add_operation(self, step: Step) -> None:
        operation = step.settings["operation"]
        access = "read" if operation in READS else "write"
        for collection in [step.settings["collection"]] if operation != "batch" else _collections_of_batch(step):
            self.maps["datapool"][collection].add(access)

    def _add_documents(self, step: Step) -> None:
        names = _argument_names(step)
        if step.kind == "ocr" or {"document", "documents"} & names:
            self.sets["documents"].add("read")
        if "to" in step.settings:
            self.maps["datapool"][step.settings["to"]["collection"]].add("write")
        elif step.kind == "file" and (step.settings["operation"] != "parse" or "as" in step.settings):
            self.sets["documents"].add("write")

    def add_trigger(self, trigger: Trigger) -> None:
        """Adds the events a trigger receives; a schedule receives none, a webhook at most needs its secret."""
        if trigger.kind == "integration":
            self.maps["on_integrations"][trigger.settings["use"]].add(trigger.settings["trigger"])
        elif trigger.kind == "datapool":
            self.sets["on_datapool"] |= set(trigger.sources)
        elif trigger.kind == "document":
            self.on_documents = True
        elif trigger.kind == "process":
            self.sets["on_processes"] |= set(trigger.sources)
        elif trigger.kind == "webhook" and (secret := trigger.settings["verify"].get("secret")):
            self.sets["webhook_secrets"].add(secret)


def _argument_names(step: Step) -> set[str]:
    """The step's arguments by name; when they come from one expression, every document argument is assumed."""
    template = step.templates.get("arguments")
    value = None if template is None else template.value
    return set(value) if isinstance(value, dict) else {"document", "documents", "images"}


def _collections_of_batch(step: Step) -> Iterable[str]:
    """The collections a batch writes to; `EVERY_COLLECTION` where an expression decides."""
    template = step.templates["arguments"]
    value = template.value.get("operations") if isinstance(template.value, dict) else template.value
    if not isinstance(value, list):
        return [EVERY_COLLECTION]
    names = [each.get("collection") if isinstance(each, dict) else None for each in value]
    return [name if isinstance(name, str) else EVERY_COLLECTION for name in names]
