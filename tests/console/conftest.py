"""Members of two tenants, and a process that the console's tests run."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from appliance.testing.running import Running
from tests.console.browser import Browser

PASSWORD = "correct horse battery"
PEOPLE = {f"{role}@acme.test": role for role in ("owner", "builder", "operator", "viewer")}
DEFINITION: dict[str, Any] = {
    "id": "greeting",
    "name": "Greeting",
    "description": "Greets a <guest> & counts the letters.",
    "input": {
        "type": "object",
        "required": ["guest"],
        "additionalProperties": False,
        "properties": {
            "guest": {"type": "string", "title": "Guest", "minLength": 2, "description": "Who is greeted"},
            "times": {"type": "integer", "title": "Times", "minimum": 1, "default": 1},
            "note": {"type": "object", "title": "Note", "properties": {"text": {"type": "string", "title": "Text"}}},
        },
        "examples": [{"guest": "Ada", "times": 2}],
    },
    "steps": [
        {
            "id": "greet",
            "code": {
                "language": "javascript",
                "source": "export default async function (input, api) {\n"
                "  api.log.info('greeting ' + input.guest)\n"
                "  if (input.guest === 'nobody') throw new Error('nobody cannot be greeted')\n"
                "  return {text: 'Hello ' + input.guest}\n"
                "}",
            },
        },
        {"id": "letters", "rule": {"expression": "= steps.greet.text.length"}},
    ],
}


@pytest.fixture(scope="session")
def staff(running: Running) -> Running:
    """Acme's members, one per role; an owner of globex; a guest without a tenant."""
    running.tenant("acme")
    running.tenant("globex")
    for login, role in PEOPLE.items():
        running.user(login, PASSWORD, "acme", role)
    running.user("owner@globex.test", PASSWORD, "globex", "owner")
    running.user("guest@console.test", PASSWORD)
    return running


@pytest.fixture(scope="session")
def greeting(acme: httpx.Client) -> str:
    """The id of a published process of acme."""
    acme.post("/api/v1/processes", json=DEFINITION).raise_for_status()
    acme.post("/api/v1/processes/greeting/publish", json={}).raise_for_status()
    return "greeting"


@pytest.fixture(scope="session")
def signed_in(staff: Running) -> Callable[[str], Browser]:
    """A browser signed in as this person; cached, because password hashing is slow on purpose."""
    browsers: dict[str, Browser] = {}

    def get(login: str) -> Browser:
        if login not in browsers:
            browser = Browser(staff)
            tenant = login.split("@")[1].removesuffix(".test")
            assert browser.sign_in(login, PASSWORD, tenant).status_code == 200
            browsers[login] = browser
        return browsers[login]

    return get


@pytest.fixture
def owner(signed_in: Callable[[str], Browser]) -> Browser:
    return signed_in("owner@acme.test")
