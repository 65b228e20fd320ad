"""Sign-in over HTTP with a code sent by e-mail, and at an OpenID Connect provider."""

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from aiosmtpd.controller import Controller

from appliance.connectors.testing import free_port
from appliance.core.database import db
from appliance.testing.running import Running
from tests.sites.test_access import PAGE, cookie_of, open_app, send
from tests.webapps.identity_provider import SECRET, IdentityProvider

ANN, EVE = "ann@firma.example", "eve@evil.example"
EMAIL = {"email": {"integration": "letters", "allow": ["*@firma.example"]}}
WAIT_SECONDS = 60.0


class Mailbox:
    """Receives emails, or refuses them."""

    def __init__(self) -> None:
        self.emails: list[tuple[list[str], str]] = []
        self.reply = "250 taken"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        if self.reply.startswith("2"):
            self.emails.append((list(envelope.rcpt_tos), envelope.content.decode()))
        return self.reply

    def code(self, number: int) -> str:
        """The code in the email with this index, once it has arrived."""
        wait_for(lambda: len(self.emails) > number)
        (code,) = re.findall(r"^ +(\d{8})\r?$", self.emails[number][1], re.MULTILINE)
        return str(code)


def wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


@contextmanager
def running_mailbox(acme: httpx.Client, slug: str, sender: str) -> Iterator[Mailbox]:
    """The mail server of an integration of acme, for the length of the block."""
    mailbox, port, never_sent = Mailbox(), free_port(), unsent_codes()
    controller = Controller(mailbox, hostname="127.0.0.1", port=port)
    controller.start()
    settings = {"smtp_host": "127.0.0.1", "smtp_port": port, "smtp_tls": "off", "from": sender}
    acme.post("/api/v1/integrations", json={"slug": slug, "connector": "email", "settings": settings}).raise_for_status()
    yield mailbox
    wait_for(lambda: unsent_codes() <= never_sent)  # the server drops a connection that it has just taken, unclosed, when it stops
    acme.delete(f"/api/v1/integrations/{slug}").raise_for_status()
    controller.stop()


def unsent_codes() -> set[str]:
    """The codes that are not sent yet, including those of tests that send none."""
    return {row[0] for row in db.rows("SELECT id FROM email_code WHERE state = 'sending'")}


@pytest.fixture
def post(acme: httpx.Client) -> Iterator[Mailbox]:
    with running_mailbox(acme, "letters", "shop@firma.example") as mailbox:
        yield mailbox


@pytest.fixture
def visitor(running: Running) -> Iterator[Callable[[str], httpx.Client]]:
    """Makes a browser on the host of an app of acme."""
    clients: list[httpx.Client] = []

    def make(app: str) -> httpx.Client:
        clients.append(running.client(f"{app}--acme.content.localhost"))
        return clients[-1]

    yield make
    for each in clients:
        each.close()


def request_code(browser: httpx.Client, email: str) -> httpx.Response:
    answer = send(browser, "/_gos/sign-in", {"email": email, "to": "/report"})
    browser.headers["Cookie"] = cookie_of(answer)
    return answer


def test_a_code_by_email_signs_in(acme: httpx.Client, post: Mailbox, visitor: Callable[[str], httpx.Client]) -> None:
    open_app(acme, "mailed", EMAIL)
    browser = visitor("mailed")
    assert request_code(browser, "Ann@Firma.example").headers["location"] == "/_gos/code"
    code = post.code(0)
    assert post.emails[0][0] == [ANN]
    call = acme.get("/api/v1/integrations/letters/executions").json()["data"][0]
    record = acme.get(f"/api/v1/integrations/letters/executions/{call['execution_id']}").json()["data"]
    assert (record["input"]["to"], code in json.dumps(record)) == ([ANN], False)
    wrong = send(browser, "/_gos/code", {"code": "12"})
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
    assert send(visitor("mailed"), "/_gos/code", {"code": code}).status_code == 400  # another browser
    done = send(browser, "/_gos/code", {"code": code})
    assert (done.status_code, done.headers["location"]) == (303, "/report")
    assert send(browser, "/_gos/code", {"code": code}).status_code == 401  # it is used
    visit = cookie_of(done)
    who = browser.get("/_gos/visit", headers={"Cookie": visit}).json()["data"]
    assert who == {"kind": "user", "id": ANN, "email": ANN}
    open_app(acme, "mailed", {"email": {**EMAIL["email"], "allow": ["bob@firma.example"]}})
    assert browser.get("/", headers={**PAGE, "Cookie": visit}).status_code == 303


def test_the_allow_list_is_not_revealed(acme: httpx.Client, post: Mailbox, visitor: Callable[[str], httpx.Client]) -> None:
    open_app(acme, "secretive", EMAIL)
    results = []
    for email in (ANN, EVE):
        browser = visitor("secretive")
        response = request_code(browser, email)
        page = browser.get("/_gos/code", headers=PAGE)
        tries = [send(browser, "/_gos/code", {"code": "nonsense"}) for _ in range(6)]
        bodies = [answer.text.replace(email, "ADDRESS") for answer in (page, *tries)]
        names = [each.partition("=")[0] for each in response.headers.get_list("set-cookie")]
        results.append((response.status_code, response.headers["location"], names, [each.status_code for each in tries], bodies))
    assert results[0] == results[1]
    post.code(0)
    assert db.rows("SELECT state FROM email_code WHERE door = 'webapp:secretive' AND email = ?", (EVE,)) == [("none",)]
    assert [recipients for recipients, _ in post.emails] == [[ANN]]


