"""Sign-in to the console with a provider: responses, tokens and logouts that lie about who signs in or out."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from appliance.tenants.sign_in import Attempts
from appliance.testing.running import Running
from tests.console.sign_in.company import Employee, describe_provider, send_logout
from tests.redteam.attempts import attempts
from tests.redteam.test_oidc_attacks import CLAIMS, TOKENS
from tests.webapps.identity_provider import EC, LOGOUT, OTHER, IdentityProvider, signer, unsigned

NOW = int(time.time())
LOGOUT_CLAIMS: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.example"}, "another client": {"aud": "other"}, "no client": {"aud": None},
    "old": {"iat": NOW - 4000, "exp": NOW + 100}, "of the future": {"iat": NOW + 4000, "exp": NOW + 5000}, "no time": {"iat": None},
    "expired": {"iat": NOW - 500, "exp": NOW - 400}, "time as a text": {"iat": "now"}, "no event": {"events": None},
    "another event": {"events": {"http://schemas.openid.net/event/other": {}}}, "event as a list": {"events": [LOGOUT]},
    "event as a text": {"events": {LOGOUT: "yes"}}, "an ID token": {"nonce": "nonce-1"}, "empty nonce": {"nonce": ""},
    "no id": {"jti": None}, "id as a number": {"jti": 7}, "long id": {"jti": "j" * 256}, "nobody": {"sub": None},
    "subject as a list": {"sub": ["u-ann"]}, "session as an object": {"sid": {"$ne": ""}}, "empty session": {"sid": ""},
}  # fmt: skip


@pytest.fixture(scope="module")
def providers() -> Iterator[tuple[IdentityProvider, IdentityProvider]]:
    corp, evil = IdentityProvider(), IdentityProvider()
    evil.keys, evil.sign = [OTHER], signer(OTHER, "ES256")
    yield corp, evil
    corp.close()
    evil.close()


@pytest.fixture(scope="module")
def live(
    start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory,
    providers: tuple[IdentityProvider, IdentityProvider],
) -> Iterator[Running]:  # fmt: skip
    corp, evil = providers
    entries = [describe_provider(corp), describe_provider(evil, id="evil", allow_unknown=True, groups_claim="", roles=[])]
    running = start_appliance(tmp_path_factory.mktemp("sso"), sign_in__providers=entries, console__provision="off")
    for tenant in ("acme", "globex"):
        running.tenant(tenant)
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attacker with many addresses."""
    monkeypatch.setattr(Attempts, "begin", lambda *_: None)


@pytest.fixture
def ann(live: Running, providers: tuple[IdentityProvider, IdentityProvider]) -> Employee:
    return Employee(live, providers[0])


def is_signed_in(person: Employee) -> bool:
    """Whether the browser has a session on the base host."""
    person.browser.get(person.browser.at("", "/"))
    return urlsplit(person.browser.url).path != "/sign-in"


def test_tokens_that_lie_sign_nobody_in(ann: Employee) -> None:
    provider = ann.provider
    good = provider.sign
    with attempts(least=30) as table:
        for name, sign in TOKENS.items():
            provider.sign = sign
            table.check(f"token: {name}", ann.sign_in("bosses").status_code == 502 and not is_signed_in(ann))
        provider.sign = good
        for name, claims in CLAIMS.items():
            changed = {claim: f"{provider.issuer}/" if value == "SLASH" else value for claim, value in claims.items()}
            if any(value is None for value in changed.values()):
                provider.sign = lambda token, changed=changed: good({**token, **changed})  # type: ignore[misc]
                changed = {}
            table.check(f"claims: {name}", ann.sign_in("bosses", **changed).status_code == 502 and not is_signed_in(ann))
            provider.sign = good
        table.check("control: the right token signs in", ann.sign_in("bosses").status_code == 200 and is_signed_in(ann))


def test_a_response_belongs_to_one_browser_and_sign_in(
    live: Running, ann: Employee, monkeypatch: pytest.MonkeyPatch
) -> None:
    thief = Employee(live, ann.provider)
    with attempts(least=9) as table:
        ann.become("bosses")
        back = ann.provider.sign_in(ann.start())
        table.check("a browser that started nothing", thief.come_back(back).status_code == 400 and not is_signed_in(thief))
        thief.start()
        table.check("a browser that started another", thief.come_back(back).status_code == 400 and not is_signed_in(thief))
        for name, value in {"another": "x", "none": "", "not ASCII": "é"}.items():
            query = {**{key: values[0] for key, values in parse_qs(urlsplit(back).query).items()}, "state": value}
            answer = ann.come_back(f"{back.partition('?')[0]}?{urlencode(query)}")
            table.check(f"state: {name}", answer.status_code == 400 and not is_signed_in(ann))
        table.check("no code", ann.come_back(back.replace("code=", "kode=")).status_code == 403 and not is_signed_in(ann))
        moved = back.replace("/oidc/corp/", "/oidc/evil/")
        table.check("at the callback of another provider", ann.come_back(moved).status_code == 400 and not is_signed_in(ann))
        unknown = back.replace("/oidc/corp/", "/oidc/none/")
        table.check("at no provider", ann.come_back(unknown).status_code == 404 and not is_signed_in(ann))
        on_tenant = back.replace("//localhost", "//acme.localhost")
        table.check("on a tenant's host", ann.come_back(on_tenant).status_code == 404)
        monkeypatch.setattr("appliance.tenants.single_sign_on.service.LIFETIME_MS", -1)
        late = ann.provider.sign_in(ann.start())
        table.check("too late", ann.come_back(late).status_code == 400 and not is_signed_in(ann))


