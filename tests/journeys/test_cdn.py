"""Uploaded files never run: not opened, not framed, not loaded as a script; and they read no cookie."""

import httpx
from playwright.sync_api import Browser, Error, Route

from appliance.testing.running import Running
from tests.sites.test_cdn import publish, upload

RUN = b"fetch('/ran?'+document.cookie);document.title='ran'"
PAGE = b"<!doctype html><script>" + RUN + b'</script><img src=x onerror="' + RUN + b'">'
FILES = {
    "page.html": PAGE,
    "page.txt": b"text " + PAGE,
    "picture.svg": b"<svg xmlns='http://www.w3.org/2000/svg'><script>" + RUN + b"</script></svg>",
    "data.xml": b"<?xml version='1.0'?><h:script xmlns:h='http://www.w3.org/1999/xhtml'>" + RUN + b"</h:script>",
    "disguised.png": PAGE,
    "code.js": RUN,
    "both.gif": b"GIF89a=0;" + RUN + b"//" + PAGE,
    "both.pdf": b"%PDF-1.7\n" + PAGE,
    "both.png": b"\x89PNG\r\n\x1a\n" + PAGE,
}
OPENED = ("page.txt", "both.gif", "both.png")


def test_uploads_run_nothing_in_a_browser(running: Running, acme: httpx.Client, gos_browser: Browser) -> None:
    for name, data in FILES.items():
        publish(acme, upload(acme, f"journey-{name}", data), f"journey/{name}")
    host = f"http://cdn--acme.content.localhost{running.config.port_suffix}"
    context = gos_browser.new_context()
    context.add_cookies([{"name": "secret", "value": "of-this-host", "url": host}])
    urls: list[str] = []
    context.on("request", lambda request: urls.append(request.url))
    page = context.new_page()
    parts = "".join(
        f"<iframe src='{host}/journey/{name}'></iframe><object data='{host}/journey/{name}'></object>"
        f"<script src='{host}/journey/{name}'></script><img src='{host}/journey/{name}'>"
        for name in FILES
    )
    body = f"<!doctype html><title>outside</title>{parts}<script>fetch('/ran-here')</script>"

    def outside(route: Route) -> None:
        route.fulfill(content_type="text/html", body=body)

    page.route("http://outside.localhost/**", outside)
    page.goto("http://outside.localhost/")
    assert page.title() == "outside"
    for name in OPENED:
        answer = page.goto(f"{host}/journey/{name}")
        assert answer is not None
        assert answer.ok
        assert page.title() != "ran"
    for name in FILES.keys() - OPENED - {"both.pdf"}:
        try:
            page.goto(f"{host}/journey/{name}")
        except Error as error:
            assert "Download" in error.message or "ERR_ABORTED" in error.message  # noqa: PT017  it is kept, not opened
        else:
            raise AssertionError(f"{name} was opened")
    context.close()
    assert [url for url in urls if "/ran" in url] == ["http://outside.localhost/ran-here"]
    assert len([url for url in urls if url.endswith("/journey/page.html")]) >= 4
