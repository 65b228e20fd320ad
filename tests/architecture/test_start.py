"""Slow libraries that most appliances rarely need are not loaded at the start, but at their first use."""

import functools
import subprocess
import sys

import pytest

from appliance.api.frame.route_modules import MODULES

# A library that is not installed would pass, so each is imported to prove that its name is right.
SELDOM = (
    "appliance.api.processes.executions", "appliance.console", "click", "dns.resolver", "mcp", "mcp_types",
    "obstore", "opentelemetry", "psycopg", "pydantic_ai", "pygments", "pymysql", "quart", "rich",
)  # fmt: skip
STARTED = """
import sys
import appliance.cli
from appliance.app import composition
from appliance.mcp import make_edge
print(*sys.modules)
"""
CONNECTORS = ("graphql", "paramiko", "pg8000", "pymysql", "zeep")
LISTED = """
import sys
import appliance.cli
from appliance.app.parts import load_registry
load_registry()
print(*sys.modules)
"""

FIRST_PAGES = """
import sys, tempfile
from pathlib import Path
from appliance.testing.running import make_config, start
from tests.console.browser import Browser
with tempfile.TemporaryDirectory() as folder:
    running = start(make_config(Path(folder)))
    running.user("ann@acme.test", "correct horse battery", "acme")
    browser = Browser(running)
    assert browser.sign_in("ann@acme.test", "correct horse battery", "acme").status_code == 200
    for page in ("", "processes", "executions", "monitor", "datapool", "documents", "webapps"):
        assert browser.get(browser.at("acme", f"/console/{page}")).status_code == 200, page
    print(*sys.modules)
    running.stop()
"""
SANDBOX = f"""
import sys
sys.path[:] = {sys.path!r}
from appliance.sandbox.worker import worker
from appliance.sandbox.worker.programs import Programs
print(*sys.modules)
"""
CALLED = """
import sys
from appliance.connectors.registry import load_connector
assert load_connector("http").name == "http"
assert load_connector("no-such-connector") is None
print(*sys.modules)
"""


@functools.cache
def loaded(program: str, *flags: str) -> frozenset[str]:
    done = subprocess.run([sys.executable, *flags, "-c", program], capture_output=True, text=True, check=True)
    return frozenset(done.stdout.split())


@pytest.mark.parametrize("library", SELDOM)
def test_a_start_does_not_load(library: str) -> None:
    __import__(library)
    assert "appliance.processes.service" in loaded(STARTED)
    assert library not in loaded(STARTED)


@pytest.mark.parametrize("library", CONNECTORS)
def test_connectors_do_not_load_until_they_are_called(library: str) -> None:
    __import__(library)
    assert "gos_connector_graphql" in loaded(LISTED)
    assert library not in loaded(LISTED)


def test_a_connector_is_loaded_without_the_others() -> None:
    assert {name for name in loaded(CALLED) if name.startswith("gos_connector_") and "." not in name} == {"gos_connector_http"}


def test_pages_load_neither_connectors_nor_routes_of_the_api() -> None:
    modules = loaded(FIRST_PAGES)
    assert {"quart", "appliance.console.pages.start.home", "appliance.api.frame.blueprint"} <= modules
    assert not [name for name in modules if name.startswith("gos_connector_")]
    assert not modules & {f"appliance.api.{each}" for of_family in MODULES.values() for each in of_family}


def test_a_sandbox_process_does_not_load_what_only_the_set_up_needs() -> None:
    modules = loaded(SANDBOX, "-I", "-S")
    assert "wasmtime" in modules
    assert modules.isdisjoint({"importlib.metadata", "email", "pydantic", "peewee"})