def test_a_code_of_one_provider_is_not_taken_to_another(
    live: Running, ann: Employee, providers: tuple[IdentityProvider, IdentityProvider]
) -> None:
    """RFC 9207, RFC 9700 § 4.4: who thinks to sign in at `evil` is sent to `corp`, whose code `evil` must not get."""
    corp, evil = providers
    mixed = Employee(live, evil, provider_id="evil")
    with attempts(least=3) as table:
        started = mixed.start()
        state = parse_qs(urlsplit(started).query)["state"][0]
        requests = len(evil.server.received)
        back = f"{mixed.browser.at('', '/oidc/evil/callback')}?{urlencode({'code': 'code-1', 'state': state, 'iss': corp.issuer})}"
        answer = mixed.come_back(back)
        table.check("the issuer of the response is another", answer.status_code == 502 and not is_signed_in(mixed))
        table.check("evil gets no code", len(evil.server.received) == requests)
        at_corp = back.replace("/oidc/evil/", "/oidc/corp/")
        table.check("at the callback of corp", mixed.come_back(at_corp).status_code == 400 and not is_signed_in(mixed))


def test_a_provider_speaks_for_its_own_people_only(
    live: Running, ann: Employee, providers: tuple[IdentityProvider, IdentityProvider]
) -> None:
    assert ann.sign_in("bosses", sid="session-7").status_code == 200
    mallory = Employee(live, providers[1], provider_id="evil")
    page = mallory.sign_in("bosses")
    assert (page.status_code, is_signed_in(mallory)) == (403, False), "the same subject and address, of another issuer"
    stolen = Employee(live, providers[1], "mallory", provider_id="evil")
    assert stolen.sign_in("bosses").status_code == 200
    assert not stolen.can_open("acme"), "groups of a provider without roles"
    providers[1].claims["sub"] = "u-ann"
    for claims in ({}, {"sid": "session-7"}, {"sid": "session-7", "sub": None}):
        assert send_logout(live, providers[1].logout_token(**claims), "evil").status_code == 200
    assert ann.can_open("acme")
    assert send_logout(live, providers[1].logout_token(iss=providers[0].issuer), "corp").status_code == 400
    assert ann.can_open("acme")


def test_logouts_that_lie_end_nothing(live: Running, ann: Employee) -> None:
    provider = ann.provider
    assert ann.sign_in("bosses", sid="session-1").status_code == 200
    with attempts(least=30) as table:
        for name, claims in LOGOUT_CLAIMS.items():
            answer = send_logout(live, provider.logout_token(**claims))
            table.check(f"claims: {name}", (answer.status_code, answer.headers["Cache-Control"]) == (400, "no-store"))
        good = provider.sign
        for name, sign in {"unsigned": unsigned, "of another key": signer(OTHER, "ES256"), **TOKENS}.items():
            provider.sign = sign
            answer = send_logout(live, provider.logout_token())
            table.check(f"token: {name}", (answer.status_code, answer.json()["error"]) == (400, "invalid_request"))
        provider.sign = good
        table.check("no token", send_logout(live, "").status_code == 400)
        with live.client("localhost") as client:
            table.check("by GET", client.get("/oidc/corp/logout").status_code == 405)
            table.check("large", client.post("/oidc/corp/logout", data={"logout_token": "x" * 100_000}).status_code == 413)
            twice = urlencode([("logout_token", provider.logout_token())] * 2)
            answer = client.post("/oidc/corp/logout", content=twice)
            table.check("two tokens", answer.status_code == 400)
        with live.client("acme.localhost") as client:
            sent = client.post("/oidc/corp/logout", data={"logout_token": provider.logout_token()})
            table.check("on a tenant's host", sent.status_code == 404)
        table.check("unknown provider", send_logout(live, provider.logout_token(), "none").status_code == 404)
        table.check("she is signed in still", ann.can_open("acme"))
        used = provider.logout_token(sid="session-1")
        table.check("control: the right token signs out", send_logout(live, used).status_code == 200 and not ann.can_open("acme"))
        assert ann.sign_in("bosses", sid="session-1").status_code == 200
        table.check("used again", send_logout(live, used).status_code == 400 and ann.can_open("acme"))


def test_the_client_secret_and_tokens_are_not_logged(
    live: Running, ann: Employee, caplog: pytest.LogCaptureFixture
) -> None:
    ann.provider.sign = unsigned
    try:
        page = ann.sign_in("bosses")
    finally:
        ann.provider.sign = signer(EC, "ES256")
    assert page.status_code == 502
    assert "client-secret-4711" not in caplog.text + page.text
    assert json.dumps(page.text).count("eyJ") == 0
