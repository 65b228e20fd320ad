"""Helpers for versions with smoke checks, and a probe that responds to them."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from appliance.blobs import Blobs
from appliance.core.scope import TenantScope
from appliance.webapps.publishing.publications import Publication
from appliance.webapps.publishing.publisher import Publisher
from appliance.webapps.publishing.smoke import Check, CheckResponse
from appliance.webapps.records import FileSpec, NewVersion, Settings
from appliance.webapps.service import WebApps

SECONDS = 60
CHECKS = ({"path": "/"}, {"path": "/about", "contains": "us"})


def check_response(
    status: int = 200, body: bytes = b"about us", ms: int = 3, headers: Mapping[str, str] | None = None
) -> CheckResponse:
    return CheckResponse(status, headers or {"content-type": "text/html"}, body, ms)


class Visitor:
    """A stub of the smoke probe: `answer` makes the responses, `requests` records version and path of each request."""

    def __init__(self) -> None:
        self.requests: list[tuple[int | None, str]] = []
        self.answer: Callable[[int | None, str], CheckResponse] = lambda version, path: check_response()

    def __call__(self, scope: TenantScope, app: str, version: int | None, check: Check) -> CheckResponse:
        self.requests.append((version, check.path))
        return self.answer(version, check.path)


def fail_check(in_preview: bool, path: str = "/about") -> Callable[[int | None, str], CheckResponse]:
    def respond(version: int | None, requested: str) -> CheckResponse:
        fails = (requested, version is not None) == (path, in_preview)
        return check_response(500, b"broken") if fails else check_response()

    return respond


class BlockedResponse:
    """A response that is sent when `go_on` is set; `arrived` is set by the request."""

    def __init__(self, *, live: bool) -> None:
        self.is_live, self.arrived, self.go_on = live, threading.Event(), threading.Event()

    def __call__(self, version: int | None, path: str) -> CheckResponse:
        if (version is None) == self.is_live:
            self.arrived.set()
            assert self.go_on.wait(SECONDS)
        return check_response()


def make_version(webapps: WebApps, blobs: Blobs, acme: TenantScope, smoke: tuple[dict[str, Any], ...] = CHECKS) -> int:
    content = blobs.put(acme, [b"<h1>shop</h1>"])
    files = {"index.html": FileSpec(content.sha256, content.size)}
    number = webapps.create_version(acme, "shop", NewVersion(files, Settings(smoke=smoke))).number
    webapps.finalize_version(acme, "shop", number)
    return number


def publish(publishing: Publisher, acme: TenantScope, number: int) -> Publication:
    started = publishing.publish_version(acme, "shop", number)
    assert started.future is not None
    started.future.result(SECONDS)
    return publishing.get_publication(acme, "shop", number)
