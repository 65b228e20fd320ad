"""Renders templates: the Jinja environment, its filters and globals, and the frame around every page."""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import pass_context
from markupsafe import Markup

from appliance.core import texts
from appliance.core.config import Config
from appliance.governance.approvals import approvals
from appliance.quotas import notices
from appliance.tenants import people
from appliance.tenants.grants import count_open

from . import formatting
from .menu import menu_for, title_of
from .routing import ConsoleRequest, Page, Visit
from .templates import Templates

MENUS = 256  # remembered after they were rendered


class Renderer:
    """Turns pages into HTML."""

    def __init__(self, templates: Path, static: Path, config: Config) -> None:
        self._static = static
        self._config = config
        self._digests: dict[str, str] = {}
        self._folder = str(templates)
        self._by_language: dict[texts.Language, Templates] = {}
        # The same on almost every page; the language of rendering is part of the key.
        self._menu, self._shortcuts = lru_cache(MENUS)(self._render_menu), lru_cache(MENUS)(self._render_shortcuts)

    @property
    def _templates(self) -> Templates:
        """The templates in the current language."""
        language = texts.current_language()
        if (templates := self._by_language.get(language)) is None:
            templates = Templates(self._folder)
            templates.filters.update({name: _as_context_filter(formatter) for name, formatter in formatting.FILTERS.items()})
            templates.globals |= {"asset": self._asset, "phrases": formatting.phrases}
            templates = self._by_language.setdefault(language, templates)
        return templates

    def _asset(self, name: str) -> str:
        """URL of a static file; it contains a digest of the content, so that browsers can cache it forever."""
        if name not in self._digests:
            self._digests[name] = hashlib.sha256((self._static / name).read_bytes()).hexdigest()[:12]
        return f"/static/{name}?v={self._digests[name]}"

    def render(self, page: Page, request: ConsoleRequest, visit: Visit | None) -> str:
        """The HTML of a page; with a visit, in the frame of the tenant's console (menu and tenant switcher)."""
        values: dict[str, Any] = {
            "request": request, "request_id": request.request_id, "visit": visit, "menu": "", "shortcuts": "", "section_title": "",
            "counts": {}, "quota_notice": "", "tenants": [], "tenant_name": request.tenant or "", "tenant": request.tenant or "",
            "base_host": self._config.domains.base, **page.values,
        }  # fmt: skip
        if visit is not None and not request.is_fragment:
            values |= self._frame(visit)
        return self._templates.get_template(f"console/{page.template}").render(values)

    def _frame(self, visit: Visit) -> dict[str, Any]:
        """Values for the frame of a page: the menu with its badges, the shortcuts, and the tenants to switch to."""
        mine = people.tenants_of(visit.person.user_id)
        section, language = [*visit.request.path.split("/"), "", ""][2], texts.current_language().tag
        counts = _waiting_counts(visit)
        return {
            "menu": self._menu(language, visit.scope.scopes, section, tuple(counts.items())),
            "counts": counts,
            "shortcuts": self._shortcuts(language, visit.scope.scopes),
            "section_title": title_of(section, visit.scope.scopes),
            "quota_notice": _quota_notice(visit.scope.tenant_id) if section != "quotas" else "",
            "tenants": [(row, role, f"{self._config.tenant_url(row.id)}/console/") for row, role in mine],
            "tenant_name": next((row.name for row, _ in mine if row.id == visit.scope.tenant_id), visit.scope.tenant_id),
        }

    def _render_menu(self, _language: str, scopes: frozenset[str], section: str, counts: tuple[tuple[str, int], ...]) -> Markup:
        values = {"menu": menu_for(scopes), "section": section, "counts": dict(counts)}
        return Markup(self._templates.get_template("console/menu.html").render(values))  # noqa: S704  # a template's output

    def _render_shortcuts(self, _language: str, scopes: frozenset[str]) -> Markup:
        template = self._templates.get_template("console/shortcuts.html")
        return Markup(template.render({"menu": menu_for(scopes)}))  # noqa: S704  # a template's output


def _waiting_counts(visit: Visit) -> dict[str, int]:
    """The numbers of items that wait for this person, by menu section."""
    counts = {"approvals": approvals.count_decidable(visit.scope, visit.person)} if visit.may("approvals.read") else {}
    return counts | ({"confirmations": count_open(visit.scope)} if visit.may("keys.read") else {})


def _quota_notice(tenant_id: str) -> str:
    """Which notice about the tenant's quotas stands above every page: `expired`, `expiring`, `near` or none."""
    names = set(notices.list_current(tenant_id)) - {"concurrent_executions"}  # those wait, and are not refused
    return next((each for each in ("expired", "expiring") if each in names), "near" if names else "")


def _as_context_filter(formatter: Callable[..., Any]) -> Callable[..., Any]:
    """A template filter whose result depends on the language.

    Taking the context keeps Jinja from evaluating the filter at compile time, when no language is set.
    """

    @pass_context
    def show(_: Any, *args: Any, **kwargs: Any) -> Any:
        return formatter(*args, **kwargs)

    return show
