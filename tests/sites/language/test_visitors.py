"""Visitors of a WebApp on its own domain read errors in the language of their browser, in the app's pages and its scripts alike."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from appliance.tenants import service
from appliance.testing.running import Running
from tests.sites.route_shop import ROUTES, SAME, deploy, wait_for
from tests.sites.test_access import open_app
from tests.sites.test_domains import claim

HOST = "laden.test"
PAGE = {"Sec-Fetch-Mode": "navigate", "Accept": "text/html"}
FAILED = "die Anfrage ließ sich nicht erledigen"
GERMAN, ENGLISH = {"Accept-Language": "de-AT,de;q=0.9,en;q=0.5"}, {"Accept-Language": "en"}
Ask = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def shop(running: Running, acme: httpx.Client, route_shop: httpx.Client) -> Iterator[str]:
    """A WebApp with routes on a domain of its own."""
    reading = {"path": "/api/kept", "entities": "route-orders", "operations": ["view"], "access": "public"}
    deploy(acme, "laden", [*ROUTES, reading], spa=False).raise_for_status()
    claim(running, acme, "laden", HOST)
    yield HOST
    acme.delete("/api/v1/webapps/laden?force=true").raise_for_status()


@pytest.fixture
def ask(running: Running, shop: str) -> Iterator[Ask]:
    """Sends a request of a German browser to a host, the shop's unless another is named."""
    with running.client(shop, SAME | GERMAN) as client:

        def send(path: str, method: str = "GET", host: str = shop, **more: Any) -> httpx.Response:
            client.headers["Host"] = f"{host}{running.config.port_suffix}"
            return client.request(method, path, **more)

        yield send


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error that a script of the app gets, in the language that the response names as the reason for its words."""
    assert "accept-language" in answer.headers["vary"].lower(), answer.headers
    assert answer.headers["cache-control"] == "no-store"
    error: dict[str, Any] = answer.json()["error"]
    return error


def assert_german_page(answer: httpx.Response, status: int, *sentences: str) -> None:
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert "accept-language" in answer.headers["vary"].lower(), answer.headers
    assert "no-store" in answer.headers["cache-control"]
    assert '<html lang="de"' in answer.text
    for each in sentences:
        assert each in answer.text, answer.text


def test_a_page_that_does_not_exist(ask: Ask) -> None:
    answer = ask("/fehlt", headers=PAGE)
    assert_german_page(answer, 404, "Unter dieser Adresse gibt es nichts", 'href="/"', "Zurück zur App")
    english = ask("/fehlt", headers=PAGE | ENGLISH)
    assert (english.status_code, '<html lang="en"' in english.text) == (404, True)
    assert "There is nothing at this address" in english.text
    assert ask("/fehlt.png").text == "not found"  # nobody reads what an image says


def test_a_script_gets_the_sentence_that_it_shows(ask: Ask) -> None:
    error = error_of(ask("/api/orders", "POST", json={"name": ""}))
    assert (error["code"], error["status"]) == ("validation_failed", 422)
    assert error["details"][0]["pointer"] == "/name"
    assert "mindestens" in error["details"][0]["message"]
    assert error_of(ask("/api/orders", "POST", json={"name": "crash"}))["message"].startswith(FAILED)
    assert error_of(ask("/api/orders", "DELETE"))["message"] == "DELETE wird hier nicht unterstützt; verwenden Sie POST"
    assert error_of(ask("/api/kept/ent_none"))["message"] == "Sie haben dafür keine Berechtigung"
    assert error_of(ask("/", "POST"))["message"] == "die Dateien einer WebApp unterstützen nur GET und HEAD"
    foreign = error_of(ask("/api/orders", "POST", json={}, headers={"Sec-Fetch-Site": "cross-site"}))
    assert foreign["message"].startswith("dieser Aufruf kommt von einer anderen Website")
    large = error_of(ask("/api/orders", "POST", content=b"x" * (2 << 20), headers={"Content-Type": "application/json"}))
    assert (large["code"], "höchstens" in large["message"]) == ("payload_too_large", True)
    english = error_of(ask("/api/orders", "DELETE", headers=ENGLISH))
    assert english["message"] == "DELETE is not supported here; use POST"


def test_what_a_process_says_stays_as_its_author_wrote_it(ask: Ask) -> None:
    error = error_of(ask("/api/orders", "POST", json={"name": "reject"}))
    assert (error["code"], error["message"]) == ("rejected", "This is <sold out>")


def test_a_plain_form_gets_a_page(ask: Ask) -> None:
    wrong = ask("/api/orders", "POST", data={"name": ""}, headers=PAGE)
    assert_german_page(wrong, 422, "Das hat nicht geklappt", "Einige der eingegebenen Werte sind ungültig", "Zurück zur App")
    assert "Some of" not in wrong.text
    failed = ask("/api/orders", "POST", data={"name": "crash"}, headers=PAGE)
    assert_german_page(failed, 502, "Die Anfrage ließ sich nicht erledigen; versuchen Sie")
    assert_german_page(ask("/", "POST", data={"name": "x"}, headers=PAGE), 405, "nur GET und HEAD", 'href="/"')


def test_too_many_calls(ask: Ask) -> None:
    answers = [ask("/api/few", "POST", json={"name": "a"}) for _ in range(3)]
    assert answers[-1].status_code == 429
    assert "versuchen Sie es" in error_of(answers[-1])["message"]


def test_the_end_of_an_execution_that_the_browser_follows(ask: Ask, acme: httpx.Client) -> None:
    answer = ask("/api/slow", "POST", json={})
    cookie, follow = answer.headers["set-cookie"].partition(";")[0], answer.headers["location"]
    execution = wait_for(lambda: acme.get("/api/v1/processes/route-slow/executions", params={"status": "waiting"}).json()["data"])
    acme.post(f"/api/v1/processes/route-slow/executions/{execution[0]['execution_id']}/cancel", json={}).raise_for_status()

    def end() -> Any:
        state = ask(follow, headers={"Cookie": cookie})
        return state if state.json()["data"]["status"] == "failed" else None

    state = wait_for(end)
    assert "accept-language" in state.headers["vary"].lower()
    assert state.json()["data"]["error"]["message"].startswith(FAILED)
    stream = ask(follow, headers={"Cookie": cookie, "Accept": "text/event-stream"})
    assert (FAILED in stream.text, "accept-language" in stream.headers["vary"].lower()) == (True, True)
    assert "nicht verfolgen" in error_of(ask(follow))["message"]


def test_files_are_the_same_in_every_language(ask: Ask) -> None:
    german, english = ask("/", headers=PAGE), ask("/", headers=PAGE | ENGLISH)
    assert (german.status_code, german.headers["etag"]) == (200, english.headers["etag"])
    assert "accept-language" not in german.headers.get("vary", "").lower()
    known = {"If-None-Match": german.headers["etag"]}
    assert ask("/", headers=PAGE | ENGLISH | known).status_code == 304


def test_hosts_that_serve_nothing(ask: Ask, running: Running, acme: httpx.Client) -> None:
    assert_german_page(ask("/", host="niemand.test", headers=PAGE), 421, "Dieser Hostname wird hier nicht bedient")
    assert ask("/", host="niemand.test").json()["error"]["message"] == "this host name is not served here; check the address"
    acme.post("/api/v1/webapps", json={"id": "leer"}).raise_for_status()
    empty = ask("/", host="leer--acme.content.localhost", headers=PAGE)
    assert_german_page(empty, 404, "Hier ist noch nichts veröffentlicht")


def test_a_refusal_before_the_app_is_reached(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while the tenant is reset: the front itself refuses, and an app's script shows that as well."""

    def refuse(_: str) -> None:
        raise service.being_reset()

    monkeypatch.setattr(service, "refuse_reset", refuse)
    assert_german_page(ask("/", headers=PAGE), 503, "Zurzeit nicht verfügbar", "Erneut versuchen")
    german = error_of(ask("/api/orders", "POST", json={"name": "a"}))
    english = error_of(ask("/api/orders", "POST", json={"name": "a"}, headers=ENGLISH))
    assert (german["code"], german["status"]) == (english["code"], english["status"])
    assert german["message"] != english["message"]
    assert_german_page(ask("/api/orders", "POST", data={"name": "a"}, headers=PAGE), 503, "Zurück zur App")


