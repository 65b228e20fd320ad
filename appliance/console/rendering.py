"""Templates: one environment, what every page may use, and the frame around it."""

import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from appliance.core.config import Config
from appliance.governance import approvals

from . import showing
from .routing import Asked, Page, Visit

# Sections of the menu: first segment of the path, its name, the scope it needs, its icon.
MENU = (
    ("processes", "Processes", "processflow.read", "process"),
    ("executions", "Executions", "processflow.read", "execution"),
    ("approvals", "Approvals", "approvals.read", "approval"),
    ("failures", "Failures", "logs.read", "failure"),
    ("logs", "Logs", "logs.read", "log"),
    ("datapool", "DataPool", "entities.read", "collection"),
    ("integrations", "Integrations", "integrations.read", "integration"),
    ("documents", "Documents", "documents.read", "document"),
    ("webapps", "WebApps", "webapps.read", "webapp"),
    ("agents", "Agents", "agents.read", "agent"),
    ("skills", "Skills", "skills.read", "skill"),
    ("policies", "Policies", "policies.read", "policy"),
    ("kill-switches", "Kill switches", "integrations.read", "switch"),
    ("keys", "API keys", "keys.read", "key"),
    ("about", "About", None, "about"),
)


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
        self._environment.filters.update(showing.FILTERS)
        self._environment.globals["asset"] = self._asset

    def _asset(self, name: str) -> str:
        """Address of a static file; it changes with the content, so that browsers may keep it."""
        if name not in self._digests:
            self._digests[name] = hashlib.sha256((self._static / name).read_bytes()).hexdigest()[:12]
        return f"/static/{name}?v={self._digests[name]}"

    def render(self, page: Page, asked: Asked, visit: Visit | None) -> str:
        """The HTML of a page; a visit gives it the frame of the tenant's console."""
        values: dict[str, Any] = {
            "asked": asked, "request_id": asked.request_id, "visit": visit, "menu": [], "section": "", "counts": {},
            "tenant": asked.tenant or "", "base_host": self._config.domains.base, **page.values,
        }  # fmt: skip
        if visit is not None:
            values["menu"] = [entry for entry in MENU if entry[2] is None or visit.may(entry[2])]
            values["section"] = [*asked.path.split("/"), "", ""][2]
            if visit.may("approvals.read") and not asked.is_fragment:
                values["counts"] = {"approvals": approvals.count_pending(visit.scope)}
        return self._environment.get_template(f"console/{page.template}").render(values)
