"""What journeys share: addresses, and what is looked for in every page."""

import re
from pathlib import Path

from playwright.sync_api import BrowserContext, ConsoleMessage, Request, WebError

from appliance.core.config import Config

PAGE_CHECKS = (Path(__file__).parent / "page_checks.js").read_text("utf8")


def address(config: Config, path: str, tenant: str = "journey.") -> str:
    """The address of a page of this appliance."""
    return f"http://{tenant}localhost{config.port_suffix}{path}"


class Watch:
    """Notes what must not happen in a page: errors in its console, requests to anywhere else."""

    def __init__(self, context: BrowserContext, port: int) -> None:
        self.troubles: list[str] = []
        self._own = re.compile(rf"(https?://([a-z0-9-]+\.)?(content\.)?localhost:{port}/|data:)")
        context.on("request", self._see_request)
        context.on("console", self._see_message)
        context.on("weberror", self._see_exception)

    def _see_request(self, request: Request) -> None:
        if not self._own.match(request.url):
            self.troubles.append(f"outside: {request.url}")

    def _see_message(self, message: ConsoleMessage) -> None:
        """A form that comes back with its mistakes is answered 422, which Chromium calls an error."""
        if message.type in ("error", "warning") and "status of 422" not in message.text:
            self.troubles.append(f"{message.type}: {message.text}")

    def _see_exception(self, found: WebError) -> None:
        self.troubles.append(f"exception: {found.error}")
