"""Shares for named people: downloads need a verified address, and the audience is never revealed."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import httpx
import pytest

from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.documents.sharing import Audience, DeliverableContent, OpenShare, Origin, Share, Shares
from appliance.sites.shares.share_gate import ShareGate, ShareRequest
from appliance.tenants.sign_in import EmailCodes
from appliance.testing.running import Running
from appliance.web import Exchange
from tests.console.browser import Browser as Console
from tests.sites.test_cdn import DOCUMENTS, upload
from tests.sites.test_sign_in import Mailbox, running_mailbox, wait_for

ANN, BOB, EVE = "ann@firma.example", "bob@else.example", "eve@evil.example"
SEALER = Sealer(b"k" * 32)
DATA = b"%PDF-1.7\n" + bytes(range(256)) * 40
SAME = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}


@pytest.fixture
def post(acme: httpx.Client) -> Iterator[Mailbox]:
    """Receives the emails of the integration `couriers` of acme."""
    with running_mailbox(acme, "couriers", "files@firma.example") as mailbox:
        yield mailbox


def emails_to(post: Mailbox, email: str) -> list[int]:
    """The indexes of the emails to this address."""
    return [number for number, (recipients, _) in enumerate(post.emails) if recipients == [email]]


class Browser:
    """A browser on the CDN host, which keeps secure cookies over plain HTTP as browsers do on localhost."""

    def __init__(self, client: httpx.Client, path: str) -> None:
        self.client = client
        self.path = path
        self.jar: dict[str, str] = {}

    def get(self, suffix: str = "", **headers: str) -> httpx.Response:
        return self._store_cookies(self.client.get(self.path + suffix, headers={**self.cookies(), **headers}))

    def send(self, **form: str) -> httpx.Response:
        return self._store_cookies(self.client.post(self.path, data=form, headers={**self.cookies(), **SAME}))

    def cookies(self) -> dict[str, str]:
        return {"Cookie": "; ".join(f"{name}={value}" for name, value in self.jar.items())}

    def _store_cookies(self, answer: httpx.Response) -> httpx.Response:
        self.client.cookies.clear()
        for header in answer.headers.get_list("set-cookie"):
            pair, _, rules = header.partition(";")
            assert rules.endswith("; Secure; HttpOnly; SameSite=Lax")
            assert "Domain" not in rules
            name, _, value = pair.partition("=")
            self.jar.pop(name, None)
            if "Max-Age=0;" not in rules:
                self.jar[name] = value
        return answer

    def enter(self, post: Mailbox, email: str) -> httpx.Response:
        """Ask for a code, read it, send it, and see the file offered."""
        before = len(emails_to(post, email))
        assert self.send(email=email).status_code == 303
        assert email in self.get().text
        wait_for(lambda: len(emails_to(post, email)) > before)
        assert self.send(code=post.code(emails_to(post, email)[-1])).status_code == 303
        return self.get()


@pytest.fixture
def browser(running: Running) -> Iterator[Callable[[dict[str, Any]], Browser]]:
    """Makes a browser that follows a share."""
    clients: list[httpx.Client] = []

    def make(share: dict[str, Any]) -> Browser:
        clients.append(running.client("cdn--acme.content.localhost"))
        return Browser(clients[-1], str(httpx.URL(share["url"]).path))

    yield make
    for each in clients:
        each.close()


@pytest.fixture
def document(acme: httpx.Client) -> str:
    return upload(acme, "קובץ & Ürün.pdf", DATA)


def share(acme: httpx.Client, document: str, *allow: str, **more: Any) -> dict[str, Any]:
    body = {"audience": {"integration": "couriers", "allow": list(allow)}, **more}
    return dict(acme.post(f"{DOCUMENTS}/{document}/shares", json=body).raise_for_status().json()["data"])


def change(acme: httpx.Client, created: dict[str, Any], **audience: Any) -> httpx.Response:
    return acme.patch(f"{DOCUMENTS}/{created['document_id']}/shares/{created['id']}", json={"audience": audience})


def people(acme: httpx.Client, document: str) -> list[str]:
    """The people whose downloads are complete, the latest first."""
    lines = acme.get(f"{DOCUMENTS}/{document}/downloads").json()["data"]
    return [line["person"] for line in lines if line["outcome"] == "complete"]


Make = Callable[[dict[str, Any]], Browser]


def test_a_verified_address_downloads_under_its_name(acme: httpx.Client, post: Mailbox, browser: Make, document: str) -> None:
    created = share(acme, document, "Ann@Firma.example", "*@else.example", max_downloads=2)
    assert created["audience"] == {"integration": "couriers", "allow": [ANN, "*@else.example"]}
    ann, bob, other = browser(created), browser(created), browser(created)
    for suffix in ("", "/file"):
        shut = ann.get(suffix)
        assert (shut.status_code, "Confirm your email address" in shut.text, "pdf" in shut.text) == (403, True, False)
    ann.send(email=" ANN@firma.example")
    code = post.code(0)
    assert post.emails[0][0] == [ANN]
    assert "the file that acme shares with you on cdn--acme.content.localhost" in post.emails[0][1].replace("\n ", " ")
    assert "requested in another browser" in other.send(code=code).text
    assert "code is not correct" in ann.send(code="12345678" if code != "12345678" else "87654321").text
    assert ann.send(code=f"{code[:4]} {code[4:]}").headers["location"] == ann.path
    page = ann.get()
    assert (page.status_code, "קובץ &amp; Ürün.pdf" in page.text, ANN in page.text) == (200, True, True)
    until = [ticket.partition("-")[0] for ticket in ann.jar.values()]
    assert ann.get("/file").content == DATA
    assert [ticket.partition("-")[0] for ticket in ann.jar.values()] == until  # a download makes no visit longer
    ann.jar.clear()
    ann.send(email=ANN)
    assert "code is not correct" in ann.send(code=code).text  # that one is used
    assert ann.get("/file").status_code == 403
    bob.enter(post, BOB)
    assert bob.get("/file").content == DATA
    wait_for(lambda: people(acme, document) == [BOB, ANN])  # an end is noted when the last byte has left
    assert f",complete,{BOB}" in acme.get(f"{DOCUMENTS}/{document}/downloads/export").text


def test_the_audience_is_not_revealed(acme: httpx.Client, post: Mailbox, browser: Make, document: str) -> None:
    created, results = share(acme, document, ANN), []
    for email in (EVE, ANN):
        visitor = browser(created)
        response = visitor.send(email=email)
        answers = [response, visitor.get(), *(visitor.send(code="nonsense") for _ in range(6)), visitor.get("/file")]
        again = visitor.send(email=email).status_code
        bodies = [each.text.replace(email, "ADDRESS") for each in answers]
        headers = [sorted(name for name in each.headers if name != "content-length") for each in answers]
        results.append(([each.status_code for each in answers], bodies, headers, again, list(visitor.jar)))
    assert results[0] == results[1]
    post.code(0)
    assert {recipients[0] for recipients, _ in post.emails} == {ANN}
    states = db.rows("SELECT email, state FROM email_code WHERE door = ? AND state = 'none'", (f"share:{created['id']}",))
    assert {email for email, _ in states} == {EVE}
    outcomes = [each["outcome"] for each in acme.get(f"{DOCUMENTS}/{document}/downloads").json()["data"]]
    assert set(outcomes) == {"wrong_code"}
    assert "person" not in acme.get(f"{DOCUMENTS}/{document}/downloads").json()["data"][0]


def test_a_failed_email_is_reported_to_the_tenant_only(
    acme: httpx.Client, post: Mailbox, browser: Make, document: str
) -> None:
    created = share(acme, document, ANN)
    post.reply = "554 not today"
    visitor = browser(created)
    visitor.send(email=ANN)

    def lines() -> list[dict[str, Any]]:
        return list(acme.get("/api/v1/logs", params={"source": "share", "text": created["id"]}).json()["data"])

    wait_for(lambda: lines() != [])
    assert "could not send a sign-in code with couriers" in lines()[0]["message"]
    assert visitor.get().text.count('role="alert"') == 0


def test_a_flood_of_codes_is_refused(acme: httpx.Client, post: Mailbox, browser: Make, document: str) -> None:
    visitor = browser(share(acme, document, ANN))
    answers = [visitor.send(email=ANN) for _ in range(6)]
    assert [each.status_code for each in answers] == [303] * 5 + [429]
    assert "try again in" in answers[-1].text
    assert int(answers[-1].headers["retry-after"]) > 0
    assert visitor.send(email="nobody").status_code == 422


def test_changing_the_audience_ends_visits(acme: httpx.Client, post: Mailbox, browser: Make, document: str) -> None:
    created = share(acme, document, ANN, BOB)
    ann, bob = browser(created), browser(created)
    for visitor, email in ((ann, ANN), (bob, BOB)):
        assert visitor.enter(post, email).status_code == 200
    ends = list(ann.jar)
    changed = change(acme, created, allow=[BOB])
    assert changed.json()["data"]["audience"] == {"integration": "couriers", "allow": [BOB]}
    for visitor in (ann, bob):
        assert (visitor.get("/file").status_code, visitor.get().status_code) == (403, 403)
    change(acme, created, allow=[ANN, BOB]).raise_for_status()
    assert ann.get("/file").status_code == 403  # what was proven before does not come back
    ann.enter(post, ANN)
    assert ann.get("/file", Range="bytes=0-9").status_code == 206
    tickets = dict(ann.jar)
    bob.enter(post, BOB)
    theirs = next(name for name in bob.jar if name in ends)
    assert tickets[theirs] != bob.jar[theirs]
    acme.delete(f"{DOCUMENTS}/{document}/shares/{created['id']}").raise_for_status()
    assert {visitor.get(suffix).status_code for visitor in (ann, bob) for suffix in ("", "/file")} == {404}


def test_a_visit_can_be_left_and_opens_no_other_share(acme: httpx.Client, post: Mailbox, browser: Make, document: str) -> None:
    created = share(acme, document, ANN, password="a sentence to tell")
    ann, elsewhere = browser(created), browser(share(acme, document, ANN))
    assert "Enter the password" in ann.send(email=ANN).text  # the password comes first
    assert post.emails == []
    assert ann.send(password="a sentence to tell").status_code == 303
    assert "Confirm your email address" in ann.get().text
    assert ann.get("/file").status_code == 403
    assert ann.enter(post, ANN).status_code == 200
    [(name, ticket)] = ann.jar.items()
    elsewhere.jar = {name: ticket, name.replace(created["id"], other_share_id(acme, document, created)): ticket}
    assert elsewhere.get().status_code == 403
    foreign = ann.client.post(ann.path, data={"leave": "1"}, headers={**ann.cookies(), "Sec-Fetch-Site": "same-site"})
    assert "set-cookie" not in foreign.headers
    assert ann.send(leave="1").status_code == 303
    assert (ann.jar, ann.get().status_code) == ({}, 403)


def other_share_id(acme: httpx.Client, document: str, created: dict[str, Any]) -> str:
    listed = acme.get(f"{DOCUMENTS}/{document}/shares").json()["data"]
    return str(next(each["id"] for each in listed if each["id"] != created["id"]))


def test_a_download_is_continued_by_the_same_person_only(acme: httpx.Client, post: Mailbox, browser: Make, document: str) -> None:
    created = share(acme, document, ANN, BOB, max_downloads=1)
    ann, bob = browser(created), browser(created)
    for visitor, email in ((ann, ANN), (bob, BOB)):
        visitor.enter(post, email)
    assert ann.get("/file", Range="bytes=0-99").content == DATA[:100]
    assert ann.get("/file", Range="bytes=100-").content == DATA[100:]
    assert bob.get("/file", Range="bytes=100-").status_code == 404


def test_an_invalid_audience_is_refused(acme: httpx.Client, post: Mailbox, document: str) -> None:
    def refused(audience: Any) -> tuple[str, str]:
        answer = acme.post(f"{DOCUMENTS}/{document}/shares", json={"audience": audience}).json()["error"]
        return answer["code"], answer["details"][0]["pointer"]

    pointers = {
        "/audience/integration": {"integration": "nobody", "allow": [ANN]},
        "/audience/allow": {"integration": "couriers", "allow": []},
        "/audience/allow/1": {"integration": "couriers", "allow": [ANN, "everybody"]},
        "/audience/emails": {"integration": "couriers", "allow": [ANN], "emails": [ANN]},
    }
    for pointer, audience in pointers.items():
        assert refused(audience) == ("validation_failed", pointer)
    created = share(acme, document, ANN)
    plain = acme.post(f"{DOCUMENTS}/{document}/shares", json={}).json()["data"]
    assert change(acme, created, allow=None).status_code == 422
    assert change(acme, created, integration="nobody").status_code == 422
    assert change(acme, plain, allow=[ANN]).json()["error"]["details"][0]["pointer"] == "/audience/integration"
    assert change(acme, plain, integration="couriers", allow=[ANN]).json()["data"]["audience"]["allow"] == [ANN]
    assert created["document_id"] in acme.get("/api/v1/logs/audit").text


def test_console_sessions_are_not_valid_here(
    running: Running, acme: httpx.Client, post: Mailbox, browser: Make, document: str
) -> None:
    member, console = "member@firma.example", Console(running)
    running.user(member, "correct horse battery", "acme")
    assert console.sign_in(member, "correct horse battery", "acme").status_code == 200
    visitor = browser(share(acme, document, member))
    for jar in console.cookies.values():
        visitor.jar.update(jar)
    assert visitor.jar
    for headers in ({}, {"X-API-Key": acme.headers["X-API-Key"]}):
        assert "Confirm your email address" in visitor.get(**headers).text
        assert visitor.get("/file", **headers).status_code == 403
    assert visitor.enter(post, member).status_code == 200


@pytest.mark.usefixtures("two_tenants")
@pytest.mark.parametrize(("scheme", "template"), [("http", "needs_https.html"), ("https", "share_email.html")])
def test_browsers_without_secure_cookies_get_an_explanation(scheme: str, template: str) -> None:
    scope = {"scheme": scheme, "query_string": b"", "headers": [(b"host", b"cdn--acme.files.example")]}
    content = DeliverableContent("doc_1", 1, "a.txt", "text/plain", 1, "0", 0)
    shared = Share("shr_1", "doc_1", 1, 0, False, None, 0, "", 0, "", None, "active", Audience("couriers", (ANN,)))
    shares = Shares(cast(Any, None), SEALER)
    gate = ShareGate(shares, cast(Any, None), EmailCodes(SEALER), cast(Any, None))
    visit = gate.read_visit(OpenShare(shared, content), [])
    exchange = Exchange(scope, cast(Any, None), cast(Any, None))
    request = ShareRequest(TenantScope("acme", "site"), "token", OpenShare(shared, content), visit, Origin("", ""), exchange)
    page = gate.show_next_step(request)
    assert page.template == template
    assert page.values.get("host", "cdn--acme.files.example/s/token") == "cdn--acme.files.example/s/token"