def test_an_email_that_cannot_be_sent_is_reported_and_logged(
    acme: httpx.Client, post: Mailbox, visitor: Callable[[str], httpx.Client]
) -> None:
    open_app(acme, "unsent", EMAIL)
    post.reply = "554 not today"
    browser = visitor("unsent")
    request_code(browser, ANN)
    wait_for(lambda: "cannot send email right now" in browser.get("/_gos/code", headers=PAGE).text)
    lines = acme.get("/api/v1/logs", params={"source": "webapp", "text": "unsent"}).json()["data"]
    assert "could not send a sign-in code" in lines[0]["message"]


def test_requesting_more_codes_is_delayed(acme: httpx.Client, post: Mailbox, visitor: Callable[[str], httpx.Client]) -> None:
    open_app(acme, "flooded", EMAIL)
    answers = [request_code(visitor("flooded"), f"{number}-{ANN}") for number in range(7)]
    assert [answer.status_code for answer in answers[:5]] == [303] * 5
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) > 0
    assert request_code(visitor("flooded"), "no address").status_code == 422


# -- at a provider


@pytest.fixture
def provider(acme: httpx.Client) -> Iterator[IdentityProvider]:
    acme.put("/api/v1/secrets/CLIENT", json={"value": SECRET}).raise_for_status()
    running_provider = IdentityProvider()
    yield running_provider
    running_provider.close()


def go_to_provider(browser: httpx.Client) -> httpx.Response:
    """Starts a sign-in at the provider; the browser stores the cookie for the way back."""
    away = browser.get("/_gos/sign-in?to=%2Freport", headers=PAGE)
    browser.headers["Cookie"] = cookie_of(away)
    return away


def test_signing_in_at_the_provider_works(
    acme: httpx.Client, provider: IdentityProvider, visitor: Callable[[str], httpx.Client]
) -> None:
    open_app(acme, "oidc-app", provider.access())
    browser = visitor("oidc-app")
    back = provider.sign_in(go_to_provider(browser).headers["location"])
    assert back.startswith(f"http://{browser.headers['Host']}/_gos/oidc?")
    path = back.partition(browser.headers["Host"])[2]
    for thief in (visitor("oidc-app"), browser):
        cookie = "" if thief is browser else thief.headers.get("Cookie", "")
        assert thief.get(path, headers={**PAGE, "Cookie": cookie}).status_code == 400  # without what the browser keeps
    spoilt = browser.get(re.sub("state=[^&]*", "state=another", path), headers=PAGE)
    assert spoilt.status_code == 400
    done = browser.get(path, headers=PAGE)
    assert (done.status_code, done.headers["location"]) == (303, "/report")
    who = browser.get("/_gos/visit", headers={"Cookie": cookie_of(done)}).json()["data"]
    assert who == {"kind": "user", "id": "u-1", "email": ANN}


def test_an_account_that_is_not_allowed_is_refused(
    acme: httpx.Client, provider: IdentityProvider, visitor: Callable[[str], httpx.Client]
) -> None:
    open_app(acme, "oidc-closed", provider.access())
    refused = []
    for claims in ({"email": EVE}, {"email": ANN, "email_verified": False}):
        provider.claims |= claims
        browser = visitor("oidc-closed")
        path = provider.sign_in(go_to_provider(browser).headers["location"]).partition(browser.headers["Host"])[2]
        refused.append(browser.get(path, headers=PAGE))
    denied = browser.get(re.sub("code=[^&]*&", "error=access_denied&", path), headers=PAGE)
    assert [(answer.status_code, cookie_of(answer)) for answer in (*refused, denied)] == [(403, "")] * 3


def test_an_invalid_token_is_explained_to_the_operator_only(
    acme: httpx.Client, provider: IdentityProvider, visitor: Callable[[str], httpx.Client]
) -> None:
    open_app(acme, "oidc-bad", provider.access())
    provider.claims["aud"] = "another-client"
    browser = visitor("oidc-bad")
    path = provider.sign_in(go_to_provider(browser).headers["location"]).partition(browser.headers["Host"])[2]
    failed = browser.get(path, headers=PAGE)
    assert (failed.status_code, cookie_of(failed)) == (502, "")
    assert "another client" not in failed.text
    wait_for(lambda: bool(acme.get("/api/v1/logs", params={"source": "webapp", "text": "another client"}).json()["data"]))
    for url in (path, "/_gos/sign-in"):
        answers = [failed.status_code]
        while answers[-1] != 429 and len(answers) < 60:
            answers.append(browser.get(url, headers=PAGE).status_code)
        assert answers[-1] == 429
    assert int(browser.get(path, headers=PAGE).headers["retry-after"]) > 0
