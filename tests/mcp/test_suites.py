"""The official conformance suite and inspector against our own stack."""

import json
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest

from appliance.agents.tools import Toolbox
from appliance.mcp.server import make_server
from appliance.mcp.tools import ToolHandlers
from appliance.solutions import write_zip
from appliance.testing.running import Running
from tests.api.resources import fresh
from tests.mcp.fixtures import Fixtures
from tests.mcp.serving import serving
from tests.mcp.suites import fetch_suites
from tests.npm_packages import Packages

CONFORMANCE = "@modelcontextprotocol/conformance/dist/index.js"
INSPECTOR = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
# The suite's revisions; it has no scenario of 2026-07-28, which the official Python client and the inspector speak here.
REVISIONS = {"2025-06-18": 26, "2025-11-25": 32}
# Known deviations.  Each asks the server to send a request of its own to the client while a call is under way.  Without
# sessions, which would tie a client to one process and end with it, no answer could be delivered; in 2026-07-28 the
# protocol itself does without.  What needs a person is asked by a page there, and by review_url in every revision.
BY_DESIGN = {"tools-call-sampling", "tools-call-elicitation"}
BY_DESIGN_LATER = BY_DESIGN | {"elicitation-sep1034-defaults", "elicitation-sep1330-enums"}
# These two say of a server without sessions that there is nothing to check.
NOTHING_TO_CHECK = {"server-sse-polling", "server-sse-multiple-streams"}


@pytest.fixture(scope="module")
def suites() -> Packages:
    return fetch_suites()


@pytest.fixture
def fixtures(running: Running, key: str) -> Iterator[str]:
    services = running.services
    handlers = ToolHandlers(cast(Toolbox, None), services.threads, services.limits.streams)
    server = make_server(handlers, services.sealer, [Fixtures()])
    with serving(running, server, key) as url:
        yield url


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_conformance_suite_finds_only_known_deviations(suites: Packages, fixtures: str, revision: str) -> None:
    done = suites.run(CONFORMANCE, "server", "--url", fixtures, "--suite", "all", "--spec-version", revision)
    summary = done.stdout.partition("=== SUMMARY ===")[2]
    lines = [line.split() for line in summary.splitlines() if line.startswith(("✓", "✗"))]
    assert len(lines) == REVISIONS[revision], done.stdout + done.stderr
    failed = {name.rstrip(":") for mark, name, *_ in lines if mark == "✗"}
    assert failed == (BY_DESIGN if revision == "2025-06-18" else BY_DESIGN_LATER), done.stdout
    empty = {name.rstrip(":") for mark, name, passed, *_ in lines if mark == "✓" and passed == "0"}
    assert empty <= NOTHING_TO_CHECK


@pytest.fixture(scope="module")
def skill(running: Running, acme: httpx.Client) -> str:
    """A skill with two files."""
    name = fresh("inspected")
    about = f"---\nname: {name}\ndescription: What inspectors look at.\n---\nLook closely.\n"
    archive = write_zip({"SKILL.md": about.encode(), "reference/more.md": b"More.\n"})
    acme.put(f"/api/v1/skills/{name}", content=archive, headers={"Content-Type": "application/zip"}).raise_for_status()
    return name


def inspect(suites: Packages, running: Running, key: str, era: str, *arguments: str) -> Any:
    """What the inspector answers; it reaches the appliance as its base host."""
    url = f"http://127.0.0.1:{running.config.server.port}/mcp"
    options = ["--transport", "http", "--header", f"X-API-Key: {key}", "--stored-auth-only", "--protocol-era", era]
    done = suites.run(INSPECTOR, "--cli", url, *options, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[0] if "--verify" in arguments else done.stdout)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_finds_every_tool_schema_portable(suites: Packages, running: Running, key: str, era: str) -> None:
    tools = inspect(suites, running, key, era, "--method", "tools/list", "--strict")["tools"]
    assert len(tools) == len(running.services.agents.tools.names())


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_calls_a_tool(suites: Packages, running: Running, key: str, era: str) -> None:
    result = inspect(suites, running, key, era, "--method", "tools/call", "--tool-name", "list_tenant_integrations")
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]


def test_the_inspector_verifies_the_skills_extension(suites: Packages, running: Running, key: str, skill: str) -> None:
    result = inspect(suites, running, key, "modern", "--method", "skills/get", "--uri", f"skill://{skill}/SKILL.md", "--verify")
    assert result["conformance"] == []
    assert [file["status"] for file in result["files"]] == ["verified", "verified"]
