"""/api/v1/llm-profiles over HTTP: profiles whose keys are never read back, and what they have cost."""

from typing import Any

import httpx
import pytest

from appliance.core.database import db
from tests.api.resources import fresh

BASE = "/api/v1/llm-profiles"
PROFILE: dict[str, Any] = {"kind": "openai", "model": "small", "base_url": "http://127.0.0.1:9/v1/", "api_key": "sk-canary-9876"}


@pytest.fixture
def slug(acme: httpx.Client) -> str:
    name = fresh("model")
    answer = acme.post(BASE, json={"slug": name, **PROFILE})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"{BASE}/{name}"
    return name


def test_a_key_is_sealed_and_never_read_back(acme: httpx.Client, slug: str) -> None:
    answer = acme.get(f"{BASE}/{slug}")
    profile = answer.json()["data"]
    assert (profile["api_key"]["sealed"], profile["base_url"], profile["version"]) == (True, "http://127.0.0.1:9/v1", 1)
    texts = [answer.text, acme.get(BASE).text, acme.get("/api/v1/logs/audit").text]
    ((sealed, settings),) = db.rows("SELECT sealed, settings FROM llm_profile WHERE id = ?", (slug,))
    assert not any("sk-canary" in text for text in (*texts, settings, bytes(sealed).decode("latin1")))


def test_a_profile_sent_back_keeps_its_key_unless_the_address_changes(acme: httpx.Client, slug: str) -> None:
    key = acme.get(f"{BASE}/{slug}").json()["data"]["api_key"]
    answer = acme.put(f"{BASE}/{slug}", json={**PROFILE, "model": "large", "api_key": key})
    assert (answer.status_code, answer.json()["data"]["api_key"]) == (200, key)
    moved = acme.put(f"{BASE}/{slug}", json={**PROFILE, "base_url": "https://example.com/v1", "api_key": key})
    assert (moved.status_code, moved.json()["error"]["details"][0]["pointer"]) == (422, "/api_key")
    without_key = acme.put(f"{BASE}/{slug}", json={name: value for name, value in PROFILE.items() if name != "api_key"})
    assert (without_key.status_code, without_key.json()["data"].get("api_key")) == (200, None)
    again = acme.put(f"{BASE}/{slug}", json={**PROFILE, "api_key": key})
    assert again.status_code == 422


def test_a_key_may_be_a_secret_of_the_tenant(acme: httpx.Client, slug: str) -> None:
    answer = acme.put(f"{BASE}/{slug}", json={**PROFILE, "api_key": "= secrets.model_key"})
    assert answer.json()["data"]["api_key"] == "= secrets.model_key"
    wrong = acme.put(f"{BASE}/{slug}", json={**PROFILE, "api_key": "= input.key"})
    assert wrong.status_code == 422


def test_concurrent_changes_conflict(acme: httpx.Client, slug: str) -> None:
    etag = acme.get(f"{BASE}/{slug}").headers["etag"]
    assert acme.put(f"{BASE}/{slug}", json=PROFILE, headers={"If-Match": etag}).status_code == 200
    late = acme.put(f"{BASE}/{slug}", json=PROFILE, headers={"If-Match": etag})
    assert (late.status_code, late.json()["error"]["code"]) == (412, "version_conflict")


def test_a_name_is_unique_and_put_creates(acme: httpx.Client, slug: str) -> None:
    second = acme.post(BASE, json={"slug": slug, **PROFILE})
    assert (second.status_code, second.json()["error"]["code"]) == (409, "already_exists")
    answer = acme.put(f"{BASE}/{fresh('put')}", json=PROFILE)
    assert answer.status_code == 201
    assert acme.delete(f"{BASE}/{slug}").json()["data"] == {"deleted": slug}
    assert acme.get(f"{BASE}/{slug}").status_code == 404


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"kind": "other"}, "/kind"),
        ({"base_url": "ftp://example.com"}, "/base_url"),
        ({"base_url": "http://ann:pw@example.com"}, "/base_url"),
        ({"timeout": "soon"}, "/timeout"),
        ({"timeout": "16m"}, "/timeout"),
        ({"parameters": {"temperature": 3}}, "/parameters/temperature"),
        ({"parameters": {"extra": {"messages": []}}}, "/parameters/extra"),
        ({"budgets": {"day": {"cost": 1}}}, ""),
        ({"kind": "anthropic", "structured": "json"}, ""),
        ({"redaction": {"patterns": [{"name": "X", "pattern": "("}]}}, "/redaction/patterns/0"),
        ({"redaction": {"patterns": [{"use": "names"}]}}, "/redaction/patterns/0"),
        ({"redaction": {"patterns": [{"pattern": "abc"}]}}, "/redaction/patterns/0"),
        ({"fallbacks": ["Not A Slug"]}, "/fallbacks"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_an_invalid_profile_is_reported_with_a_pointer(acme: httpx.Client, change: dict[str, Any], pointer: str) -> None:
    answer = acme.post(BASE, json={"slug": fresh("model"), **PROFILE, **change})
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["details"][0]["pointer"].rstrip("/") == pointer, answer.text


def test_usage_of_an_unused_profile(acme: httpx.Client, slug: str) -> None:
    usage = acme.get(f"{BASE}/{slug}/usage").json()["data"]
    nothing = {"calls": 0, "input_tokens": 0, "output_tokens": 0, "cost": 0.0}
    assert (usage["day"], usage["month"], usage["in_flight"], usage["days"]) == (nothing, nothing, nothing, [])
