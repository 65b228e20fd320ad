"""Fields for passwords are hidden and work with password managers; signing in asks for nothing else, and out is always in reach."""

import re
from collections.abc import Callable

import pytest

from appliance.console.blueprint import PAGES
from appliance.console.frame.routing import PageRoute
from appliance.core.interface import ui_folder
from appliance.testing.running import Running
from tests.console.browser import Browser
from tests.console.test_pages import path_of

INPUT = re.compile(r"<input\b[^>]*>")
NAMES = ("password", "passphrase", "old", "again")
TO_PASS_ON = {"share-password"}  # whoever makes a share has to read it, to tell it to others
TEMPLATES = {path.name: path.read_text("utf-8") for path in sorted((ui_folder() / "templates").rglob("*.html"))}
SCRIPTS = [path.read_text("utf-8") for path in sorted((ui_folder() / "static").rglob("*.js"))]
PLAIN_PAGES = [r for r in PAGES if r.method == "GET" and r.needs_session and r.path.startswith("/console/") and "<" not in r.path]


def attributes_of(tag: str) -> dict[str, str]:
    return dict(re.findall(r'([\w-]+)="([^"]*)"', tag))


def test_passwords_are_typed_hidden_and_can_be_pasted() -> None:
    tags = [(name, attributes_of(tag)) for name, text in TEMPLATES.items() for tag in INPUT.findall(text)]
    fields = [(name, tag) for name, tag in tags if tag.get("name") in NAMES and tag.get("id") not in TO_PASS_ON]
    assert len(fields) >= 10
    assert [name for name, tag in fields if tag.get("type") != "password"] == []
    for name in ("sign_in.html", "account.html", "invitation.html"):
        offered = {tag.get("autocomplete") for each, tag in fields if each == name}
        assert offered <= {"current-password", "new-password"}, f"{name}: password managers look for these"
    assert [text for text in (*TEMPLATES.values(), *SCRIPTS) if re.search(r"onpaste|[\"']paste[\"']|oncopy|ondrop", text)] == []


def test_the_sign_in_page_asks_for_login_and_password_only(staff: Running) -> None:
    browser = Browser(staff)
    page = browser.get(browser.at("", "/sign-in")).text
    tags = [attributes_of(tag) for tag in INPUT.findall(page)]
    assert {tag["name"] for tag in tags if tag.get("type") != "hidden"} == {"login", "password"}
    for path in ("/forgot", "/forgot-password", "/reset", "/reset-password", "/register", "/sign-up"):
        assert browser.get(browser.at("", path)).status_code == 404, "without a mail server nothing is reset over the network"
    assert not re.search(r"secret question|password hint|remind me", page, re.IGNORECASE)


@pytest.mark.parametrize("route", PLAIN_PAGES, ids=lambda route: route.path)
def test_every_page_shows_how_to_sign_out(signed_in: Callable[[str], Browser], route: PageRoute) -> None:
    browser = signed_in("owner@acme.test")
    answer = browser.get(browser.at("acme", path_of(route)))
    if answer.headers["content-type"].startswith("text/html") and "<html" in answer.text:
        assert '<form method="post" action="/console/sign-out">' in answer.text
    else:
        assert not answer.is_success or "<h1" not in answer.text, "a part of a page, or a file"
