"""The appliance itself: what it runs on, and for those who run it its configuration."""

import importlib.metadata
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from appliance.console.frame.routing import Answer, Page, Visit, page
from appliance.core import clock, migrations
from appliance.core.config_view import shown_settings
from appliance.core.database import db
from appliance.core.errors import ScopeMissing
from appliance.core.texts import gettext as _

from .about import DISTRIBUTION

_STARTED = clock.now_ms()
_AT = "/appliance"


@dataclass(frozen=True)
class Package:
    """A library the appliance runs on; its licence in its own words, nothing where only its files tell."""

    name: str
    version: str
    licence: str


def is_administrator(visit: Visit) -> bool:
    """Whether the visitor is one of those who run the appliance."""
    return visit.person.login in visit.services.config.console.administrators


def require_administrator(visit: Visit) -> None:
    """ScopeMissing for whoever does not run the appliance."""
    if not is_administrator(visit):
        raise ScopeMissing(
            "this page is for those who run the appliance; whoever does may name your login in console.administrators of its "
            "configuration"
        )


@page("GET", _AT, scope="logs.read")
def show_appliance(visit: Visit) -> Answer:
    """Versions, database, connectors and licences: what support asks for."""
    values = {
        "version": importlib.metadata.version(DISTRIBUTION), "python": platform.python_version(), "machine": platform.machine(),
        "database": _database(), "schema": len(migrations.all_migrations()), "pending": migrations.pending(),
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
    """Every library that is installed beside the appliance; read once, it does not change while it runs."""
    found = {each.name: each for each in importlib.metadata.distributions() if each.name}
    return tuple(Package(name, found[name].version, _licence(found[name])) for name in sorted(found, key=str.lower))


def _licence(package: importlib.metadata.Distribution) -> str:
    """By its metadata, in its own words."""
    return next(_licences(package), "")[:80]


def _licences(package: importlib.metadata.Distribution) -> Iterator[str]:
    says = package.metadata.get_all
    yield from says("License-Expression", [])
    yield from (name.rpartition(" :: ")[2] for name in says("classifier", []) if name.lower().startswith("license :: "))
    yield from (text.splitlines()[0] for text in says("license", []) if text.strip())


@page("GET", f"{_AT}/configuration", scope=None)
def show_configuration(visit: Visit) -> Answer:
    """Every setting in effect and where it is from, secrets hidden."""
    require_administrator(visit)
    shown = shown_settings(visit.services.config)
    changed = visit.asked.args.get("show") != "all"
    kept = {section: [each for each in settings if not changed or each.origin != "default"] for section, settings in shown.items()}
    return Page("configuration.html", {"sections": {name: rows for name, rows in kept.items() if rows}, "changed": changed})
