"""A tenant in tests: its API client, URLs, logins and solutions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx

from appliance.solutions import ORDER_SYSTEM, read_folder, starter_folder, write_zip
from appliance.webapps.domains import names_of

STARTER = "starter"
ROLES = ("owner", "builder", "operator", "approver", "viewer")
"""The roles that a page can be opened with; an approver is an operator with the approver flag."""


class People(Protocol):
    """Provides logins: created on demand, or given for an appliance elsewhere."""

    def login(self, tenant_id: str, role: str) -> tuple[str, str]:
        """Login and password of a member with this role in the tenant; LookupError when there is none."""


@dataclass
class QaTenant:
    """A tenant: `api` is an HTTP client with every scope, `url` builds URLs of its console and API."""

    id: str
    base_url: str
    api: httpx.Client
    people: People
    demo_url: str = ""
    solutions: list[str] = field(default_factory=list)

    def url(self, path: str = "/console/") -> str:
        """The URL of a page of this tenant."""
        return f"{self.base_url.rstrip('/')}{path}"

    def login(self, role: str) -> tuple[str, str]:
        """Login and password of a member with this role: owner, builder, operator, approver or viewer."""
        return self.people.login(self.id, role)

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """Call the API at `path` below /api/v1 and return `data` of the response; AssertionError when it is an error."""
        answer = self.api.request(method, f"/api/v1{path}", json=body, **more)
        if not answer.is_success:
            raise AssertionError(f"{method} {path} returned {answer.status_code}: {answer.text}")
        return answer.json()["data"]

    def execute(self, process: str, payload: Mapping[str, Any], wait: int = 30) -> dict[str, Any]:
        """Execute a published process and return the execution once it has ended, or after `wait` seconds."""
        execution: dict[str, Any] = self.ask("POST", f"/processes/{process}/execute?wait={wait}", dict(payload))
        return execution if "output" in execution or "error" in execution else self.execution(execution["execution_id"], process)

    def execution(self, execution_id: str, process: str) -> dict[str, Any]:
        """The current state of an execution."""
        execution: dict[str, Any] = self.ask("GET", f"/processes/{process}/executions/{execution_id}")
        return execution

    def own_hosts(self) -> set[str]:
        """The host names of the verified custom domains of the tenant's WebApps."""
        claimed = [each for app in self.ask("GET", "/webapps") for each in self.ask("GET", f"/webapps/{app['id']}/domains")]
        proven = [each for each in claimed if each.get("verified_at")]
        return {name for each in proven for name in names_of(each["host"], each.get("redirect_from"))}

    def apply(self, solution: str | Path, secrets: Mapping[str, str] | None = None) -> None:
        """Set the secrets, then apply a solution folder (or `starter`) to the tenant; can be repeated."""
        for name, value in (secrets or {}).items():
            self.ask("PUT", f"/secrets/{name}", {"value": value})
        folder = starter_folder() if solution == STARTER else Path(solution)
        answer = self.api.post(
            "/api/v1/solutions/apply", content=write_zip(read_folder(folder)), headers={"Content-Type": "application/zip"}
        )
        if not answer.is_success:
            raise AssertionError(f"the solution {folder} could not be applied: {answer.text}")
        if solution == STARTER and self.demo_url:
            self.point(ORDER_SYSTEM, self.demo_url)
        self.solutions.append(str(solution))

    def point(self, integration: str, base_url: str) -> None:
        """Point an integration to another base URL, such as `gos.foreign.url`."""
        self.ask("PATCH", f"/integrations/{integration}", {"settings": {"base_url": base_url}})
