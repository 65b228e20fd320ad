"""Allowed imports: private modules of a domain, and the contract, the only module for plugins."""

import ast
from pathlib import Path

import grimp
import pytest

from tests.architecture.source_tree import ROOT, imported_modules, offences_in, python_files, tree_of

# A domain is entered by its service. Further importers of a module with this name, beside its own package and `app`:
PRIVATE_MODULES: dict[str, set[str]] = {
    "models": set(),
    "tasks": set(),
    "engine.decide": set(),
    "engine.runner": set(),
    "calls": {"appliance.governance"},  # the only way to a foreign system
}
PLUGIN_MAY_IMPORT = "appliance.connectors.contract"
PLUGIN_TESTS_MAY_IMPORT = (PLUGIN_MAY_IMPORT, "appliance.connectors.testing", "appliance.connectors.suites")
# `ssl` is none of them: a connector wraps the socket that `ctx.dial` has opened.
SOCKET_OPENERS = (
    {"socket", "socketserver", "http", "urllib.request", "ftplib", "smtplib", "imaplib", "poplib", "nntplib", "telnetlib"}
    | {"xmlrpc", "asyncio", "asyncore", "asynchat", "multiprocessing", "subprocess"}
    | {"httpx", "httpcore", "requests", "urllib3", "httplib2", "aiohttp", "pycurl", "websocket", "websockets", "anyio", "trio"}
)


def is_inside(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def find_private_imports(graph: grimp.ImportGraph) -> list[str]:
    """Imports of another domain's private modules, as `importer -> imported`."""
    offences = []
    for module in graph.modules:
        parts = module.split(".")
        name = ".".join(parts[2:])
        if parts[1:2] == ["core"] or name not in PRIVATE_MODULES:
            continue
        allowed = {".".join(parts[:2]), "appliance.app"} | PRIVATE_MODULES[name]
        importers = graph.find_modules_that_directly_import(module)
        offences += [f"{each} -> {module}" for each in importers if not any(is_inside(each, package) for package in allowed)]
    return sorted(offences)


def find_foreign_imports(tree: ast.AST, allowed: tuple[str, ...]) -> list[str]:
    """Imports of other modules of the appliance, and of libraries that open connections."""
    offences = []
    for line, name in imported_modules(tree):
        from_appliance = is_inside(name, "appliance") and not any(is_inside(name, module) for module in allowed)
        if from_appliance or any(is_inside(name, module) for module in SOCKET_OPENERS):
            offences.append(f"line {line} imports {name}")
    return offences


def plugin_files(*, tests: bool) -> list[Path]:
    return [path for path in python_files("plugins") if ("tests" in path.relative_to(ROOT).parts) == tests]


def test_a_domain_is_entered_by_its_service() -> None:
    assert find_private_imports(grimp.build_graph("appliance", cache_dir=None)) == []


def test_an_import_of_another_domains_models_is_found() -> None:
    graph = grimp.ImportGraph()
    for module in ("appliance.app", "appliance.api.tenants.keys", "appliance.tenants.service", "appliance.tenants.models"):
        graph.add_module(module)
    for importer in ("appliance.app", "appliance.api.tenants.keys", "appliance.tenants.service"):
        graph.add_import(importer=importer, imported="appliance.tenants.models")
    assert find_private_imports(graph) == ["appliance.api.tenants.keys -> appliance.tenants.models"]


def test_a_plugin_knows_the_contract_and_opens_no_connection() -> None:
    assert offences_in(plugin_files(tests=False), lambda path: find_foreign_imports(tree_of(path), (PLUGIN_MAY_IMPORT,))) == {}


def find_imports_outside_the_suite(path: Path) -> list[str]:
    offences = find_foreign_imports(tree_of(path), PLUGIN_TESTS_MAY_IMPORT)
    return [offence for offence in offences if "imports appliance" in offence]


def test_a_plugins_tests_know_the_contract_suite_only() -> None:
    assert offences_in(plugin_files(tests=True), find_imports_outside_the_suite) == {}


@pytest.mark.parametrize(
    ("source", "offences"),
    [
        ("from appliance.connectors.contract import Action", 0),
        ("from appliance.connectors import contract", 0),
        ("from appliance.core import db", 1),
        ("import appliance.tenants.service", 1),
        ("import socket\nfrom urllib.request import urlopen", 2),
        ("import http.client", 1),
        ("import imaplib, poplib, asyncio", 3),
        ("from xmlrpc.client import ServerProxy", 1),
        ("from urllib.parse import urlsplit", 0),
    ],
)
def test_a_forbidden_import_of_a_plugin_is_found(source: str, offences: int) -> None:
    assert len(find_foreign_imports(ast.parse(source), (PLUGIN_MAY_IMPORT,))) == offences
