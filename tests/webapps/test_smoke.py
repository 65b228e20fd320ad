"""Smoke checks: parsing, evaluating responses, and publishing, refusing and switching back versions."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from appliance.blobs import Blobs
from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, ValidationFailed
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.monitor import audit
from appliance.webapps.files.archive import read_settings
from appliance.webapps.publishing import publications
from appliance.webapps.publishing.publications import Publication
from appliance.webapps.publishing.publisher import MOST_CLAIMS, Publisher
from appliance.webapps.publishing.smoke import Check, CheckResponse, parse_smoke, problem_of, to_result
from appliance.webapps.service import WebApps
from tests.webapps.smoke_checks import CHECKS, SECONDS, BlockedResponse, Visitor, check_response, fail_check, make_version, publish


@pytest.mark.parametrize(
    ("document", "pointers"),
    [
        ("/", ["/smoke"]), ({"path": "/"}, ["/smoke"]), ([{"path": "/"}] * 21, ["/smoke"]), (["/"], ["/smoke/0"]),
        ([{"path": "/"}, {}], ["/smoke/1/path"]), ([{"path": "//a"}], ["/smoke/0/path"]), ([{"path": "/a b"}], ["/smoke/0/path"]),
        ([{"path": "/", "status": True}], ["/smoke/0/status"]), ([{"path": "/", "status": 99}], ["/smoke/0/status"]),
        ([{"path": "/", "method": "POST", "max_ms": 0}], ["/smoke/0/method", "/smoke/0/max_ms"]),
        ([{"path": "/", "method": "HEAD", "contains": "x"}], ["/smoke/0/contains"]),
        ([{"path": "/", "contains": ""}], ["/smoke/0/contains"]),
        ([{"path": "/", "header": {"a b": "x"}}], ["/smoke/0/header/a b"]), ([{"path": "/", "header": ["a"]}], ["/smoke/0/header"]),
        ([{"path": "/", "statsu": 200}], ["/smoke/0/statsu"]),
    ],
)  # fmt: skip
def test_an_invalid_check_is_reported_with_a_pointer(document: Any, pointers: list[str]) -> None:
    with pytest.raises(ValidationFailed) as refused:
        parse_smoke(document)
    assert [detail.pointer for detail in refused.value.details] == pointers


def test_checks_are_read_from_app_yaml() -> None:
    settings = read_settings(b"smoke:\n  - path: /about?x=1\n    status: 404\n    header: {X-A: b}\n    max_ms: 500\n")
    assert settings.smoke == [{"path": "/about?x=1", "status": 404, "header": {"X-A": "b"}, "max_ms": 500}]


@pytest.mark.parametrize(
    ("check", "answer", "problem"),
    [
        (Check("/"), check_response(), None), (Check("/"), check_response(301), "answered 301 instead of 200"),
        (Check("/", status=404), check_response(404), None),
        (Check("/", contains="us"), check_response(), None),
        (Check("/", contains="them"), check_response(), "'them' is not in the response"),
        (Check("/", header={"Content-Type": "text/html"}), check_response(), None),
        (Check("/", header={"Content-Type": "text"}), check_response(), "the header Content-Type is 'text/html' instead of 'text'"),
        (Check("/", header={"X-A": ""}), check_response(), "the header X-A is missing"),
        (Check("/", max_ms=3), check_response(), None), (Check("/", max_ms=2), check_response(), "took 3 ms; the limit is 2 ms"),
        (Check("/"), CheckResponse(0, {}, b"", 3, "did not respond"), "did not respond"),
    ],
)  # fmt: skip
def test_a_response_is_evaluated(check: Check, answer: CheckResponse, problem: str | None) -> None:
    assert problem_of(check, answer) == problem


def test_a_failed_check_stores_the_beginning_of_the_response() -> None:
    result = to_result("live", Check("/"), check_response(500, "é".encode() * 900))
    assert (result["outcome"], result["status"], result["seen"]) == ("failed", 500, "é" * 500)
    assert "seen" not in to_result("live", Check("/"), check_response())


def wait_for_end(publishing: Publisher, acme: TenantScope, number: int) -> Publication:
    """The publication that another process continued, once it has ended."""
    pause, ends = threading.Event(), clock.monotonic() + SECONDS
    while (publication := publishing.get_publication(acme, "shop", number)).is_running:
        assert clock.monotonic() < ends, publication
        pause.wait(0.01)
    return publication


def actions(acme: TenantScope) -> list[str]:
    return [entry.action for entry in reversed(audit.list_entries(acme, audit.AuditFilter(), PageRequest(100)).items)]


def test_a_version_is_checked_as_a_preview_and_then_live(
    publishing: Publisher, visitor: Visitor, acme: TenantScope, two: int
) -> None:
    publication = publish(publishing, acme, two)
    assert (publication.state, publication.previous, publication.reason) == ("published", 1, None)
    assert visitor.requests == [(2, "/"), (2, "/about"), (None, "/"), (None, "/about")]
    outcomes = [(check["phase"], check["outcome"]) for check in publication.checks]
    assert outcomes == [("preview", "passed")] * 2 + [("live", "passed")] * 2
    assert publishing.get_published(acme, "shop", two).state == "published"


def test_a_version_whose_preview_fails_is_never_served(
    publishing: Publisher, webapps: WebApps, visitor: Visitor, acme: TenantScope, two: int
) -> None:
    visitor.answer = fail_check(in_preview=True, path="/")
    publication = publish(publishing, acme, two)
    assert (publication.state, len(publication.checks), publication.checks[0]["seen"]) == ("refused", 1, "broken")
    assert publication.reason == "version 2 was not published: GET / answered 500 instead of 200, as a preview"
    assert webapps.get_app(acme, "shop").published_version == 1
    assert actions(acme)[-2:] == ["webapp.check", "webapp.publish_failed"]
    with pytest.raises(Conflict) as refused:
        publishing.get_published(acme, "shop", two)
    assert [detail.message for detail in refused.value.details] == ["GET /: answered 500 instead of 200"]
    visitor.answer = fail_check(in_preview=False, path="/nothing")
    assert publish(publishing, acme, two).state == "published"


def test_a_version_that_fails_live_is_switched_back(
    publishing: Publisher, webapps: WebApps, visitor: Visitor, acme: TenantScope, two: int
) -> None:
    served: list[int | None] = []

    def answer(version: int | None, path: str) -> CheckResponse:
        served.append(webapps.published_number(acme, "shop"))
        return fail_check(in_preview=False)(version, path)

    visitor.answer = answer
    before = webapps.get_version(acme, "shop", 1).published_at
    publication = publish(publishing, acme, two)
    assert (publication.state, served) == ("switched_back", [1, 1, 2, 2])
    assert publication.reason == "version 2 was switched back: GET /about answered 500 instead of 200, once it was published"
    assert [(check["phase"], check["outcome"]) for check in publication.checks][-1] == ("live", "failed")
    assert webapps.get_version(acme, "shop", 1).state == "published"
    assert webapps.get_version(acme, "shop", 1).published_at == before
    assert webapps.get_version(acme, "shop", two).state == "ready"
    assert sorted(webapps.recent_numbers(acme, "shop", 5)) == [1, two]  # a page that was opened meanwhile finds its files
    with pytest.raises(Conflict, match="no other version has been published before"):
        webapps.roll_back(acme, "shop")
    assert actions(acme)[-3:] == ["webapp.check", "webapp.publish", "webapp.publish_failed"]


def test_a_first_version_that_fails_live_is_unpublished(
    publishing: Publisher, webapps: WebApps, blobs: Blobs, visitor: Visitor, acme: TenantScope
) -> None:
    visitor.answer = fail_check(in_preview=False)
    publication = publish(publishing, acme, make_version(webapps, blobs, acme))
    assert (publication.state, publication.previous) == ("switched_back", 0)
    assert webapps.get_app(acme, "shop").published_version is None


def test_without_checks_publishing_is_one_write(publishing: Publisher, visitor: Visitor, acme: TenantScope, two: int) -> None:
    started = publishing.publish_version(acme, "shop", 1, if_current=1)
    assert started.version is not None
    assert (started.version.state, started.future, visitor.requests) == ("published", None, [])
    with pytest.raises(NotFound, match="has not been published with checks"):
        publishing.get_publication(acme, "shop", 1)
    with pytest.raises(Conflict, match="version 1 is published now"):
        publishing.publish_version(acme, "shop", two, if_current=0)


def test_only_one_version_is_published_at_a_time(
    publishing: Publisher, webapps: WebApps, blobs: Blobs, visitor: Visitor, acme: TenantScope, two: int
) -> None:
    three, visitor.answer = make_version(webapps, blobs, acme), (blocked := BlockedResponse(live=False))
    first = publishing.publish_version(acme, "shop", two)
    again = publishing.publish_version(acme, "shop", two)
    assert first.future is not None
    assert again.future is first.future
    with pytest.raises(Conflict, match="version 2 is being published"):
        publishing.publish_version(acme, "shop", three)
    blocked.go_on.set()
    first.future.result(SECONDS)
    assert publish(publishing, acme, three).state == "published"
    assert webapps.get_app(acme, "shop").published_version == three


@pytest.mark.parametrize("live", [False, True], ids=["preview", "live"])
@pytest.mark.parametrize("verb", ["roll back", "unpublish", "publish"])
def test_changes_by_others_win_over_a_publication(
    publishing: Publisher, webapps: WebApps, blobs: Blobs, visitor: Visitor, acme: TenantScope, live: bool, verb: str
) -> None:
    for _ in range(3):
        webapps.publish_version(acme, "shop", make_version(webapps, blobs, acme, ()))
    checked, visitor.answer = make_version(webapps, blobs, acme), (blocked := BlockedResponse(live=live))
    started = publishing.publish_version(acme, "shop", checked)
    assert blocked.arrived.wait(SECONDS)
    if verb == "unpublish":
        webapps.unpublish_app(acme, "shop")
    elif verb == "publish":
        publishing.publish_version(acme, "shop", 1)
    else:
        webapps.roll_back(acme, "shop")
    theirs = webapps.get_app(acme, "shop").published_version
    blocked.go_on.set()
    assert started.future is not None
    started.future.result(SECONDS)
    assert publishing.get_publication(acme, "shop", checked).state == "overtaken"
    assert webapps.get_app(acme, "shop").published_version == theirs


def crash_after(acme: TenantScope, publishing: Publisher, visitor: Visitor, number: int, *, after: int) -> None:
    """A publication whose process has died `after` so many checks; after two the version is served already."""

    class Died(BaseException):
        pass

    def die(version: int | None, path: str) -> CheckResponse:
        if len(visitor.requests) > after:
            raise Died
        return check_response()

    visitor.answer = die
    started = publishing.publish_version(acme, "shop", number)
    assert started.future is not None
    assert isinstance(started.future.exception(SECONDS), Died)


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_a_publication_of_a_crashed_process_continues(
    publishing: Publisher, webapps: WebApps, visitor: Visitor, acme: TenantScope, two: int, after: int
) -> None:
    crash_after(acme, publishing, visitor, two, after=after)
    live = after >= len(CHECKS)
    assert webapps.get_app(acme, "shop").published_version == (two if live else 1)
    assert publishing.get_publication(acme, "shop", two).state == ("switched" if live else "checking")
    other = Publisher(webapps, "wrk_two", lambda owner: owner == "wrk_two")
    other.set_probe(visitor)
    visitor.requests.clear()
    visitor.answer = fail_check(in_preview=False)
    assert publishing.resume() == 0
    assert other.resume() == 1
    publication = wait_for_end(other, acme, two)
    other.stop()
    assert publication.state == "switched_back"
    assert webapps.get_app(acme, "shop").published_version == 1
    assert [path for version, path in visitor.requests if version] == ([] if live else ["/", "/about"])
    phases = [(check["phase"], check["path"]) for check in publication.checks]
    assert phases == [(phase, path) for phase in ("preview", "live") for path in ("/", "/about")]


def test_a_process_that_lost_its_claim_changes_nothing(
    publishing: Publisher, webapps: WebApps, visitor: Visitor, acme: TenantScope, two: int
) -> None:
    visitor.answer = blocked = BlockedResponse(live=False)
    started = publishing.publish_version(acme, "shop", two)
    assert blocked.arrived.wait(SECONDS)
    (lease,) = publications.LEASES.list_running()
    db.write(lambda: publications.claim(lease, "wrk_two"))
    blocked.go_on.set()
    assert started.future is not None
    started.future.result(SECONDS)
    assert publishing.get_publication(acme, "shop", two).checks == ()
    assert webapps.get_app(acme, "shop").published_version == 1


def test_responses_of_a_stopping_appliance_are_not_evaluated(
    publishing: Publisher, webapps: WebApps, visitor: Visitor, acme: TenantScope, two: int
) -> None:
    blocked = BlockedResponse(live=True)
    visitor.answer = lambda version, path: (blocked(version, path), check_response(503 if version is None else 200))[1]
    started = publishing.publish_version(acme, "shop", two)
    assert blocked.arrived.wait(SECONDS)
    with ThreadPoolExecutor(1) as threads:
        stopping = threads.submit(publishing.stop)
        assert publishing._stopping.wait(SECONDS)
        blocked.go_on.set()
        stopping.result(SECONDS)
    assert started.future is not None
    started.future.result(SECONDS)
    assert publishing.get_publication(acme, "shop", two).state == "switched"
    assert webapps.get_app(acme, "shop").published_version == two


def test_a_publication_started_during_shutdown_continues_after_restart(
    publishing: Publisher, acme: TenantScope, two: int
) -> None:
    publishing.stop()
    started = publishing.publish_version(acme, "shop", two)
    assert started.future is not None
    started.future.result(SECONDS)
    assert publishing.get_publication(acme, "shop", two).state == "checking"


def test_publishing_again_needs_no_second_approval(
    publishing: Publisher, webapps: WebApps, acme: TenantScope, two: int
) -> None:
    publish(publishing, acme, two)
    used: list[int] = []
    again = publishing.publish_version(acme, "shop", two, also=lambda: used.append(two))
    assert (again.version, used) == (webapps.get_version(acme, "shop", two), [])
    with pytest.raises(Conflict, match="version 2 is published now"):
        publishing.publish_version(acme, "shop", two, if_current=1, also=lambda: used.append(two))


@pytest.mark.parametrize("live", [False, True], ids=["checking", "switched"])
def test_a_publication_that_crashes_every_process_is_aborted(
    publishing: Publisher, webapps: WebApps, visitor: Visitor, acme: TenantScope, two: int, live: bool
) -> None:
    crash_after(acme, publishing, visitor, two, after=2 if live else 0)
    for _ in range(MOST_CLAIMS):
        (lease,) = publications.LEASES.list_running()
        db.write(lambda lease=lease: publications.claim(lease, "wrk_gone"))  # type: ignore[misc]
    assert publishing.resume() == 1
    publication = wait_for_end(publishing, acme, two)
    assert publication.state == ("switched_back" if live else "refused")
    assert f"could not be checked in {MOST_CLAIMS} attempts" in str(publication.reason)
    assert webapps.get_app(acme, "shop").published_version == 1


@pytest.fixture
def keep_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps only the newest version of an app, and those in use."""
    monkeypatch.setattr("appliance.webapps.versions.MAX_VERSIONS", 1)


@pytest.mark.usefixtures("keep_one_version")
def test_versions_in_use_by_a_publication_are_not_purged(
    publishing: Publisher, webapps: WebApps, blobs: Blobs, visitor: Visitor, acme: TenantScope, two: int
) -> None:
    visitor.answer = blocked = BlockedResponse(live=True)
    started = publishing.publish_version(acme, "shop", two)
    assert blocked.arrived.wait(SECONDS)
    make_version(webapps, blobs, acme)
    assert {row.number for row in webapps.list_versions(acme, "shop", PageRequest(9)).items} == {1, 2, 3}
    blocked.go_on.set()
    assert started.future is not None
    started.future.result(SECONDS)
    make_version(webapps, blobs, acme)
    assert {row.number for row in webapps.list_versions(acme, "shop", PageRequest(9)).items} == {2, 4}
