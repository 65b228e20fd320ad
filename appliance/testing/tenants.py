"""A tenant as a test uses it: its API, its addresses, its people, and a solution in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from appliance.solutions import ORDER_SYSTEM, read_folder, starter_folder, write_zip
from appliance.webapps.domains import names_of

STARTER = "starter"
ROLES = ("owner", "builder", "operator", "approver", "viewer")
"""Whose pages a test can have; an approver is an operator who may decide."""


class People(Protocol):
    """Where logins come from: made on the spot, or given for an appliance elsewhere."""

    def login(self, tenant_id: str, role: str) -> tuple[str, str]:
        """Login and password of somebody with this role in the tenant; LookupError when there is nobody."""


@dataclass
class QaTenant:
    """A tenant: `api` is a client with every scope, `url` leads to its console and its API."""

    id: str
    base_url: str
    api: httpx.Client
    people: People
    demo_url: str = ""
    solutions: list[str] = field(default_factory=list)

    def url(self, path: str = "/console/") -> str:
        """The address of a page of this tenant."""
        return f"{self.base_url.rstrip('/')}{path}"

    def login(self, role: str) -> tuple[str, str]:
        """Login and password of somebody with this role: owner, builder, operator, approver or viewer."""
        return self.people.login(self.id, role)

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """`data` of the API's answer to `path` below /api/v1; AssertionError with what it says when it refuses."""
        answer = self.api.request(method, f"/api/v1{path}", json=body, **more)
        if not answer.is_success:
            raise AssertionError(f"{method} {path} was answered {answer.status_code}: {answer.text}")
        return answer.json()["data"]

    def execute(self, process: str, given: Mapping[str, Any], wait: int = 30) -> dict[str, Any]:
        """The execution of a published process, after it ended or `wait` seconds passed."""
        found: dict[str, Any] = self.ask("POST", f"/processes/{process}/execute?wait={wait}", dict(given))
        return found if "output" in found or "error" in found else self.execution(found["execution_id"], process)

    def execution(self, execution_id: str, process: str) -> dict[str, Any]:
        """An execution as it is now."""
        found: dict[str, Any] = self.ask("GET", f"/processes/{process}/executions/{execution_id}")
        return found

    def own_hosts(self) -> set[str]:
        """The names of WebApps' own domains, once it is known that they are the tenant's."""
        claimed = [each for app in self.ask("GET", "/webapps") for each in self.ask("GET", f"/webapps/{app['id']}/domains")]
        proven = [each for each in claimed if each.get("verified_at")]
        return {name for each in proven for name in names_of(each["host"], each.get("redirect_from"))}

    def apply(self, solution: str | Path, secrets: Mapping[str, str] | None = None) -> None:
        """Put a solution folder (or `starter`) into the tenant, once its secrets are set; again is fine."""
        for name, value in (secrets or {}).items():
            self.ask("PUT", f"/secrets/{name}", {"value": value})
        folder = starter_folder() if solution == STARTER else Path(solution)
        answer = self.api.post(
            "/api/v1/solutions/apply", content=write_zip(read_folder(folder)), headers={"Content-Type": "application/zip"}
        )
        if not answer.is_success:
            raise AssertionError(f"the solution {folder} was not applied: {answer.text}")
        if solution == STARTER and self.demo_url:
            self.point(ORDER_SYSTEM, self.demo_url)
        self.solutions.append(str(solution))

    def point(self, integration: str, base_url: str) -> None:
        """Let an integration speak to another address, such as `gos.foreign.url`."""
        self.ask("PATCH", f"/integrations/{integration}", {"settings": {"base_url": base_url}})
