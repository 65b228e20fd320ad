"""A WebApp of several files as a builder deploys it and its visitors see it, in Chromium."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from appliance.cli import main
from appliance.core.config import Config
from appliance.testing.pages import PageMonitor
from appliance.testing.running import Running

pytestmark = pytest.mark.browser
STYLE = "body { color: rgb(1, 2, 3) }"
LAZY = "export const word = '%s'\n"
MAIN = """import './more-%s.js'
document.querySelector('h1').textContent = 'Version %s'
document.querySelector('button').onclick = async () => {
  const lazy = await import('./lazy-%s.js')
  document.querySelector('output').textContent = lazy.word
}
"""
PAGE = """<!doctype html><html lang="en"><head><title>Shop</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="/assets/style-%s.css"><script type="module" src="/assets/app-%s.js"></script></head>
<body><h1></h1><button>More</button><output></output></body></html>"""


def build(folder: Path, version: str, mark: str) -> Path:
    """Build the app like a bundler: a page loads files with a hash in their names, which load others."""
    assets = folder / "assets"
    assets.mkdir(parents=True)
    (folder / "index.html").write_text(PAGE % (mark, mark))
    (assets / f"style-{mark}.css").write_text(STYLE)
    (assets / f"app-{mark}.js").write_text(MAIN % (mark, version, mark))
    (assets / f"more-{mark}.js").write_text("document.title = 'More'\n")
    (assets / f"lazy-{mark}.js").write_text(LAZY % f"lazy {version}")
    return folder


@pytest.fixture(scope="module")
def live(start_appliance: Callable[..., Running], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = start_appliance(tmp_path_factory.mktemp("webapp"))
    running.tenant("journey")
    yield running
    running.stop()


@pytest.fixture
def page(gos_browser: Browser, live: Running) -> Iterator[Page]:
    context = gos_browser.new_context()
    watch = PageMonitor(context, f"localhost{live.config.port_suffix}")
    yield context.new_page()
    assert watch.troubles == []
    context.close()


def address(config: Config, path: str) -> str:
    return f"{config.webapp_url('journey', 'shop')}{path}"


def test_a_webapp_is_deployed_opened_replaced_and_rolled_back(
    live: Running, page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOS_URL", live.config.tenant_url("journey"))
    monkeypatch.setenv("GOS_API_KEY", live.key("journey"))
    deploy = ["--create", "--publish"]
    assert main(["deploy", "shop", str(build(tmp_path / "one", "one", "aaaa1111")), *deploy]) == 0
    page.goto(address(live.config, "/"))
    expect(page.locator("h1")).to_have_text("Version one")
    expect(page).to_have_title("More")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(1, 2, 3)"

    assert main(["deploy", "shop", str(build(tmp_path / "two", "two", "bbbb2222")), *deploy]) == 0
    page.get_by_role("button").click()
    expect(page.locator("output")).to_have_text("lazy one")
    page.reload()
    expect(page.locator("h1")).to_have_text("Version two")
    assert page.context.cookies() == []

    broken = build(tmp_path / "three" / "public", "three", "cccc3333")
    # Only a preview sends this header: the check passes there, so that the version is published, and fails live.
    (broken.parent / "app.yaml").write_text("smoke:\n  - {path: /, header: {X-Robots-Tag: noindex}}\n")
    assert main(["deploy", "shop", str(broken.parent), *deploy]) == 1
    page.reload()
    expect(page.locator("h1")).to_have_text("Version two")

    with live.api("journey") as api:
        api.post("/api/v1/webapps/shop/rollback", json={}).raise_for_status()
    page.reload()
    expect(page.locator("h1")).to_have_text("Version one")
