"""A browser that asks for no language that is available gets that of the appliance."""

from pathlib import Path

from appliance.testing.running import make_config, start
from tests.sites.language.test_visitors import ENGLISH, PAGE, assert_german_page
from tests.sites.route_shop import SAME


def test_the_language_of_the_appliance_is_the_last_resort(tmp_path: Path) -> None:
    live = start(make_config(tmp_path, console__language="de"))
    try:
        live.tenant("acme")
        with live.api("acme") as owner, live.client("offen--acme.content.localhost", SAME) as client:
            owner.post("/api/v1/webapps", json={"id": "offen"}).raise_for_status()
            assert_german_page(client.get("/", headers=PAGE), 404)
            assert_german_page(client.get("/", headers=PAGE | {"Accept-Language": "xx"}), 404)
            assert '<html lang="en"' in client.get("/", headers=PAGE | ENGLISH).text
    finally:
        live.stop()
