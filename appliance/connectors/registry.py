"""The registry of installed connectors, with a message for each one that cannot be used."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType

from appliance.connectors.contract import CONTRACT_VERSION, EFFECTS, Action, Connector, Trigger
from appliance.connectors.declarative.folder import Declared, read_folder
from appliance.core.json_schema import Schema, SchemaInvalid, compile_schema

GROUP = "appliance.connectors"
CONNECTORS = "connectors"
"""The folder of YAML files in the data folder."""
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
_ACTION_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LONGEST_NAME = 120
_MOST_DISCOVERED = 5000

_log = logging.getLogger(__name__)


class Unusable(Exception):
    """A plugin cannot be used; the message is a sentence that says why."""


@dataclass(frozen=True)
class Problem:
    """An installed plugin that cannot be used, and the reason."""

    name: str
    distribution: str
    message: str


@dataclass(frozen=True)
class Installed:
    """A usable connector with its compiled schemas."""

    connector: type[Connector]
    distribution: str

    @property
    def name(self) -> str:
        return self.connector.name

    @cached_property
    def settings(self) -> Schema:
        return compile_schema(self.connector.settings_schema)

    @cached_property
    def actions(self) -> Mapping[str, Action]:
        return MappingProxyType({action.name: action for action in self.connector.actions})

    @cached_property
    def inputs(self) -> Mapping[str, Schema]:
        return MappingProxyType({action.name: compile_schema(action.input) for action in self.connector.actions})

    @cached_property
    def outputs(self) -> Mapping[str, Schema]:
        return MappingProxyType({action.name: compile_schema(action.output) for action in self.connector.actions})

    def output_of(self, action: Action) -> Schema:
        """Return the action's output schema, compiled on each call for a discovered action."""
        return self.outputs.get(action.name) or compile_schema(action.output)

    def input_of(self, action: Action) -> Schema:
        """Return the action's input schema, compiled on each call for a discovered action."""
        return self.inputs.get(action.name) or compile_schema(action.input)

    @property
    def discovers(self) -> bool:
        """Whether integrations have discovered actions in addition to the declared ones."""
        return self.connector.discover is not Connector.discover

    @cached_property
    def triggers(self) -> Mapping[str, Trigger]:
        return MappingProxyType({trigger.name: trigger for trigger in self.connector.triggers})

    @cached_property
    def queries(self) -> Mapping[str, Schema]:
        return MappingProxyType({trigger.name: compile_schema(trigger.query) for trigger in self.connector.triggers})

    @cached_property
    def items(self) -> Mapping[str, Schema]:
        return MappingProxyType({trigger.name: compile_schema(trigger.item) for trigger in self.connector.triggers})


@dataclass(frozen=True)
class Registry:
    """The usable connectors by name, and the problems of the others."""

    installed: Mapping[str, Installed]
    problems: tuple[Problem, ...] = ()

    def find(self, name: str) -> Installed | None:
        """Return the connector of that name, None when it is not installed or not usable."""
        return self.installed.get(name)


def load_registry(points: Iterable[EntryPoint] | None = None, *, folder: Path | None = None) -> Registry:
    """Load every plugin of the entry point group, then the YAML files of `folder`.

    A connector that fails to load is listed as a problem and does not stop the appliance.
    """
    installed: dict[str, Installed] = {}
    problems: list[Problem] = []
    for point in sorted(points if points is not None else entry_points(group=GROUP), key=lambda p: p.name):
        distribution = _distribution_of(point)
        try:
            loaded = _load(point, distribution)
            _check_free(loaded.name, installed)
        except Unusable as finding:
            _log.warning("connector %s (%s) is not usable: %s", point.name, distribution, finding)
            problems.append(Problem(point.name, distribution, str(finding)))
        else:
            installed[loaded.name] = loaded
    _add_declared(folder, installed, problems)
    return Registry(MappingProxyType(installed), tuple(problems))


def load_connector(name: str) -> Installed | None:
    """Load the plugin of that name and no other; None if there is none that can be used, of which `load_registry` knows more."""
    for point in entry_points(group=GROUP, name=name):
        with suppress(Unusable):
            return _load(point, _distribution_of(point))
    return None


def connector_packages() -> list[str]:
    """The top-level packages of all plugins, usable or not, without importing them."""
    return sorted({point.module.partition(".")[0] for point in entry_points(group=GROUP)})


