"""Shares on the CDN host: the page, the password, counted downloads, and one response for all invalid links."""

import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from appliance.core import clock
from appliance.documents.sharing import Shares
from appliance.tenants.sign_in import MAX_WAITING, Attempt, DailyLimit
from appliance.testing.running import Running
from tests.sites.test_cdn import DOCUMENTS, upload

DATA = b"%PDF-1.7\n" + bytes(range(256)) * 1500


@pytest.fixture
def visitor(running: Running) -> Iterator[httpx.Client]:
    """A browser without any cookie yet."""
    with running.client("cdn--acme.content.localhost") as client:
        client.headers["Accept-Encoding"] = "identity"
        yield client


@pytest.fixture(scope="module")
def document(acme: httpx.Client) -> str:
    return upload(acme, "Angebot <1>.pdf".replace("<", "(").replace(">", ")"), DATA)


def share(acme: httpx.Client, document: str, **body: Any) -> dict[str, Any]:
    return dict(acme.post(f"{DOCUMENTS}/{document}/shares", json=body).raise_for_status().json()["data"])


def path_of(created: dict[str, Any]) -> str:
    return str(httpx.URL(created["url"]).path)


def cookie_header(answer: httpx.Response) -> dict[str, str]:
    """What a browser would send back; the client here is not one that keeps a secure cookie over plain HTTP."""
    header = answer.headers["set-cookie"]
    assert header.startswith("__Host-gos_shr_")
    assert header.endswith("; Path=/; Max-Age=86400; Secure; HttpOnly; SameSite=Lax")
    return {"Cookie": header.partition(";")[0]}


def test_a_link_offers_the_file_and_counts_its_downloads(acme: httpx.Client, visitor: httpx.Client, document: str) -> None:
    created = share(acme, document, max_downloads=2, note="for a customer")
    page = visitor.get(path_of(created))
    assert page.status_code == 200
    assert "Angebot (1).pdf" in page.text
    assert "2 downloads left" in page.text
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["cache-control"] == "private, no-store"
    assert page.headers["content-security-policy"].startswith("default-src 'none'; style-src 'sha256-")
    assert "set-cookie" not in page.headers
    file = path_of(created) + "/file"
    assert visitor.head(file).headers["content-length"] == str(len(DATA))
    assert visitor.head(file, headers={"Range": "bytes=0-9"}).status_code == 200
    answer = visitor.get(file)
    assert (answer.status_code, answer.content) == (200, DATA)
    assert answer.headers["content-disposition"] == 'attachment; filename="Angebot (1).pdf"'
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["content-security-policy"].endswith("; frame-ancestors 'none'")
    assert "access-control-allow-origin" not in answer.headers
    etag = answer.headers["etag"]
    assert visitor.get(file, headers={"If-None-Match": etag}).status_code == 304
    assert visitor.get(file, headers={"Range": "bytes=9999999-"}).status_code == 416
    state = acme.get(f"{DOCUMENTS}/{document}/shares/{created['id']}").json()["data"]
    assert (state["downloads"], state["state"], "url" in state) == (1, "active", False)


def test_an_interrupted_download_continues(acme: httpx.Client, visitor: httpx.Client, document: str) -> None:
    created = share(acme, document, max_downloads=1)
    file = path_of(created) + "/file"
    first = visitor.get(file, headers={"Range": "bytes=0-999"})
    assert (first.status_code, first.content) == (206, DATA[:1000])
    cookie = cookie_header(first)
    visitor.cookies.clear()
    assert visitor.get(file, headers={"Range": "bytes=1000-"}).status_code == 404
    rest = visitor.get(file, headers={"Range": "bytes=1000-", **cookie})
    assert (rest.status_code, rest.content) == (206, DATA[1000:])
    assert visitor.get(file, headers=cookie).status_code == 404
    assert visitor.get(path_of(created), headers=cookie).status_code == 404
    [line] = [each for each in _log(acme, document) if each["share_id"] == created["id"]]
    assert (line["outcome"], line["bytes"], line["count"]) == ("complete", len(DATA), 1)
    assert (line["address"], line["agent"]) == ("127.0.0.0/24", "Python")
    table = acme.get(f"{DOCUMENTS}/{document}/downloads/export")
    assert created["id"] in table.text
    assert table.headers["content-type"].startswith("text/csv")


