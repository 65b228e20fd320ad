"""Sign in and open pages with a real browser."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from playwright.sync_api import Browser, BrowserContext, Page

from appliance.console.frame.saved_forms import FIELD
from appliance.console.frame.session import COOKIE
from appliance.core.config import Config
from appliance.testing.running import Running
from tests.screenshots.furnishing import LOGIN, PASSWORD, TENANT
from tests.screenshots.pages import SENT, Screen


@contextmanager
def signed_in_context(chromium: Browser, config: Config) -> Iterator[BrowserContext]:
    """A browser context signed in on the tenant's host and on the base host."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(30_000)
    page = context.new_page()
    page.goto(url_of(config, Screen("/console/about")))
    page.get_by_label("Login").fill(LOGIN)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url(url_of(config, Screen("/console/about")))
    page.close()
    yield context
    context.close()


def url_of(config: Config, screen: Screen) -> str:
    """The address of a page."""
    return f"{config.base_url if screen.is_on_base else config.tenant_url(TENANT)}{screen.path}"


def send_form(page: Page, running: Running, form: Mapping[str, str], token: str) -> str:
    """Show the answer to a form, submitted in the session of this token, at its address; returns the saved form."""
    url, request_headers = url_of(running.config, Screen(SENT)), {"Sec-Fetch-Site": "same-origin", "Cookie": f"{COOKIE}={token}"}
    with running.client(f"{TENANT}.{running.config.domains.base}", request_headers) as client:
        answer = client.post(SENT, data=dict(form))
    response_headers = {name: answer.headers[name] for name in ("Content-Type", "Content-Security-Policy")}
    page.route(url, lambda route: route.fulfill(status=answer.status_code, headers=response_headers, body=answer.content))
    page.goto(url)
    page.unroute(url)
    return str(page.locator(f"input[name={FIELD}]").input_value())


def set_look(page: Page, scheme: str, width: int) -> None:
    """Set the colour scheme and the width."""
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 800 if width < 2000 else 1440})