def _distribution_of(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "unknown"


def _add_declared(folder: Path | None, installed: dict[str, Installed], problems: list[Problem]) -> None:
    for declared in read_folder(folder) if folder is not None else ():
        distribution = f"{CONNECTORS}/{declared.file}"
        try:
            loaded = _declared(declared, distribution)
            _check_free(loaded.name, installed)
        except Unusable as finding:
            _log.warning("connector %s is not usable: %s", distribution, finding)
            problems.append(Problem(declared.name, distribution, str(finding)))
        else:
            installed[loaded.name] = loaded


def _declared(declared: Declared, distribution: str) -> Installed:
    if declared.connector is None:
        raise Unusable(declared.problem)
    loaded = Installed(declared.connector, distribution)
    if loaded.name != declared.name:
        raise Unusable(f"{declared.file} holds the connector {loaded.name}; name the file {loaded.name}.yaml.")
    try:
        check_declaration(loaded, declared.name)
    except Unusable as finding:
        raise Unusable(f"{declared.file}: {finding}") from finding
    return loaded


def _check_free(name: str, installed: Mapping[str, Installed]) -> None:
    if name in installed:
        raise Unusable(f"The name {name} is taken by {installed[name].distribution}.")


def _load(point: EntryPoint, distribution: str) -> Installed:
    try:
        connector = point.load()
    except (Exception, SystemExit) as error:  # a plugin's import may raise anything
        raise Unusable(f"It does not import: {type(error).__name__}: {error}. Reinstall it, or remove it.") from error
    if not (isinstance(connector, type) and issubclass(connector, Connector)):
        raise Unusable(f"{point.value} is not a Connector of appliance.connectors.contract.")
    version = getattr(connector, "contract_version", None)
    if version != CONTRACT_VERSION:
        raise Unusable(
            f"It is written for version {version} of the connector contract; this appliance speaks {CONTRACT_VERSION}."
            " Install a matching release."
        )
    loaded = Installed(connector, distribution)
    try:
        check_declaration(loaded, point.name)
    except Unusable:
        raise
    except (Exception, SystemExit) as error:  # a declaration of unexpected types may make any check raise
        raise Unusable(f"Its declaration is broken: {type(error).__name__}: {error}. Install a mended release.") from error
    return loaded


def check_declaration(installed: Installed, entry_name: str) -> None:
    """Check the names, effects and schemas of a connector class; Unusable with a message for the operator."""
    connector = installed.connector
    missing = [name for name in ("name", "title", "version", "settings_schema", "actions") if not hasattr(connector, name)]
    if missing:
        raise Unusable(f"{connector.__name__} does not declare {', '.join(missing)}.")
    if connector.__abstractmethods__:
        raise Unusable(f"{connector.__name__} does not implement {', '.join(sorted(connector.__abstractmethods__))}.")
    if connector.name != entry_name or not _NAME.fullmatch(connector.name):
        raise Unusable(f"Its name {connector.name!r} must be a slug and equal its entry point {entry_name!r}.")
    if len(connector.actions) == 0 and not installed.discovers:
        raise Unusable("Its actions must have distinct names, and there must be one.")
    _check_actions(connector.actions)
    triggers = [trigger.name for trigger in connector.triggers]
    if len(set(triggers)) != len(triggers) or not all(_ACTION_NAME.fullmatch(name) for name in triggers):
        raise Unusable("Its triggers must have distinct names of lower-case letters, digits and underscores.")
    _check_samples(installed)
    _check_triggers(installed)


def check_discovered(installed: Installed, actions: Sequence[Action]) -> None:
    """Check the actions that an integration discovered; Unusable with a message for the person who configures it."""
    if len(actions) > _MOST_DISCOVERED:
        raise Unusable(f"It found {len(actions)} actions; {_MOST_DISCOVERED} are the most.")
    _check_actions(actions)
    if duplicates := sorted(installed.actions.keys() & {action.name for action in actions}):
        raise Unusable(f"It found the action {duplicates[0]}, which it declares as well.")


def _check_actions(actions: Sequence[Action]) -> None:
    names = [action.name for action in actions]
    if len(set(names)) != len(names) or not all(len(name) <= _LONGEST_NAME and _ACTION_NAME.fullmatch(name) for name in names):
        raise Unusable("Its actions must have distinct names of lower-case letters, digits and underscores, not too long.")
    for action in actions:
        if action.effect not in EFFECTS:
            raise Unusable(f"Action {action.name} declares the effect {action.effect!r}; use one of {', '.join(EFFECTS)}.")
        for part, schema in (("input", action.input), ("output", action.output)):
            try:
                compile_schema(schema)
            except SchemaInvalid as error:
                raise Unusable(f"The {part} schema of action {action.name} is not usable: {error}.") from error


def _check_samples(installed: Installed) -> None:
    for action in installed.connector.actions:
        if problems := installed.inputs[action.name].problems(dict(action.sample)):
            raise Unusable(
                f"The sample of action {action.name} breaks its own schema at {problems[0].pointer or '/'}: {problems[0].message}"
            )
    try:
        compile_schema(installed.connector.settings_schema)
    except SchemaInvalid as error:
        raise Unusable(f"The settings schema is not usable: {error}.") from error


def _check_triggers(installed: Installed) -> None:
    for trigger in installed.connector.triggers:
        for part, schema in (("query", trigger.query), ("item", trigger.item)):
            try:
                compile_schema(schema)
            except SchemaInvalid as error:
                raise Unusable(f"The {part} schema of trigger {trigger.name} is not usable: {error}.") from error
        if problems := installed.queries[trigger.name].problems(dict(trigger.sample)):
            raise Unusable(
                f"The sample of trigger {trigger.name} breaks its own schema at {problems[0].pointer or '/'}: {problems[0].message}"
            )
