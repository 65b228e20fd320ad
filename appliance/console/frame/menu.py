"""The console's navigation: groups of sections, each with the scope it needs, its icon and its keyboard shortcut (`g`, key)."""

from dataclasses import dataclass

from appliance.core.texts import mark


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
    """Sections that the menu lists under one heading."""

    title: str
    sections: tuple[Section, ...]


MENU = (
    Group("", (
        Section("", mark("Home"), None, "home", "h"),
    )),
    Group(mark("Operate"), (
        Section("executions", mark("Executions"), "processflow.read", "execution", "e"),
        Section("approvals", mark("Approvals"), "approvals.read", "approval", "a"),
        Section("monitor", mark("Monitor"), "logs.read", "chart", "m"),
        Section("failures", mark("Failures"), "logs.read", "failure", "f"),
        Section("logs", mark("Logs"), "logs.read", "log", "l"),
        Section("alerts", mark("Alerts"), "logs.read", "bell", "n"),
    )),
    Group(mark("Build"), (
        Section("processes", mark("Processes"), "processflow.read", "process", "p"),
        Section("datapool", mark("DataPool"), "entities.read", "collection", "d"),
        Section("integrations", mark("Integrations"), "integrations.read", "integration", "i"),
        Section("llm-profiles", mark("LLM profiles"), "integrations.read", "llm", "r"),
        Section("documents", mark("Documents"), "documents.read", "document", "o"),
        Section("webapps", mark("WebApps"), "webapps.read", "webapp", "w"),
        Section("agents", mark("Agents"), "agents.read", "agent", "t"),
        Section("skills", mark("Skills"), "skills.read", "skill", "s"),
    )),
    Group(mark("Govern"), (
        Section("policies", mark("Policies"), "policies.read", "policy", "c"),
        Section("kill-switches", mark("Kill switches"), "integrations.read", "switch", "x"),
        Section("confirmations", mark("Confirmations"), "keys.read", "check", "q"),
        Section("audit", mark("Audit"), "logs.read", "audit", "y"),
    )),
    Group(mark("Settings"), (
        Section("settings", mark("Tenant"), None, "sliders", "z"),
        Section("people", mark("People"), "keys.read", "people", "u"),
        Section("keys", mark("API keys"), "keys.read", "key", "k"),
        Section("service-accounts", mark("Service accounts"), "keys.read", "code", "1"),
        Section("secrets", mark("Secrets"), "secrets.write", "lock", "v"),
        Section("quotas", mark("Quotas"), None, "chart", "j"),
        Section("about", mark("About"), None, "about", "b"),
    )),
)  # fmt: skip


def menu_for(scopes: frozenset[str]) -> list[Group]:
    """The menu without the sections whose scope is missing; empty groups are omitted."""
    groups = [Group(each.title, tuple(one for one in each.sections if _is_allowed(one, scopes))) for each in MENU]
    return [each for each in groups if each.sections]


def title_of(name: str, scopes: frozenset[str]) -> str:
    """The title of a section of the menu, untranslated; empty if the menu does not have it."""
    section = _SECTIONS.get(name)
    return section.text if section is not None and _is_allowed(section, scopes) else ""


def _is_allowed(section: Section, scopes: frozenset[str]) -> bool:
    return section.scope is None or section.scope in scopes


_SECTIONS = {section.name: section for group in MENU for section in group.sections}
