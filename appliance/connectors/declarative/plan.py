"""The parsed form of a connector's file: templates are parsed, and paths are split into steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from appliance.connectors.contract import Action, Outcome, Trigger
from appliance.connectors.declarative.templates import Template

Steps = tuple[str | int, ...]


@dataclass(frozen=True)
class RequestPlan:
    """One HTTP request; `body` is a tree of templates, encoded as `body_kind`."""

    method: str
    path: Template
    query: Mapping[str, Any]
    headers: Mapping[str, Template]
    body_kind: Literal["none", "json", "form"]
    body: Any
    timeout_s: float | None


@dataclass(frozen=True)
class PagesPlan:
    """How to find the next page, and the limits on pages and items."""

    kind: str
    items: Steps
    next: Steps | None
    more: Steps | None
    size: int | None
    first: int
    max_pages: int
    max_items: Template | int


@dataclass(frozen=True)
class ErrorRule:
    """Maps responses with these statuses and values to an error."""

    statuses: frozenset[int]
    when: tuple[tuple[Steps, Any], ...]
    error_class: str
    message: Template
    outcome: Outcome | None
    retry_after_header: str | None


@dataclass(frozen=True)
class Auth:
    """Credentials; `kind` decides which members are used."""

    kind: str
    name: str
    first: Template
    second: Template


@dataclass(frozen=True)
class CheckPlan:
    """The request that tests the settings."""

    request: RequestPlan
    message: Template
    errors: tuple[ErrorRule, ...]


@dataclass(frozen=True)
class ActionPlan:
    """One action; `item` and `result` are trees of templates, or None."""

    action: Action
    request: RequestPlan
    pages: PagesPlan | None
    item: Any
    result: Any
    errors: tuple[ErrorRule, ...]


@dataclass(frozen=True)
class TriggerPlan:
    """One poll trigger; `key` and `cursor` are paths into an item, `shape` is a tree of templates or None."""

    trigger: Trigger
    request: RequestPlan
    newest: RequestPlan | None
    pages: PagesPlan
    shape: Any
    key: Steps
    cursor: Steps
    ascending: bool
    begin: str
    errors: tuple[ErrorRule, ...]


@dataclass(frozen=True)
class ConnectorPlan:
    """The whole file of a connector."""

    name: str
    title: str
    version: str
    tested_against: str
    settings: Mapping[str, Any]
    base_url: Template
    auth: Auth
    headers: Mapping[str, Template]
    query: Mapping[str, Any]
    timeout_s: float
    errors: tuple[ErrorRule, ...]
    check: CheckPlan
    actions: Mapping[str, ActionPlan]
    triggers: Mapping[str, TriggerPlan]
