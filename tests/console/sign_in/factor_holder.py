"""A person with a browser who adds second factors and proves who they are with them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import unescape
from typing import Any

import httpx
import pyotp

from appliance.core import clock
from appliance.core.database import db
from appliance.tenants import people
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD
from tests.tenants.second_factors.authenticator import Authenticator

STEP_MS = 30_000
CODE = re.compile(r"<li><code>([a-z0-9-]{29})</code></li>")
TOKEN = re.compile(r'name="token" value="([\w=-]+)"')
SECRET = re.compile(r'data-testid="app-secret">([A-Z2-7 ]+)<')


@dataclass
class Holder:
    """A member of a tenant, in one browser."""

    running: Running
    login: str
    tenant: str = "acme"
    browser: Browser = field(init=False)
    secret: str = ""
    first_code: str = ""

    def __post_init__(self) -> None:
        self.browser = Browser(self.running)

    def at(self, path: str) -> str:
        """An address of the base host."""
        return self.browser.at("", path)

    def sign_in(self, path: str = "/console/") -> httpx.Response:
        """Open a page of the tenant, and enter the password."""
        self.browser.get(self.browser.at(self.tenant, path))
        return self.browser.post(self.browser.url, {"login": self.login, "password": PASSWORD})

    def add_app(self, query: str = "") -> list[str]:
        """Add an app; returns the recovery codes that are shown."""
        page = self.browser.get(self.at(f"/factors/app{query}")).text
        self.secret = SECRET.findall(page)[0].replace(" ", "")
        self.first_code = self.code()
        form = {"token": TOKEN.findall(page)[0], "name": "Phone", "code": self.first_code}
        added = self.browser.post(self.browser.url, form)
        assert added.status_code == 201, added.text
        return CODE.findall(added.text)

    def grow_stale(self) -> None:
        """Let eleven minutes pass for this person's proofs and codes, but not for the other tests of the appliance."""
        user, ms = people.find_user(self.login).id, 11 * 60_000
        aged = "UPDATE second_factor SET counter = counter - ? WHERE user_id = ? AND kind = 'totp'"
        db.write(lambda: db.execute("UPDATE session SET proven_at = proven_at - ? WHERE user_id = ?", (ms, user)))
        db.write(lambda: db.execute(aged, (ms // STEP_MS, user)))

    def code(self, steps: int = 0) -> str:
        """The code that the app shows, now or some steps later."""
        return pyotp.TOTP(self.secret).generate_otp(clock.now_ms() // STEP_MS + steps)

    def make_device(self) -> Authenticator:
        """A device that can have a passkey of this appliance."""
        return Authenticator(self.running.config.base_url, "localhost")

    def add_passkey(self, device: Authenticator) -> httpx.Response:
        """Add a passkey as the script of the page does."""
        return add_passkey(self.browser, device)

    def begin(self, path: str) -> Mapping[str, Any]:
        """The options of a ceremony with a passkey, and its token."""
        return begin(self.browser, path)

    def use_passkey(self, device: Authenticator, options: str, action: str, **form: str) -> httpx.Response:
        """Use a passkey as the script of the page does."""
        return use_passkey(self.browser, device, options, action, **form)

    def is_signed_in(self) -> bool:
        """Whether this browser can open the tenant's console."""
        page = self.browser.get(self.browser.at(self.tenant, "/console/account"))
        return page.status_code == 200 and "Sign out" in page.text

    def actions(self, kind: str) -> list[tuple[str, dict[str, object]]]:
        """The latest entries whose action begins like this in the tenant's trail about this person, the newest first."""
        with self.running.api(self.tenant) as api:
            rows = api.get("/api/v1/logs/audit", params={"limit": 200}).json()["data"]
        mine = (row for row in rows if row["subject"] == people.find_user(self.login).id)
        return [(row["action"], json.loads(row["fields"])) for row in mine if row["action"].startswith(kind)]


def begin(browser: Browser, path: str) -> Mapping[str, Any]:
    """The options of a ceremony with a passkey on the base host, and its token."""
    answer = browser.get(browser.at("", path))
    assert answer.status_code == 200, answer.text
    return dict(json.loads(answer.text))


def add_passkey(browser: Browser, device: Authenticator) -> httpx.Response:
    """Add a passkey to the account of who is signed in."""
    ceremony = begin(browser, "/factors/passkey/options")
    form = {"token": str(ceremony["token"]), "response": device.create(ceremony["options"]), "name": "Laptop"}
    return browser.post(browser.at("", "/factors/passkey"), form)


def use_passkey(browser: Browser, device: Authenticator, options: str, action: str, **form: str) -> httpx.Response:
    """Prove who it is with a passkey."""
    ceremony = begin(browser, options)
    proof = {"token": str(ceremony["token"]), "response": device.use(ceremony["options"])}
    return browser.post(browser.at("", action), {**form, **proof})


def first_link(page: str, testid: str) -> str:
    """The address of the first link with this test id."""
    match = re.search(rf'href="([^"]+)" data-testid="{testid}"', page)
    assert match is not None, page
    return unescape(match[1])
