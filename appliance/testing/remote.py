"""The `gos` fixture for an appliance that runs elsewhere, given its URL, an API key and logins."""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from .draining import HELD_BACK, SECONDS, wait_until_idle
from .kit import Gos, MovableClock, NotSupportedRemotely
from .tenants import QaTenant

UNFINISHED = ("queued", "running", "cancelling")


@dataclass
class RemoteGos(Gos):
    """An appliance elsewhere, with the one tenant that the key belongs to; `logins` holds (login, password) by role."""

    url: str = field(kw_only=True)
    key: str = field(kw_only=True)
    logins: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    ca_file: Path | None = None

    def tenant(self, name: str = "", *, solution: str | Path | None = None, secrets: Mapping[str, str] | None = None) -> QaTenant:
        tenant = next(iter(self.tenants.values()), None) or self._tenant_of_key()
        if name not in ("", tenant.id):
            raise NotSupportedRemotely(f"the key belongs to the tenant {tenant.id}; other tenants of this appliance cannot be used")
        if solution is not None:
            tenant.apply(solution, secrets)
        return tenant

    def _tenant_of_key(self) -> QaTenant:
        api = self.opened.enter_context(self._client())
        answer = api.get("/api/v1/tenant")
        if not answer.is_success:
            raise NotSupportedRemotely(f"{self.url} does not accept the key: {answer.text}")
        data = answer.json()["data"]
        tenant = self.tenants[data["id"]] = QaTenant(data["id"], data["base_url"], api, self)
        return tenant

    def _client(self) -> httpx.Client:
        """A client for the URL; names below `localhost` resolve only in browsers, so they are sent as Host to 127.0.0.1."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        is_local = host == "localhost" or host.endswith(".localhost")
        base = self.url.replace(host, "127.0.0.1", 1) if is_local else self.url
        verify = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else True
        return httpx.Client(base_url=base, headers={"Host": parts.netloc, "X-API-Key": self.key}, verify=verify, timeout=90)

    def login(self, tenant_id: str, role: str) -> tuple[str, str]:
        """The login and password given for this role; LookupError when there are none."""
        if role not in self.logins:
            raise LookupError(f"there is no login for the role {role}; add one to the file of --gos-people")
        return self.logins[role]

    def drain(self, seconds: float = SECONDS) -> None:
        """Wait until the tenant's executions are idle; other work of the appliance is not visible from outside."""
        tenant = self.tenant()

        def left() -> list[str]:
            executions = [each for status in UNFINISHED for each in tenant.ask("GET", f"/executions?status={status}&limit=500")]
            executions = [each for each in executions if each.get("wait_reason") not in HELD_BACK]
            return [f"execution {each['execution_id']}: {each['process_id']} is {each['status']}" for each in executions]

        wait_until_idle(left, seconds)

    @property
    def clock(self) -> MovableClock:
        raise NotSupportedRemotely("the clock of an appliance that runs elsewhere cannot be moved; run the tests without --gos-url")

    @property
    def domain(self) -> str:
        return _parent(self.tenant().base_url)

    @property
    def content_domain(self) -> str:
        return _parent(self.tenant().ask("GET", "/tenant")["cdn_url"])


def _parent(url: str) -> str:
    """The parent domain of the URL's host, with its port."""
    return urlsplit(url).netloc.partition(".")[2]


def read_logins(path: Path) -> dict[str, tuple[str, str]]:
    """Read (login, password) by role from a file such as `{"approver": {"login": "…", "password": "…"}}`."""
    people = json.loads(path.read_text("utf8"))
    return {role: (each["login"], each["password"]) for role, each in people.items()}
