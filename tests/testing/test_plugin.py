"""The pytest plugin as a QA team uses it: the suite of the docs, evidence of failures, a remote appliance, no cost when unused."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from appliance.testing.kit import LocalGos
from appliance.testing.running import Running
from appliance.testing.tenants import QaTenant
from tests.architecture.source_tree import ROOT

Run = tuple[Path, "Future[tuple[int, str]]"]
BLOCKS = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FAILING_SUITE = """
import pytest
from appliance.solutions.archive import write_zip

@pytest.fixture(scope="session")
def gos_settings(gos_settings):
    return gos_settings | {"domains__base": "desk.localhost", "domains__content": "pages.localhost"}

def test_sees_a_page_that_is_wrong(gos_page, gos_foreign):
    gos_page.evaluate("console.error('it broke')")
    gos_page.goto(f"{gos_foreign.url}/elsewhere")

def test_opens_a_webapp_on_a_domain_of_its_own(gos_tenant, gos_page_as):
    url = gos_tenant.ask("POST", "/webapps", {"id": "shop"})["url"]
    page = "<!doctype html><html lang=en><head><title>Shop</title><link rel=icon href='data:,'></head><h1>Open</h1></html>"
    packed = write_zip({"public/index.html": page.encode()})
    gos_tenant.ask("POST", "/webapps/shop/versions", content=packed, headers={"Content-Type": "application/zip"})
    gos_tenant.ask("POST", "/webapps/shop/versions/1/publish", {})
    page = gos_page_as("visitor")
    page.goto(url)
    assert page.get_by_role("heading").inner_text() == "Open"
    assert ".pages.localhost" in page.url

@pytest.mark.gos_lenient
def test_fails(gos_page):
    gos_page.evaluate("console.error('it broke')")
    assert gos_page.get_by_role("heading").first.inner_text() == "Nothing that is there"

@pytest.mark.gos_lenient
def test_tolerates_console_errors(gos_page):
    gos_page.evaluate("console.error('it broke')")

def test_lists_running_executions(gos, gos_tenant, gos_foreign):
    released = gos_foreign.hold("/slow")
    settings = {"base_url": gos_foreign.url}
    gos_tenant.ask("POST", "/integrations", {"slug": "slow", "connector": "http", "settings": settings})
    step = {"id": "call", "integration": {"use": "slow", "action": "get", "input": {"url": "/slow"}}}
    gos_tenant.ask("POST", "/processes", {"id": "slow", "steps": [step]})
    gos_tenant.ask("POST", "/processes/slow/publish", {})
    gos_tenant.execute("slow", {}, wait=0)
    try:
        with pytest.raises(AssertionError, match="slow is (queued|running)"):
            gos.drain(seconds=0.5)
    finally:
        released.set()
"""
EMAIL_SUITE = """
import pytest

def request_leave(tenant, day):
    return tenant.execute("leave", {"day": day}, wait=0)["execution_id"]

@pytest.fixture
def office(gos_tenant):
    if not any(each["id"] == "leave" for each in gos_tenant.ask("GET", "/processes")):
        step = {"id": "ask", "human": {"kind": "approval", "title": "= input.day + ' off?'", "expires": "48h"}}
        gos_tenant.ask("POST", "/processes", {"id": "leave", "steps": [step]})
        gos_tenant.ask("POST", "/processes/leave/publish", {})
    return gos_tenant

def test_reads_one_email_while_another_is_in_transit(office, gos_mail):
    to = office.login("approver")[0]
    request_leave(office, "Monday")
    assert "Monday off?" in gos_mail.wait_for(to=to).text
    request_leave(office, "Tuesday")

def test_sees_only_its_own_emails(office, gos_mail):
    to = office.login("approver")[0]
    assert gos_mail.letters == []
    request_leave(office, "Friday")
    assert "Friday off?" in gos_mail.wait_for(to=to).text
    assert len(gos_mail.letters) == 1
"""
REMOTE_SUITE = """
import pytest
from appliance.testing.kit import NotSupportedRemotely

def test_opens_pages_as_the_configured_people(gos, gos_tenant, gos_page_as):
    page = gos_page_as("viewer")
    assert page.get_by_test_id("console").is_visible()
    assert gos_tenant.ask("GET", "/tenant")["id"] == gos_tenant.id == "elsewhere"
    gos.drain()
    assert gos.content_domain == f"content.{gos.domain}"
    with pytest.raises(LookupError, match="there is no login for the role owner"):
        gos_page_as("owner")
    with pytest.raises(NotSupportedRemotely, match="clock"):
        gos.clock.advance(hours=1)
    with pytest.raises(NotSupportedRemotely, match="belongs to the tenant elsewhere"):
        gos.tenant("other")
