"""The rate limit of a new API key is chosen in its form."""

import httpx

from tests.api.resources import fresh
from tests.console.browser import Browser


def test_a_key_has_the_chosen_rate_limit(owner: Browser, acme: httpx.Client) -> None:
    form = {"name": fresh("slow"), "environment": "live", "days": "30", "addresses": "", "scopes": "logs.read"}
    at = owner.at("acme", "/console/keys/new")
    assert owner.post(at, {**form, "requests": "25"}).status_code == 201
    key = next(each for each in acme.get("/api/v1/keys?limit=500").json()["data"] if each["name"] == form["name"])
    assert key["rate_limit"]["requests"] == 25
    for wrong in ("0", "many", "10000000"):
        refused = owner.post(at, {**form, "requests": wrong})
        assert (refused.status_code, 'id="requests-error"' in refused.text) == (422, True)
