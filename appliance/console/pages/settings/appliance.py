"""Pages of the appliance itself: versions and libraries, and for administrators its configuration."""

import importlib.metadata
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from appliance import migrations
from appliance.console.frame.routing import Answer, Page, Visit, page
from appliance.core import clock
from appliance.core.config.view import list_settings
from appliance.core.database import db
from appliance.core.errors import ScopeMissing
from appliance.core.texts import gettext as _

from .about import DISTRIBUTION

_STARTED = clock.now_ms()
_AT = "/appliance"


@dataclass(frozen=True)
class Package:
    """An installed library; `licence` is taken from its metadata, empty when the metadata has none."""

    name: str
    version: str
    licence: str


def is_administrator(visit: Visit) -> bool:
    """Whether the visitor is listed in `console.administrators` of the configuration."""
    return visit.person.login in visit.services.config.console.administrators


def require_administrator(visit: Visit) -> None:
    """ScopeMissing unless the visitor is an administrator of the appliance."""
    if not is_administrator(visit):
        raise ScopeMissing(
            "this page is for administrators of the appliance; its operator can add your login to `console.administrators` in the "
            "configuration"
        )


@page("GET", _AT, scope="logs.read")
def show_appliance(visit: Visit) -> Answer:
    """Versions, database, connectors and licences, as needed for support."""
    values = {
        "version": importlib.metadata.version(DISTRIBUTION), "python": platform.python_version(), "machine": platform.machine(),
        "database": _database(), "schema": migrations.last_number(), "pending": migrations.pending(),
        "started": _STARTED, "up_ms": clock.now_ms() - _STARTED, "packages": _packages(),
        "connectors": visit.services.integrations.registry.installed, "runs_it": is_administrator(visit),
        "wasmtime": importlib.metadata.version("wasmtime"),
    }  # fmt: skip
    return Page("appliance.html", values)


def _database() -> str:
    if db.is_sqlite():
        return f"SQLite {db.rows('SELECT sqlite_version()')[0][0]}"
    return _("PostgreSQL %(version)s", version=str(db.rows("SHOW server_version")[0][0]).split(" ")[0])


@cache
def _packages() -> tuple[Package, ...]:
    """Every installed library; read once, because the installation does not change while the appliance runs."""
    distributions = {each.name: each for each in importlib.metadata.distributions() if each.name}
    ordered = [distributions[name] for name in sorted(distributions, key=str.lower)]
    return tuple(Package(each.name, each.version, _licence(each)) for each in ordered)


def _licence(package: importlib.metadata.Distribution) -> str:
    """The licence that the package's metadata names, or empty."""
    return next(_licences(package), "")[:80]


def _licences(package: importlib.metadata.Distribution) -> Iterator[str]:
    says = package.metadata.get_all
    yield from says("License-Expression", [])
    yield from (name.rpartition(" :: ")[2] for name in says("classifier", []) if name.lower().startswith("license :: "))
    yield from (text.splitlines()[0] for text in says("license", []) if text.strip())


@page("GET", f"{_AT}/configuration", scope=None)
def show_configuration(visit: Visit) -> Answer:
    """Every effective setting with its origin; secrets are hidden."""
    require_administrator(visit)
    all_settings = list_settings(visit.services.config)
    changed = visit.request.args.get("show") != "all"
    visible = {
        section: [each for each in settings if not changed or each.origin != "default"]
        for section, settings in all_settings.items()
    }
    return Page("configuration.html", {"sections": {name: rows for name, rows in visible.items() if rows}, "changed": changed})