def test_a_preview_without_its_link(ask: Ask) -> None:
    host = "v1-laden--acme.content.localhost"
    assert_german_page(ask("/", host=host, headers=PAGE), 403, "Diese Vorschau braucht einen gültigen Link")
    closed = ask("/", host=host)
    assert (closed.status_code, closed.json()["error"]["message"][:13]) == (403, "diese Vorscha")


def test_an_app_behind_a_password(ask: Ask, running: Running, acme: httpx.Client) -> None:
    acme.put("/api/v1/secrets/TOR", json={"value": "open sesame, please"}).raise_for_status()
    open_app(acme, "tor", {"password": {"secret": "TOR"}})
    claim(running, acme, "tor", "tor.test")
    entry = ask("/_gos/sign-in", host="tor--acme.content.localhost", headers=PAGE)
    assert_german_page(entry, 200, "Passwort")
    wrong = ask("/_gos/sign-in", "POST", host="tor--acme.content.localhost", data={"password": "x"}, headers=PAGE)
    assert_german_page(wrong, 401, "Dieses Passwort ist nicht richtig")
    script = error_of(ask("/report", host="tor.test"))
    assert (script["code"], script["message"][:36]) == ("sign_in_required", "diese App verlangt eine Anmeldung; ö")


def test_the_public_files_of_a_tenant(ask: Ask) -> None:
    host = "cdn--acme.content.localhost"
    assert_german_page(ask("/fehlt.pdf", host=host, headers=PAGE), 404, "Unter dieser Adresse gibt es nichts")
    assert ask("/fehlt.pdf", host=host).text == "not found"
    refused = error_of(ask("/fehlt.pdf", "DELETE", host=host))
    assert refused["message"] == "öffentliche Dokumente unterstützen nur GET und HEAD"
    assert_german_page(ask("/s/unknown", host=host, headers=PAGE), 404)


def test_the_api_stays_english(ask: Ask, acme: httpx.Client) -> None:
    answer = acme.get("/api/v1/documents/doc_none", headers=GERMAN)
    assert (answer.status_code, "vary" in answer.headers) == (404, False)
    assert "there is no" in answer.json()["error"]["message"]
