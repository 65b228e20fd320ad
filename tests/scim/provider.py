"""Requests of an identity provider that provisions people, with a token of its own."""

import json
from types import TracebackType
from typing import Any, Self

import httpx

from appliance.tenants.provisioning import create_token
from appliance.testing.running import Running
from tests.api.resources import fresh

ADMINISTRATOR, BREAK_GLASS = "chief@corp.test", "glass@corp.test"
USER, GROUP = (f"urn:ietf:params:scim:schemas:core:2.0:{kind}" for kind in ("User", "Group"))
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"


class Directory:
    """The provider's side of SCIM."""

    def __init__(self, running: Running, provider_id: str) -> None:
        self.running = running
        provider = running.services.single_sign_on.find_provider(provider_id)
        self.token = create_token(running.services.sealer, provider)[1]
        self.client = running.client("localhost", {"Authorization": f"Bearer {self.token}"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.client.close()

    def send(self, method: str, path: str, body: Any = None, **params: str) -> httpx.Response:
        """One request below `/scim/v2`, as JSON unless the body is bytes."""
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": "application/scim+json"}
        return self.client.request(method, f"/scim/v2{path}", content=content, headers=headers, params=params or None)

    def ask(self, method: str, path: str, body: Any = None, **params: str) -> Any:
        """The answer to a request that must succeed; None if it is empty."""
        response = self.send(method, path, body, **params)
        assert response.is_success, response.text
        return response.json() if response.content else None

    def refuse(self, method: str, path: str, body: Any = None, **params: str) -> tuple[int, str | None]:
        """Status and scimType of a request that must fail, with an error in the format of SCIM."""
        response = self.send(method, path, body, **params)
        error = response.json()
        assert not response.is_success
        assert error["schemas"] == [ERROR], error
        assert error["status"] == str(response.status_code)
        assert error["detail"]
        assert response.headers["Content-Type"] == "application/scim+json"
        return response.status_code, error.get("scimType")

    def add_user(self, login: str = "", **more: Any) -> str:
        """Add a person; returns their id."""
        body = {"schemas": [USER], "userName": login or f"{fresh('p')}@corp.test", "active": True, **more}
        return str(self.ask("POST", "/Users", body)["id"])

    def add_group(self, name: str, *members: str) -> str:
        """Add a group; returns its id."""
        body = {"schemas": [GROUP], "displayName": name, "members": [{"value": each} for each in members]}
        return str(self.ask("POST", "/Groups", body)["id"])

    def patch(self, path: str, *operations: dict[str, Any]) -> Any:
        """Send PATCH operations, which must succeed."""
        return self.ask("PATCH", path, {"schemas": [PATCH], "Operations": list(operations)})

    def drop(self, *paths: str) -> None:
        """Delete resources."""
        for path in paths:
            self.ask("DELETE", path)