def _log(acme: httpx.Client, document: str) -> list[dict[str, Any]]:
    return [each for each in acme.get(f"{DOCUMENTS}/{document}/downloads").json()["data"] if "share_id" in each]


def test_the_password_is_required_before_anything_is_revealed(acme: httpx.Client, visitor: httpx.Client, document: str) -> None:
    created = share(acme, document, password="a sentence to tell")
    path = path_of(created)
    for url in (path, f"{path}/file"):
        page = visitor.get(url)
        assert page.status_code == 403
        assert "Enter the password" in page.text
        assert "Angebot" not in page.text
    wrong = visitor.post(path, data={"password": "a sentence to guess"})
    assert (wrong.status_code, "set-cookie" in wrong.headers) == (403, False)
    assert "That password is not correct." in wrong.text
    for site in ("cross-site", "same-site"):
        foreign = visitor.post(path, data={"password": "a sentence to tell"}, headers={"Sec-Fetch-Site": site})
        assert (foreign.status_code, "set-cookie" in foreign.headers) == (403, False)
    assert visitor.post(path, content=b"x" * 5000).status_code == 413
    right = visitor.post(path, data={"password": "a sentence to tell"})
    assert (right.status_code, right.headers["location"]) == (303, path)
    cookie = cookie_header(right)
    visitor.cookies.clear()
    name = cookie["Cookie"].partition("=")[0]
    beside = {"Cookie": f'{name}=1-x.0; \x01"[]=,; {cookie["Cookie"]}'}
    assert "Download" in visitor.get(path, headers=beside).text
    other = share(acme, document, password="a sentence to tell")
    assert visitor.get(path_of(other), headers=cookie).status_code == 403
    name, _, value = cookie["Cookie"].partition("=")
    forged = {"Cookie": f"{name.replace(created['id'], other['id'])}={value}"}
    assert visitor.get(path_of(other), headers=forged).status_code == 403
    answer = visitor.get(f"{path}/file", headers=cookie)
    assert answer.content == DATA
    assert cookie_header(answer) != cookie


def test_a_password_is_remembered_for_a_day(
    running: Running, acme: httpx.Client, visitor: httpx.Client, document: str
) -> None:
    path = path_of(share(acme, document, password="a sentence to tell"))
    shares, scope = running.services.documents.shares, running.tenant("acme")
    opened = shares.open_share(scope, path.removeprefix("/s/"))
    assert opened is not None
    for until, status in ((clock.now_ms() + 60_000, 200), (clock.now_ms() - 1, 403)):
        ticket = shares.seal_ticket(opened, f"{until}-")
        assert visitor.get(path, headers={"Cookie": f"__Host-gos_{opened.share.id}={ticket}"}).status_code == status


def test_guessing_is_delayed(acme: httpx.Client, visitor: httpx.Client, document: str) -> None:
    path = path_of(share(acme, document, password="a sentence to tell"))
    tries = [send_password(visitor, path, "a sentence to guess", "127.0.3.1").status_code for _ in range(5)]
    assert tries == [403] * 5
    while (late := send_password(visitor, path, "a sentence to guess", "127.0.3.1")).status_code == 403:
        pass  # on a slow machine the first waits are over before the next try
    assert late.status_code == 429
    assert "Too many attempts; try again in" in late.text
    assert "set-cookie" not in late.headers
    assert send_password(visitor, path, "a sentence to tell", "127.0.3.2").status_code == 303, "nobody waits for another's tries"
    second = path_of(share(acme, document, password="a sentence to tell"))
    assert visitor.post(second, data={"password": "a sentence to tell"}).status_code == 303


@contextmanager
def from_address(visitor: httpx.Client, address: str) -> Iterator[httpx.Client]:
    elsewhere = httpx.HTTPTransport(local_address=address)
    with httpx.Client(base_url=visitor.base_url, headers=visitor.headers, transport=elsewhere, timeout=90) as client:
        yield client


