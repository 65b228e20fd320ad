"""Slow libraries that most appliances rarely need are not loaded at the start, but at their first use."""

import functools
import subprocess
import sys

import pytest

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
CONNECTORS = ("graphql", "paramiko", "zeep")
LISTED = """
import sys
from appliance.app.parts import load_registry
load_registry()
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
def loaded(program: str) -> frozenset[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
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
