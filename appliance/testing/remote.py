"""The kit for an appliance that runs elsewhere: its address, a key, and who can sign in there."""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from .draining import HELD_BACK, SECONDS, await_rest
from .kit import Gos, MovableClock, NotHere
from .tenants import QaTenant

UNFINISHED = ("queued", "running", "cancelling")


@dataclass
class RemoteGos(Gos):
    """Speaks to the one tenant that the key belongs to; there are the people that `logins` names by role."""

    url: str = field(kw_only=True)
    key: str = field(kw_only=True)
    logins: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    ca_file: Path | None = None

    def tenant(self, name: str = "", *, solution: str | Path | None = None, secrets: Mapping[str, str] | None = None) -> QaTenant:
        found = next(iter(self.tenants.values()), None) or self._tenant_of_key()
        if name not in ("", found.id):
            raise NotHere(f"the key belongs to the tenant {found.id}, and an appliance elsewhere gives no other")
        if solution is not None:
            found.apply(solution, secrets)
        return found

    def _tenant_of_key(self) -> QaTenant:
        api = self.opened.enter_context(self._client())
        answer = api.get("/api/v1/tenant")
        if not answer.is_success:
            raise NotHere(f"{self.url} does not take the key: {answer.text}")
        told = answer.json()["data"]
        made = self.tenants[told["id"]] = QaTenant(told["id"], told["base_url"], api, self)
        return made

    def _client(self) -> httpx.Client:
        """Names below `localhost` are looked up by browsers alone: the address is the loopback's, the name goes along."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        is_local = host == "localhost" or host.endswith(".localhost")
        base = self.url.replace(host, "127.0.0.1", 1) if is_local else self.url
        verify = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else True
        return httpx.Client(base_url=base, headers={"Host": parts.netloc, "X-API-Key": self.key}, verify=verify, timeout=90)

    def login(self, tenant_id: str, role: str) -> tuple[str, str]:
        """Who was named for this role."""
        if role not in self.logins:
            raise LookupError(f"nobody is named for the role {role}; add one to the file of --gos-people")
        return self.logins[role]

    def drain(self, seconds: float = SECONDS) -> None:
        """By the tenant's executions alone: what else an appliance does is not seen from outside."""
        tenant = self.tenant()

        def left() -> list[str]:
            found = [each for status in UNFINISHED for each in tenant.ask("GET", f"/executions?status={status}&limit=500")]
            found = [each for each in found if each.get("wait_reason") not in HELD_BACK]
            return [f"execution {each['execution_id']}: {each['process_id']} is {each['status']}" for each in found]

        await_rest(left, seconds)

    @property
    def clock(self) -> MovableClock:
        raise NotHere("the clock of an appliance that runs elsewhere is its own; let the tests start one to move it")

    @property
    def domain(self) -> str:
        return _parent(self.tenant().base_url)

    @property
    def content_domain(self) -> str:
        return _parent(self.tenant().ask("GET", "/tenant")["cdn_url"])


def _parent(url: str) -> str:
    """The domain of which this address names a host, with its port."""
    return urlsplit(url).netloc.partition(".")[2]


def read_logins(path: Path) -> dict[str, tuple[str, str]]:
    """`{"approver": {"login": "…", "password": "…"}}` by role."""
    told = json.loads(path.read_text("utf8"))
    return {role: (each["login"], each["password"]) for role, each in told.items()}
