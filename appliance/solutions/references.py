"""What a process refers to that a solution may contain: integrations, collections, agents and other processes; pure."""

from collections.abc import Iterator

from appliance.processes.definitions import Definition

Name = tuple[str, str]


def list_references(definition: Definition) -> frozenset[Name]:
    """(kind, name) of everything that its steps, triggers and grants refer to."""
    return frozenset(_by_steps(definition)) | frozenset(_by_grants(definition)) | frozenset(_by_triggers(definition))


def list_secrets(definition: Definition) -> frozenset[str]:
    """The secrets that its triggers need to verify requests."""
    verified = (trigger.settings.get("verify", {}).get("secret") for trigger in definition.triggers)
    return frozenset(name for name in verified if name)


def _by_steps(definition: Definition) -> Iterator[Name]:
    if definition.on_failure.process:
        yield "process", definition.on_failure.process
    for step in definition.all_steps():
        if step.kind == "integration":
            yield "integration", step.settings["use"]
        elif step.kind == "datapool" and step.settings["collection"]:
            yield "collection", step.settings["collection"]
        elif step.kind == "process":
            yield "process", step.settings["use"]
        elif step.kind == "agent":
            yield "agent", step.settings["use"]
        elif step.kind == "file" and "to" in step.settings:
            yield "collection", step.settings["to"]["collection"]


def _by_grants(definition: Definition) -> Iterator[Name]:
    for grants in (definition.grants, *(step.grants for step in definition.all_steps() if step.grants)):
        yield from (("integration", slug) for slug in grants.integrations)
        yield from (("collection", name) for name in grants.datapool)
        yield from (("process", name) for name in grants.processes)


def _by_triggers(definition: Definition) -> Iterator[Name]:
    for trigger in definition.triggers:
        if trigger.kind == "datapool":
            yield "collection", trigger.settings["collection"]
        elif trigger.kind == "integration":
            yield "integration", trigger.settings["use"]
        elif trigger.kind == "process":
            yield from (("process", name) for name in trigger.sources)
