"""The audit page: search, verification, and an export that can be recomputed."""

import hashlib
import json

import pytest

from appliance.core.database import db
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.conftest import PASSWORD

TENANT, PAGE = "ledger", "/console/audit"


@pytest.fixture(scope="module")
def reader(running: Running) -> Browser:
    """A viewer of a tenant where two keys were issued and a secret was set."""
    running.user("vera@ledger.test", PASSWORD, TENANT, "viewer")
    with running.api(TENANT) as api, running.api(TENANT):
        api.put("/api/v1/secrets/orchid", json={"value": "a quiet green thing"}).raise_for_status()
    browser = Browser(running)
    assert browser.sign_in("vera@ledger.test", PASSWORD, TENANT).status_code == 200
    return browser


def rows(reader: Browser, query: str) -> int:
    page = reader.get(reader.at(TENANT, PAGE + query))
    assert page.status_code == 200
    return page.text.count('data-testid="row"')


def test_entries_are_filtered_by_text_author_and_time(reader: Browser) -> None:
    everything = rows(reader, "")
    assert rows(reader, "?text=ORCHID") == 1
    assert rows(reader, "?action=key.issue") == 2
    assert rows(reader, "?action=key.issue&text=orchid") == 0
    assert rows(reader, "?actor=system") < everything
    assert rows(reader, "?since=2020-01-01") == everything
    assert rows(reader, "?until=2020-01-01") == 0
    assert rows(reader, "?text=100%25_") == 0
    wrong = reader.get(reader.at(TENANT, f"{PAGE}?since=yesterday"))
    assert (wrong.status_code, "Enter a date such as 2026-01-31" in wrong.text) == (422, True)


def test_an_export_can_be_recomputed(reader: Browser) -> None:
    answer = reader.get(reader.at(TENANT, f"{PAGE}/export"))
    assert answer.headers["Content-Disposition"].startswith("attachment")
    *entries, signature = [json.loads(line) for line in answer.text.splitlines()]
    assert "signature" in signature
    previous = "0" * 64
    for number, entry in enumerate(entries, 1):
        assert (entry["seq"], entry["previous_hash"]) == (number, previous)
        names = ("tenant_id", "seq", "at", "actor", "action", "subject", "fields", "previous_hash")
        content = json.dumps([entry[name] for name in names], separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha256(content.encode()).hexdigest() == entry["hash"]
        previous = entry["hash"]
    *only, _ = reader.get(reader.at(TENANT, f"{PAGE}/export?text=orchid")).text.splitlines()
    assert [json.loads(line)["subject"] for line in only] == ["orchid"]


def test_the_chain_is_verified_and_a_change_is_detected(reader: Browser) -> None:
    verify = reader.at(TENANT, f"{PAGE}/verify")
    assert "The chain is intact." in reader.post(verify, {}).text
    query = "SELECT fields FROM audit_entry WHERE tenant_id = ? AND seq = 2"
    ((before,),) = db.rows(query, (TENANT,))
    change = "UPDATE audit_entry SET fields = ? WHERE tenant_id = ? AND seq = 2"
    db.write(lambda: db.execute(change, ('{"nothing": "happened"}', TENANT)))
    try:
        page = reader.post(verify, {}).text
        assert "The chain is broken at entry 2:" in page
        assert "its content was changed" in page
    finally:
        db.write(lambda: db.execute(change, (before, TENANT)))
    assert "The chain is intact." in reader.post(verify, {}).text


def test_keys_that_expire_soon_are_reported(running: Running) -> None:
    running.user("olaf@ledger.test", PASSWORD, TENANT, "owner")
    browser = Browser(running)
    browser.sign_in("olaf@ledger.test", PASSWORD, TENANT)
    page = browser.at(TENANT, "/console/keys")
    assert "within 30 days" not in browser.get(page).text
    running.key(TENANT, ["logs.read"], expires_in_days=20)
    assert "1 key expires within 30 days:" in browser.get(page).text
