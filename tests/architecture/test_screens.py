"""Every page of the console is on the list that screenshots and page checks use."""

from appliance.console import blueprint
from appliance.console.blueprint import BASE_PAGES, PAGES
from tests.screenshots.pages import ADDRESSES, BASE_ADDRESSES, NOT_PAGES, SIGNED_OUT

HINT = "add it to tests/screenshots/pages.py with an address, or to NOT_PAGES with what it answers"


def test_every_page_is_listed_for_screenshots() -> None:
    assert blueprint.AREAS
    declared = {route.path for route in PAGES if route.method == "GET"} | {each.path for each in BASE_PAGES if each.method == "GET"}
    listed = {*ADDRESSES, *BASE_ADDRESSES, *SIGNED_OUT, *NOT_PAGES}
    assert declared - listed == set(), HINT
    assert listed - declared == set(), "there is no such page any more"
