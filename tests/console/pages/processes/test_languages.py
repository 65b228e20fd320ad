"""Pages are in the reader's language: that of the browser, or the one chosen in the account."""

import re

import pytest

from appliance.testing.running import Running
from tests.console.browser import Browser

TENANT, PASSWORD = "polyglot", "my own long password"
GERMAN = {"Accept-Language": "de-AT,de;q=0.9,en;q=0.5"}


@pytest.fixture(scope="module")
def reader(running: Running) -> Browser:
    """A signed-in owner who has chosen no language."""
    running.user("reader@polyglot.test", PASSWORD, TENANT, "owner")
    browser = Browser(running)
    assert "Sign out" in browser.sign_in("reader@polyglot.test", PASSWORD, TENANT).text
    return browser


def words(page: str) -> set[str]:
    """The texts of a page, as they stand between its tags."""
    return {text.strip() for text in re.findall(r">([^<]+)<", page) if text.strip()}


def test_a_page_is_in_the_language_that_the_browser_asks_for(reader: Browser) -> None:
    address = reader.at(TENANT, "/console/account")
    german, english = reader.get(address, **GERMAN).text, reader.get(address, **{"Accept-Language": "fr"}).text
    assert '<html lang="de" dir="ltr">' in german
    assert {"Ihr Konto", "Freigaben", "Passwort ändern", "Abmelden", "Eigentümer", "gerade eben"} <= words(german)
    assert {"Your account", "Approvals", "Change password", "Sign out", "owner", "just now"} & words(german) == set()
    assert '<html lang="en" dir="ltr">' in english
    assert {"Your account", "Approvals", "Change password", "Sign out", "owner"} <= words(english)


def test_texts_of_scripts_are_translated(reader: Browser) -> None:
    page = reader.get(reader.at(TENANT, "/console/account"), **GERMAN).text
    assert "vor # min" in page
    assert "Kopiert" in page


def test_errors_are_in_the_language_of_the_page_and_the_sign_in_is_too(reader: Browser, running: Running) -> None:
    stranger = Browser(running)
    page = stranger.post(stranger.at("", "/sign-in"), {"login": "nobody@polyglot.test", "password": "wrong"}, **GERMAN)
    assert (page.status_code, "Anmeldename oder Passwort ist falsch." in page.text) == (401, True)
    form = {"old": PASSWORD, "password": "short", "again": "short"}
    page = reader.post(reader.at(TENANT, "/console/account/password"), form, **GERMAN)
    assert "Ein Passwort muss 15 bis 1000 Zeichen haben" in page.text
    missing = reader.get(reader.at(TENANT, "/console/nowhere"), **GERMAN)
    assert missing.status_code == 404
    assert {"Nicht gefunden", "Diese Seite gibt es nicht; nutzen Sie das Menü, um das Gesuchte zu finden."} <= words(missing.text)
    form = {"kind": "tenant", "name": "", "reason": ""}
    refused = reader.post(reader.at(TENANT, "/console/kill-switches/off"), form, **GERMAN)
    assert "Geben Sie einen Grund mit 1 bis 500 Zeichen ein; er wird bei jedem blockierten Aufruf angezeigt." in words(refused.text)


def test_machine_readable_output_stays_english(running: Running, reader: Browser) -> None:
    with running.api(TENANT) as api:
        answer = api.get("/api/v1/processes/nowhere", headers=GERMAN)
    assert "there is no process" in answer.json()["error"]["message"]


def test_the_language_of_an_account_overrides_the_browser(running: Running) -> None:
    running.user("chooser@polyglot.test", PASSWORD, TENANT, "viewer")
    browser = Browser(running)
    browser.sign_in("chooser@polyglot.test", PASSWORD, TENANT)
    account, choose = browser.at(TENANT, "/console/account"), browser.at(TENANT, "/console/account/language")
    assert '<option value="de" lang="de">Deutsch</option>' in browser.get(account).text
    page = browser.post(choose, {"language": "de"}).text
    assert '<option value="de" lang="de" selected>' in page
    assert "Ihr Konto" in browser.get(account, **{"Accept-Language": "en"}).text
    refused = browser.post(choose, {"language": "tlh"})
    assert (refused.status_code, "Wählen Sie einen Wert aus der Liste." in refused.text) == (422, True)
    assert "Your account" in browser.post(choose, {"language": ""}).text
    with running.api(TENANT) as api:
        entries = api.get("/api/v1/logs/audit", params={"action": "language.change"}).json()["data"]
    assert [entry["fields"] for entry in entries] == ['{"language":""}', '{"language":"de"}']


