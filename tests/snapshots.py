"""Writes what a refactoring must not change to files that can be compared: `.venv/bin/python -m tests.snapshots FOLDER`.

The OpenAPI document, the routes and pages, the help of every command, the tables on both databases, the public names for
plugins and tests, and the settings with their defaults.
"""

import argparse
import importlib
import inspect
import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from quart import Quart

from appliance import cli, migrations
from appliance.api import load_routes
from appliance.api.frame.docs import contract
from appliance.app import composition
from appliance.core.config.example import example
from appliance.core.database import db
from appliance.testing.running import make_config, start
from appliance.web import make_quart
from tests.store.cluster import running_cluster

PUBLIC = ("appliance.connectors.contract", "appliance.connectors.testing", "appliance.testing", "appliance.testing.plugin")
_COLUMNS = """
SELECT table_name, column_name, data_type, is_nullable, column_default FROM information_schema.columns
WHERE table_schema = 'public' ORDER BY table_name, ordinal_position
"""
_INDEXES = "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexdef"
_CONSTRAINTS = """
SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2
"""


def api_document() -> str:
    return json.dumps(contract(), indent=1, sort_keys=True)


def routes() -> str:
    """The declared routes, then the other rules of the web framework: pages, files and edges."""
    declared = sorted(f"{route.method} {route.path} {route.scope} {route.status} {route.name}" for route in load_routes())
    return "\n".join([*declared, "", *pages()])


def pages() -> list[str]:
    apps: list[Quart] = []
    recorded = patch.object(composition, "make_quart", lambda templates: _record_app(apps, templates))
    with tempfile.TemporaryDirectory() as folder, recorded:
        start(make_config(Path(folder))).stop()
    return sorted(f"{rule.rule} {','.join(sorted(rule.methods or ()))}" for rule in apps[0].url_map.iter_rules())


def _record_app(apps: list[Quart], templates: Path) -> Quart:
    apps.append(make_quart(templates))
    return apps[-1]


def commands() -> str:
    return "\n".join(_helps(cli.make_parser([])))


def _helps(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield parser.format_help()
    for action in parser._actions:  # argparse has no other way to a parser's commands
        if isinstance(action, argparse._SubParsersAction):
            for name in sorted(action.choices):
                yield from _helps(action.choices[name])


def tables_of_sqlite() -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gos.db"
        db.open_database(f"sqlite:///{path}")
        migrations.migrate()
        db.close_database()
        with sqlite3.connect(path) as connection:
            rows = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()
    return "\n".join(f"{kind} {name}: {sql}" for kind, name, sql in rows)


def tables_of_postgresql() -> str:
    with running_cluster() as cluster:
        cluster.emptied()
        rows = [row for query in (_COLUMNS, _INDEXES, _CONSTRAINTS) for row in cluster.execute(query, "test_1")]
    return "\n".join(" ".join(map(str, row)) for row in rows)


def public_names() -> str:
    """The names that plugins and tests of solutions import, with their parameters."""
    return "\n".join(line for module in PUBLIC for line in _names(module))


def _names(module: str) -> Iterator[str]:
    loaded = importlib.import_module(module)
    for name, value in sorted(vars(loaded).items()):
        here = getattr(value, "__module__", module) == module
        if not name.startswith("_") and here and not inspect.ismodule(value):
            yield f"{module}.{name} {_signature(value)}"


def _signature(value: Any) -> str:
    try:
        return str(inspect.signature(value)) if callable(value) else ""
    except ValueError:  # a class without one
        return ""


SNAPSHOTS: dict[str, Callable[[], str]] = {
    "openapi.json": api_document,
    "routes.txt": routes,
    "commands.txt": commands,
    "sqlite.sql": tables_of_sqlite,
    "postgresql.txt": tables_of_postgresql,
    "public.txt": public_names,
    "config.yaml": example,
}


def main() -> int:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    for name, make in SNAPSHOTS.items():
        (folder / name).write_text(make() + "\n", "utf-8")
        print(folder / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