"""
IMPORT_SUITE = """
import sys

def test_nothing_was_imported():
    ours = sorted(name for name in sys.modules if name.split(".")[0] in ("appliance", "playwright", "quart", "httpx", "aiosmtpd"))
    assert ours == ["appliance", "appliance.testing", "appliance.testing.plugin"]
"""


def run_tests(folder: Path, text: str, *options: str, **more: str) -> tuple[int, str]:
    """Run pytest in its own process and folder, with warnings as errors; returns the exit code and the output.

    `more` are further modules by name, which share the appliance of the run."""
    for name, content in {"test_it": text, **more}.items():
        (folder / f"{name}.py").write_text(content)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "appliance.testing.plugin", "-p", "no:cacheprovider", *options]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """Runs with an appliance of their own, in parallel: half of their time they wait for emails and the browser."""
    texts = {"docs": "\n\n".join(BLOCKS.findall((ROOT / "docs/qa.md").read_text("utf8"))), "failing": FAILING_SUITE}
    further = {"docs": {"test_emails": EMAIL_SUITE}, "failing": {}}
    folders = {name: tmp_path_factory.mktemp(name) for name in texts}
    with ThreadPoolExecutor(len(texts)) as threads:
        yield {name: (folder, threads.submit(run_tests, folder, texts[name], **further[name])) for name, folder in folders.items()}


@pytest.mark.browser
def test_the_suite_of_the_docs_passes_and_emails_are_separated_by_test(runs: dict[str, Run]) -> None:
    folder, run = runs["docs"]
    code, output = run.result()
    assert (code, output.count("PASSED test_it.py::"), output.count("PASSED test_emails.py::")) == (0, 3, 2), output
    assert not (folder / "gos-evidence").exists()


def test_the_test_of_a_process_takes_less_than_20_lines() -> None:
    first = BLOCKS.findall((ROOT / "docs/qa.md").read_text("utf8"))[0]
    assert len(first.splitlines()) < 20


@pytest.mark.browser
def test_a_failure_leaves_evidence_and_shows_its_cause(runs: dict[str, Run]) -> None:
    folder, run = runs["failing"]
    code, output = run.result()
    assert (code, "1 failed, 4 passed, 1 error" in output) == (1, True), output
    assert "error: it broke" in output
    assert re.search(r"^outside: http://127\.0\.0\.1:\d+/elsewhere$", output, re.MULTILINE), output
    evidence = sorted(path.name for path in (folder / "gos-evidence").iterdir())
    starts = ["test_it.py-test_fails-1", "test_it.py-test_sees_a_page_that_is_wrong-1"]
    assert evidence == [f"{start}-{end}" for start in starts for end in ("page1.png", "trace.zip")]


@pytest.mark.browser
def test_a_remote_appliance_can_be_tested(tmp_path: Path, running: Running) -> None:
    running.user("vera@elsewhere.test", "an appliance far away", "elsewhere", "viewer")
    (tmp_path / "key").write_text(running.key("elsewhere"))
    people = {"viewer": {"login": "vera@elsewhere.test", "password": "an appliance far away"}}
    (tmp_path / "people.json").write_text(json.dumps(people))
    url = running.config.tenant_url("elsewhere")
    code, output = run_tests(tmp_path, REMOTE_SUITE, f"--gos-url={url}", "--gos-key-file=key", "--gos-people=people.json")
    assert (code, "1 passed" in output) == (0, True), output


def test_verified_domains_belong_to_their_webapps(gos: LocalGos, gos_tenant: QaTenant) -> None:
    gos_tenant.ask("POST", "/webapps", {"id": "shop"})
    domains = gos.running.services.webapps.domains
    claim = {"method": "operator", "redirect_from": "www"}
    gos_tenant.ask("POST", "/webapps/shop/domains", {"host": "proven.example", **claim})
    gos_tenant.ask("POST", "/webapps/shop/domains", {"host": "claimed.example", **claim})
    domains.approve_domain(gos.running.tenant(gos_tenant.id), "proven.example")
    assert gos.own_hosts() == {"proven.example", "www.proven.example"}


def test_a_run_without_our_fixtures_imports_nothing(tmp_path: Path) -> None:
    code, output = run_tests(tmp_path, IMPORT_SUITE)
    assert (code, "1 passed" in output) == (0, True), output
