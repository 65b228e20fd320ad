"""What a process may reach: its `grants` and those of its steps, and what its steps and triggers reach by themselves; pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from appliance.processes.definitions.definition import Definition, DefinitionProblems, Step, parse_definition
from appliance.processes.definitions.nodes import Grants, Trigger
from appliance.processes.steps.datapool import READS
from appliance.tenants.grants import Reach, make_reach

EVERY_COLLECTION = "*"
Members = dict[str, Any]
_NOTHING = make_reach({})


def subject_of(process_id: str) -> str:
    """How a grant names a process."""
    return f"process:{process_id}"


def reach_of(definition: Definition) -> Reach:
    """Everything that an execution of this definition may reach outside of itself."""
    found = _Collected()
    found.add_grants(definition.grants)
    for step in definition.all_steps():
        if step.grants is not None:
            found.add_grants(step.grants)
        found.add_step(step)
    if definition.on_failure.process is not None:
        found.sets["processes"].add(definition.on_failure.process)
    for trigger in definition.triggers:
        found.add_trigger(trigger)
    return make_reach({**found.sets, **found.maps, "human": found.human, "on_documents": found.on_documents})


def reach_of_draft(definition: Mapping[str, Any], files: Mapping[str, str]) -> Reach:
    """The same of a stored definition; nothing where it cannot be read, for then nothing of it runs either."""
    try:
        return reach_of(parse_definition(dict(definition), files))
    except DefinitionProblems:
        return _NOTHING


class _Collected:
    """The union of what all parts of a definition reach."""

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
        """What a step reaches by itself: it is its own grant."""
        settings = step.settings
        if step.kind == "integration":
            self.maps["integrations"][settings["use"]].add(settings["action"])
        elif step.kind == "datapool":
            self._add_operation(step)
        elif step.kind in ("file", "ocr"):
            self._add_documents(step)
        elif step.kind == "llm":
            self.sets["llm"].add(settings["profile"])
            if {"documents", "images"} & _members_of(step):
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
        given = _members_of(step)
        if step.kind == "ocr" or {"document", "documents"} & given:
            self.sets["documents"].add("read")
        if "to" in step.settings:
            self.maps["datapool"][step.settings["to"]["collection"]].add("write")
        elif step.kind == "file" and (step.settings["operation"] != "parse" or "as" in step.settings):
            self.sets["documents"].add("write")

    def add_trigger(self, trigger: Trigger) -> None:
        """What a trigger hears of; a webhook and a schedule hear of nothing of the tenant's."""
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


def _members_of(step: Step) -> set[str]:
    """The members that a step was given, as far as they are written out; of a mere expression every one may come."""
    template = step.templates.get("arguments")
    value = None if template is None else template.value
    return set(value) if isinstance(value, dict) else {"document", "documents", "images"}


def _collections_of_batch(step: Step) -> Iterable[str]:
    """Those that a batch writes to where that is written out, else every one."""
    template = step.templates["arguments"]
    value = template.value.get("operations") if isinstance(template.value, dict) else template.value
    if not isinstance(value, list):
        return [EVERY_COLLECTION]
    names = [each.get("collection") if isinstance(each, dict) else None for each in value]
    return [name if isinstance(name, str) else EVERY_COLLECTION for name in names]
