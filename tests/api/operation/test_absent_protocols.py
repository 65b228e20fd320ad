"""What the appliance does not implement is not answered: no authorization server, no GraphQL, no tokens of somebody else."""

import base64
import json

import pytest

from appliance import api
from appliance.testing.running import Running

OAUTH = (
    "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration", "/.well-known/jwks.json", "/authorize",
    "/token", "/oauth/authorize", "/oauth/token", "/oauth2/token", "/register", "/introspect", "/revoke", "/userinfo",
)  # fmt: skip
GRAPHQL = ("/graphql", "/api/graphql", "/api/v1/graphql")
ABSENT = ("authorize", "token", "introspect", "jwks", "userinfo", "graphql", "saml", "consent")


def absent_parts(path: str) -> set[str]:
    return set(ABSENT) & {part.strip("<>") for part in path.lower().replace("-", "/").split("/")}


@pytest.mark.parametrize("host", ["localhost", "acme.localhost"])
def test_the_appliance_answers_no_protocol_that_it_does_not_implement(running: Running, host: str) -> None:
    assert [route.path for route in api.load_routes() if absent_parts(route.path)] == []
    form = {"grant_type": "client_credentials", "client_id": "x", "client_secret": "y", "query": "{__schema{types{name}}}"}
    with running.client(host, {"X-API-Key": running.key("acme")}) as client:
        for path in (*OAUTH, *GRAPHQL):
            answers = client.get(path, params={"response_type": "code", "client_id": "x"}), client.post(path, data=form)
            assert {answer.status_code for answer in answers} <= {404, 405}, path
        resource = client.get("/.well-known/oauth-protected-resource").json()
    assert "authorization_servers" not in resource


def test_a_route_of_an_absent_protocol_is_found() -> None:
    assert absent_parts("/api/v1/oauth/token") == {"token"}
    assert absent_parts("/api/v1/integrations/<slug>/oauth/start") == set()


def json_web_token(algorithm: str, **claims: object) -> str:
    parts = ({"alg": algorithm, "typ": "at+jwt"}, {"iss": "https://id.example", "sub": "owner", "scope": "*", **claims})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, "c2lnbmF0dXJl"])


TOKENS = [json_web_token("none"), json_web_token("HS256", aud="acme.localhost"), "ya29.opaque-access-token"]


@pytest.mark.parametrize("token", TOKENS)
def test_no_token_of_an_authorization_server_is_a_credential(running: Running, token: str) -> None:
    with running.client("acme.localhost") as client:
        for headers in ({"Authorization": f"Bearer {token}"}, {"Authorization": f"DPoP {token}"}, {"X-API-Key": token}):
            assert client.get("/api/v1/tenant", headers=headers).status_code == 401
            message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            accepted = {"Accept": "application/json, text/event-stream", **headers}
            assert client.post("/mcp", json=message, headers=accepted).status_code == 401
