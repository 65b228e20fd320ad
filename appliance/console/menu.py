"""The console's navigation: groups of sections, each with the scope it needs, its picture and its key after `g`."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """`name` is the first segment of the path under /console; `scope` None means every member."""

    name: str
    text: str
    scope: str | None
    picture: str
    key: str


@dataclass(frozen=True)
class Group:
    """Sections that one looks for together."""

    title: str
    sections: tuple[Section, ...]


MENU = (
    Group("", (
        Section("", "Home", None, "home", "h"),
    )),
    Group("Operate", (
        Section("executions", "Executions", "processflow.read", "execution", "e"),
        Section("approvals", "Approvals", "approvals.read", "approval", "a"),
        Section("monitor", "Monitor", "logs.read", "chart", "m"),
        Section("failures", "Failures", "logs.read", "failure", "f"),
        Section("logs", "Logs", "logs.read", "log", "l"),
        Section("alerts", "Alerts", "logs.read", "bell", "n"),
    )),
    Group("Build", (
        Section("processes", "Processes", "processflow.read", "process", "p"),
        Section("datapool", "DataPool", "entities.read", "collection", "d"),
        Section("integrations", "Integrations", "integrations.read", "integration", "i"),
        Section("documents", "Documents", "documents.read", "document", "o"),
        Section("webapps", "WebApps", "webapps.read", "webapp", "w"),
        Section("agents", "Agents", "agents.read", "agent", "t"),
        Section("skills", "Skills", "skills.read", "skill", "s"),
    )),
    Group("Govern", (
        Section("policies", "Policies", "policies.read", "policy", "c"),
        Section("kill-switches", "Kill switches", "integrations.read", "switch", "x"),
        Section("audit", "Audit", "logs.read", "audit", "y"),
    )),
    Group("Settings", (
        Section("people", "People", "keys.read", "people", "u"),
        Section("keys", "API keys", "keys.read", "key", "k"),
        Section("about", "About", None, "about", "b"),
    )),
)  # fmt: skip


def menu_for(may: Callable[[str], bool]) -> list[Group]:
    """The groups with what somebody with these scopes may open; a group of nothing is left out."""
    groups = [Group(each.title, tuple(one for one in each.sections if one.scope is None or may(one.scope))) for each in MENU]
    return [each for each in groups if each.sections]
