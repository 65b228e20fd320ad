"""Pages in a real browser: signed in with a role, monitored for errors, recorded as evidence when a test fails."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, Request, Response, WebError, expect

from .kit import Gos
from .tenants import QaTenant

CHROMIUM = "/usr/bin/chromium"
VISITOR = "visitor"
"""The role of a page without a session."""
PATIENCE_MS = 30_000
SIGN_IN = re.compile(r"/sign-in(\?|$)")
PAGE_CHECKS = (Path(__file__).parent / "page_checks.js").read_text("utf8")
Scheme = Literal["light", "dark"]


def launch(playwright: Playwright, *arguments: str) -> Browser:
    """Start a headless browser with these arguments: Debian's Chromium if installed, otherwise Playwright's."""
    expect.set_options(timeout=PATIENCE_MS)
    executable = CHROMIUM if Path(CHROMIUM).exists() else None
    return playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu", *arguments])


def find_flaws(page: Page) -> list[str]:
    """Accessibility problems of the page: low contrast, controls without a name, content wider than the screen."""
    result = page.evaluate(PAGE_CHECKS)
    flaws = [f"faint: {each}" for each in result["faint"]] + [f"without a name: {each}" for each in result["unnamed"]]
    return flaws + ([f"{result['overflow']} px wider than the screen"] if result["overflow"] > 0 else [])


class PageMonitor:
    """Records problems in a browser context.

    Problems are errors in the browser's console, requests to other hosts, and pages of GOS's console whose content policy allows
    foreign or inline content.  Hosts below `domains` belong to the appliance, and so do those that `own_hosts` returns; it is
    called only if another host was requested.
    """

    def __init__(self, context: BrowserContext, *domains: str, own_hosts: Callable[[], Collection[str]] = tuple) -> None:
        self._problems: list[str] = []
        self._elsewhere: list[str] = []
        self._own = re.compile(rf"https?://([a-z0-9-]+\.)*({'|'.join(map(re.escape, domains))})/|data:|blob:")
        self._own_hosts = own_hosts
        context.on("request", self._see_request)
        context.on("console", self._see_message)
        context.on("weberror", self._see_exception)
        context.on("response", self._see_response)

    @property
    def troubles(self) -> list[str]:
        """The problems so far, one line each."""
        own = self._own_hosts() if self._elsewhere else ()
        return [f"outside: {url}" for url in self._elsewhere if urlsplit(url).hostname not in own] + self._problems

    def _see_request(self, request: Request) -> None:
        if not self._own.match(request.url):
            self._elsewhere.append(request.url)

    def _see_message(self, message: ConsoleMessage) -> None:
        """Record console errors, except Chromium's for a form with invalid input (422) and a failed sign-in (401)."""
        refused = "status of 422" in message.text or ("status of 401" in message.text and SIGN_IN.search(message.location["url"]))
        if message.type in ("error", "warning") and not refused:
            self._problems.append(f"{message.type}: {message.text}")

    def _see_response(self, response: Response) -> None:
        if "/console/" in response.url.split("?")[0] and response.request.resource_type == "document":
            allowed = response.headers.get("content-security-policy", "")
            if "default-src 'none'" not in allowed or "unsafe-" in allowed:
                self._problems.append(f"policy of {response.url}: {allowed or 'none'}")

    def _see_exception(self, error: WebError) -> None:
        self._problems.append(f"exception: {error.error}")


@dataclass(frozen=True)
class View:
    """The viewport of a page: width and height in px, and the color scheme."""

    width: int = 1280
    height: int = 800
    scheme: Scheme = "light"


@dataclass(frozen=True)
class Evidence:
    """The folder for screenshots and, with `traces`, Playwright traces of failed tests; None stores none."""

    folder: Path | None
    traces: bool


@dataclass
class Pages:
    """The pages of one test.  `sessions` is shared between tests, so that each person signs in once per appliance."""

    browser: Browser
    gos: Gos
    evidence: Evidence
    sessions: dict[tuple[str, str], Any]
    _open: list[tuple[BrowserContext, PageMonitor]] = field(default_factory=list)

    def open(self, tenant: QaTenant, role: str = "owner", view: View = View()) -> Page:
        """The console's home page in a new browser context, signed in with this role; an empty page for `visitor`."""
        session = self.sessions.get((tenant.base_url, role))
        context = self.browser.new_context(
            viewport={"width": view.width, "height": view.height}, color_scheme=view.scheme, storage_state=session
        )
        context.set_default_timeout(PATIENCE_MS)
        if self.evidence.folder is not None and self.evidence.traces:
            context.tracing.start(screenshots=True, snapshots=True)
        watch = PageMonitor(context, self.gos.domain, self.gos.content_domain, own_hosts=self.gos.own_hosts)
        self._open.append((context, watch))
        page = context.new_page()
        if role != VISITOR:
            self._sign_in(page, tenant, role)
        return page

    def _sign_in(self, page: Page, tenant: QaTenant, role: str) -> None:
        """Sign in through the real form, unless a stored session is still valid."""
        page.goto(tenant.url())
        if "/sign-in" not in page.url:
            return
        login, password = tenant.login(role)
        page.get_by_label("Login").fill(login)
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.wait_for_url(lambda url: url.startswith(tenant.url()) and "/enter" not in url)
        self.sessions[tenant.base_url, role] = page.context.storage_state()

    @property
    def troubles(self) -> list[str]:
        """The problems in all pages of the test."""
        return [each for _, watch in self._open for each in watch.troubles]

    def close(self, name: str, *, failed: bool) -> None:
        """Close every page; after a failure, store the evidence under this name."""
        keep = self.evidence.folder if failed else None
        for number, (context, _) in enumerate(self._open, 1):
            if keep is not None:
                self._keep(context, keep / f"{name}-{number}")
            context.close()
        self._open.clear()

    def _keep(self, context: BrowserContext, start: Path) -> None:
        start.parent.mkdir(parents=True, exist_ok=True)
        for number, page in enumerate(context.pages, 1):
            page.screenshot(path=f"{start}-page{number}.png", full_page=True)
        if self.evidence.traces:
            context.tracing.stop(path=f"{start}-trace.zip")
