"""A company that signs in to the console with its own identity provider."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.webapps.identity_provider import CLIENT, SECRET, IdentityProvider

PASSWORD = "correct horse battery"
BREAK_GLASS = "glass@corp.test"


def describe_provider(provider: IdentityProvider, **changed: Any) -> dict[str, Any]:
    """An entry of `sign_in.providers`."""
    rules = [
        ("ops", "acme", "operator"), ("dev", "acme", "builder"), ("bosses", "acme", "owner"), ("dev", "globex", "viewer"),
        ("founders", "lonely", "owner"), ("ops", "lonely", "viewer"), ("ops", "nowhere", "owner"),
    ]  # fmt: skip
    return {
        "id": "corp", "name": "Corp", "issuer": provider.issuer, "client_id": CLIENT, "client_secret": SECRET,
        "groups_claim": "groups", "roles": [
            {"group": group, "tenant": tenant, "role": role, "approver": group == "bosses"} for group, tenant, role in rules
        ], **changed,
    }  # fmt: skip


@dataclass
class Employee:
    """Somebody with an account at the provider, and their browser."""

    running: Running
    provider: IdentityProvider
    name: str = "ann"
    provider_id: str = "corp"
    browser: Browser = field(init=False)

    def __post_init__(self) -> None:
        self.browser = Browser(self.running)

    @property
    def login(self) -> str:
        return f"{self.name}@corp.test"

    def become(self, *groups: str, **claims: Any) -> None:
        """Be who signs in at the provider next, with these groups and claims."""
        known = {"sub": f"u-{self.name}", "email": self.login, "email_verified": True, "groups": list(groups)}
        self.provider.claims = {name: value for name, value in {**known, **claims}.items() if value is not None}

    def start(self, query: str = "") -> str:
        """Press the button; returns the address at the provider."""
        url = self.browser.at("", f"/oidc/{self.provider_id}/start{query}")
        response = self.browser.send("GET", url, None, {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"})
        assert response.status_code == 303, response.text
        return str(response.headers["Location"])

    def come_back(self, address: str) -> httpx.Response:
        """Follow the provider's redirect."""
        return self.browser.get(address, **{"Sec-Fetch-Site": "cross-site"})

    def sign_in(self, *groups: str, query: str = "", **claims: Any) -> httpx.Response:
        """A whole sign-in; returns the page that it leads to."""
        self.become(*groups, **claims)
        return self.come_back(self.provider.sign_in(self.start(query)))

    def can_open(self, tenant: str) -> bool:
        """Whether the console of the tenant opens without a further sign-in."""
        url = self.browser.at(tenant, "/console/")
        return self.browser.get(url).status_code == 200 and urlsplit(self.browser.url).path == "/console/"


def send_logout(running: Running, token: str, provider_id: str = "corp", **headers: str) -> httpx.Response:
    """What the provider sends when somebody signs out there."""
    with running.client("localhost", headers) as client:
        return client.post(f"/oidc/{provider_id}/logout", data={"logout_token": token})
