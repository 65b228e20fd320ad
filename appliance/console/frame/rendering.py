"""Templates: one environment, what every page may use, and the frame around it."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context

from appliance.console.pages.operate.approvals import count_mine
from appliance.core import texts
from appliance.core.config import Config
from appliance.tenants import people
from appliance.tenants.grants import count_open

from . import showing
from .menu import menu_for
from .routing import Asked, Page, Visit


class Renderer:
    """Turns pages into HTML."""

    def __init__(self, templates: Path, static: Path, config: Config) -> None:
        self._static = static
        self._config = config
        self._digests: dict[str, str] = {}
        self._environment = Environment(
            loader=FileSystemLoader(str(templates)),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        texts.teach(self._environment)
        self._environment.filters.update({name: _when_rendered(shown) for name, shown in showing.FILTERS.items()})
        self._environment.globals |= {"asset": self._asset, "phrases": showing.phrases}

    def _asset(self, name: str) -> str:
        """Address of a static file; it changes with the content, so that browsers may keep it."""
        if name not in self._digests:
            self._digests[name] = hashlib.sha256((self._static / name).read_bytes()).hexdigest()[:12]
        return f"/static/{name}?v={self._digests[name]}"

    def render(self, page: Page, asked: Asked, visit: Visit | None) -> str:
        """The HTML of a page; a visit gives it the frame of the tenant's console."""
        values: dict[str, Any] = {
            "asked": asked, "request_id": asked.request_id, "visit": visit, "menu": [], "section": "", "counts": {}, "tenants": [],
            "tenant_name": asked.tenant or "",
            "tenant": asked.tenant or "", "base_host": self._config.domains.base, **page.values,
        }  # fmt: skip
        if visit is not None:
            values["section"] = [*asked.path.split("/"), "", ""][2]
            if not asked.is_fragment:
                values |= self._frame(visit)
        return self._environment.get_template(f"console/{page.template}").render(values)

    def _frame(self, visit: Visit) -> dict[str, Any]:
        """What stands around a page: the menu, what waits in it, and the tenants one can change to."""
        mine = people.tenants_of(visit.person.user_id)
        return {
            "menu": menu_for(visit.may),
            "counts": _counts(visit),
            "tenants": [(row, role, f"{self._config.tenant_url(row.id)}/console/") for row, role in mine],
            "tenant_name": next((row.name for row, _ in mine if row.id == visit.scope.tenant_id), visit.scope.tenant_id),
        }


def _counts(visit: Visit) -> dict[str, int]:
    """What waits, by the section of the menu."""
    found = {"approvals": count_mine(visit.scope, visit.person)} if visit.may("approvals.read") else {}
    return found | ({"confirmations": count_open(visit.scope)} if visit.may("keys.read") else {})


def _when_rendered(shown: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose answer depends on the language: asked for the context, Jinja does not work it out when it compiles."""

    @pass_context
    def show(_: Any, *args: Any, **named: Any) -> Any:
        return shown(*args, **named)

    return show
