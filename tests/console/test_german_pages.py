"""No page shows an English sentence to a German reader, wherever in the appliance the sentence originates."""

import re
from html.parser import HTMLParser

import pytest

from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.screenshots.pages import ADDRESSES

TENANT, PASSWORD = "germanophone", "my own long password"
GERMAN = {"Accept-Language": "de"}
# Words that occur in no German sentence.
_WORDS = "the and of with this that from you your is are which nothing when who what its has have into"
ENGLISH = re.compile(rf"\b(?:{_WORDS.replace(' ', '|')})\b", re.IGNORECASE)
# Code, text that users write or have written, and words that are the same in both languages.
SILENT = {"code", "pre", "script", "style", "textarea", "kbd"}
SEEN = ("title", "aria-label", "placeholder", "alt")
# These stay English: what a connector was tested against, quoted from its documentation; names of licences; the reason
# in the example of a policy, which is data.
UNTRANSLATED = re.compile(
    r"loopback|the file system of Linux|the verifier standardwebhooks| AND | WITH |The Unlicense|Reading orders is the clerk"
)
CONNECTORS = ("http", "email", "postgresql", "s3", "salesforce", "mcp", "openapi", "webhook")


class _Texts(HTMLParser):
    """Collects the visible texts of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.silent, self.texts = 0, list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.silent += tag in SILENT
        self.texts += [value for name, value in attrs if name in SEEN and value]

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in SILENT

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.texts.append(" ".join(data.split()))


def english_in(page: str) -> list[str]:
    """The texts of a page that contain English words."""
    reader = _Texts()
    reader.feed(page)
    return [text for text in reader.texts if ENGLISH.search(text) and not UNTRANSLATED.search(text)]


@pytest.fixture(scope="module")
def reader(running: Running) -> Browser:
    """An owner of a tenant with an alert of every kind, a domain, and open tasks."""
    running.user("leser@germanophone.test", PASSWORD, TENANT, "owner")
    conditions = (
        {"kind": "failures", "above": 1, "window": "1h"}, {"kind": "failure_rate", "above": 5, "window": "1h"},
        {"kind": "duration", "longer_than": "90s", "window": "1h"}, {"kind": "queue_age", "longer_than": "10m"},
        {"kind": "integration_failing"}, {"kind": "expiring", "window": "90d"}, {"kind": "disk_full", "above": 99.99},
        {"kind": "quota", "above": 80}, {"kind": "quota", "quota": "storage", "above": 80},
    )  # fmt: skip
    with running.api(TENANT) as api:
        for condition in conditions:
            api.post("/api/v1/logs/alerts", json={"name": condition["kind"], "condition": condition}).raise_for_status()
        api.post("/api/v1/webapps", json={"id": "laden", "name": "Laden"}).raise_for_status()
        api.post("/api/v1/webapps/laden/domains", json={"host": "laden.germanophone.example"}).raise_for_status()
        api.post("/api/v1/keys", json={"name": "Kasse", "scopes": ["entities.read"]}).raise_for_status()
    browser = Browser(running)
    browser.sign_in("leser@germanophone.test", PASSWORD, TENANT)
    return browser


def test_no_page_shows_an_english_sentence(reader: Browser) -> None:
    paths = [path for route, listed in ADDRESSES.items() for path in listed if "<" not in route]
    paths += [f"/console/integrations/-/new?connector={name}" for name in CONNECTORS]
    paths += ["/console/webapps/laden", "/console/webapps/laden/domains"]
    sentences = {path: english_in(reader.get(reader.at(TENANT, path), **GERMAN).text) for path in paths}
    assert {path: texts for path, texts in sentences.items() if texts} == {}


def test_an_english_sentence_is_detected() -> None:
    page = '<p>Nichts <b>is here</b></p><code>the code</code><a title="Open the page">auf</a><textarea>of mine</textarea>'
    assert english_in(page) == ["is here", "Open the page"]
