"""Slow libraries that most appliances rarely need are not loaded at the start, but at their first use."""

import subprocess
import sys

import pytest

# A library that is not installed would pass, so each is imported to prove that its name is right.
SELDOM = ("pydantic_ai", "opentelemetry", "mcp", "mcp_types", "dns.resolver", "graphql", "zeep", "paramiko")
STARTED = """
import sys
from appliance.app import composition
from appliance.app.parts import load_registry
from appliance.mcp import make_edge
load_registry()
print(*sys.modules)
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    done = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("library", SELDOM)
def test_a_start_does_not_load(library: str, loaded: set[str]) -> None:
    __import__(library)
    assert "appliance.console.blueprint" in loaded
    assert library not in loaded