def test_a_refused_form_is_explained_in_the_language_of_the_account(running: Running) -> None:
    running.user("sender@polyglot.test", PASSWORD, TENANT, "owner")
    browser = Browser(running)
    browser.sign_in("sender@polyglot.test", PASSWORD, TENANT)
    browser.post(browser.at(TENANT, "/console/account/language"), {"language": "de"})
    foreign = {"Accept-Language": "en", "Sec-Fetch-Site": "cross-site"}
    upload = browser.at(TENANT, "/console/documents/-/upload")
    answers = [
        browser.post(browser.at(TENANT, "/console/account/language"), {"language": "en"}, **foreign),
        browser.upload(upload, ("a.txt", b"text"), None, **foreign),
        browser.send("POST", upload, b"no parts", {"Sec-Fetch-Site": "same-origin", "Content-Type": "text/plain"}),
    ]
    assert [answer.status_code for answer in answers] == [403, 403, 400]
    for answer in answers:
        assert '<html lang="de" dir="ltr">' in answer.text
        assert {"Abmelden", "Freigaben"} <= words(answer.text)
    assert "Dieses Formular" in answers[0].text
    stranger = Browser(running)
    page = stranger.upload(upload, ("a.txt", b"text"), None, **{**foreign, **GERMAN}).text
    assert '<html lang="de" dir="ltr">' in page
    assert "Abmelden" not in page


def test_states_and_roles_are_translated(running: Running, reader: Browser) -> None:
    with running.api(TENANT) as api:
        body = {"name": "disk", "condition": {"kind": "disk_full", "above": 99}}
        alert = api.post("/api/v1/logs/alerts", json=body).json()["data"]["id"]
    for path in ("/console/alerts", f"/console/alerts/{alert}"):
        assert "OK" in words(reader.get(reader.at(TENANT, path), **GERMAN).text)
    form = {"login": "neu@polyglot.test", "role": "operator", "approver": "yes", "way": "link"}
    assert "Bediener, Freigeber" in words(reader.post(reader.at(TENANT, "/console/people"), form, **GERMAN).text)


def test_numbers_have_the_decimal_sign_of_the_language(running: Running, reader: Browser) -> None:
    price = {"currency": "EUR", "input": 0.5, "output": 2}
    body = {"slug": "priced", "kind": "openai", "model": "m", "price": price, "budgets": {"day": {"tokens": 1234567, "cost": 12.5}}}
    with running.api(TENANT) as api:
        api.post("/api/v1/llm-profiles", json=body).raise_for_status()
    page = reader.get(reader.at(TENANT, "/console/llm-profiles/priced"), **GERMAN).text
    assert {"0 Tokens von 1\u202f234\u202f567", "0,00 EUR von 12,50"} <= words(page)
    assert "0,5 EUR Eingabe, 2,0 EUR Ausgabe" in page


def test_settings_of_connectors_are_translated(reader: Browser) -> None:
    page = reader.get(reader.at(TENANT, "/console/integrations/-/new?connector=email"), **GERMAN).text
    assert {"SMTP-Verschlüsselung", "Zum Senden"} <= words(page)
    assert {"SMTP encryption", "For sending"} & words(page) == set()
    page = reader.get(reader.at(TENANT, "/console/integrations/catalogue"), **GERMAN).text
    assert {"Eine Adresse lesen", "MySQL oder MariaDB"} <= words(page)


def test_a_share_is_shown_in_the_language_of_its_visitor(running: Running) -> None:
    with running.client(f"cdn--{TENANT}.content.localhost", GERMAN) as visitor:
        page = visitor.get("/s/unknown").text
    assert '<html lang="de" dir="ltr">' in page
    assert "Bitten Sie den Absender um einen neuen." in page