def send_password(visitor: httpx.Client, path: str, password: str, address: str) -> httpx.Response:
    with from_address(visitor, address) as client:
        return client.post(path, data={"password": password})


def test_many_addresses_can_neither_guess_on_nor_block_the_share(
    acme: httpx.Client, visitor: httpx.Client, document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = DailyLimit.begin

    def begin_after_two(pace: DailyLimit, key: tuple[str, ...]) -> None:
        free, pace._free = pace._free, 2
        try:
            begin(pace, key)
        finally:
            pace._free = free

    right, wrong = "a sentence to tell", "a sentence to guess"
    path = path_of(share(acme, document, password=right))
    assert send_password(visitor, path, right, "127.0.0.9").status_code == 303
    guesses = [send_password(visitor, path, wrong, f"127.0.0.{number}").status_code for number in range(2, 6)]
    assert guesses == [403] * 4
    monkeypatch.setattr(DailyLimit, "begin", begin_after_two)
    first, second = (send_password(visitor, path, wrong, f"127.0.1.{number}") for number in range(2, 4))
    assert (first.status_code, second.status_code) == (403, 429), "one attempt in a while"
    assert 1 <= int(second.headers["retry-after"]) <= 60
    assert send_password(visitor, path, right, "127.0.0.9").status_code == 303, "whoever has given it before does not wait"
    assert send_password(visitor, path, right, "127.9.0.1").status_code == 303, "nor does who comes from another network"


def test_share_passwords_use_the_pool_of_login_checks(
    running: Running, acme: httpx.Client, visitor: httpx.Client, document: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = path_of(share(acme, document, password="a sentence to tell"))
    names: list[str] = []
    check = Shares.verify_password

    def note_and_check(*args: Any) -> bool:
        names.append(threading.current_thread().name)
        return check(*args)

    monkeypatch.setattr(Shares, "verify_password", note_and_check)
    assert send_password(visitor, path, "a sentence to tell", "127.0.2.1").status_code == 303
    assert send_password(visitor, path, "a sentence to tell", "127.0.2.1").status_code == 303
    assert names[0].startswith("password_")
    assert names[1].startswith("password-known"), "a thread of its own for who has come in before"
    free = threading.Event()
    checks = running.services.limits.password_checks
    try:
        waiting = [checks.submit(Attempt("x", f"10.77.0.{number}"), free.wait) for number in range(MAX_WAITING)]
        busy = send_password(visitor, path, "a sentence to tell", "127.0.2.2")
        assert (busy.status_code, "set-cookie" in busy.headers) == (503, False)
        assert int(busy.headers["retry-after"]) >= 1
        assert "Too many people are signing in at once" in busy.text
        assert send_password(visitor, path, "a sentence to tell", "127.0.2.1").status_code == 303
    finally:
        free.set()
    wait(waiting)


def test_all_invalid_links_get_the_same_response(
    running: Running, acme: httpx.Client, visitor: httpx.Client, document: str
) -> None:
    revoked, used = share(acme, document), share(acme, document, max_downloads=1)
    live = share(acme, document)
    acme.delete(f"{DOCUMENTS}/{document}/shares/{revoked['id']}").raise_for_status()
    assert visitor.get(f"{path_of(used)}/file").status_code == 200
    visitor.cookies.clear()
    paths = [path_of(revoked), path_of(used), f"/s/{secrets.token_urlsafe(24)}", "/s/", "/s/x/file", f"{path_of(live)}/other"]
    answers = [visitor.get(path) for path in (*paths, f"{path_of(used)}/file")]
    with running.client("cdn--globex.content.localhost") as other:
        answers.append(other.get(path_of(live)))
    assert {answer.status_code for answer in answers} == {404}
    seen = {(answer.text.replace("globex", "acme"), answer.headers["cache-control"]) for answer in answers}
    assert len(seen) == 1
    assert visitor.post(path_of(revoked), data={"password": "x"}).status_code == 404
    assert visitor.delete(path_of(live)).status_code == 405
