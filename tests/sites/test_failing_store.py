"""The responses of the content hosts when the blob store fails, and what is counted."""

import asyncio
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from appliance.blobs import Pieces
from appliance.core.catalogues import Languages
from appliance.core.errors import ApplianceError, Gone, Overloaded
from appliance.sites.front.coded_errors import CodedErrors
from appliance.sites.front.readers import Readers
from appliance.testing.running import Running
from appliance.web import Receive, Scope, Send
from tests.sites.test_cdn import DOCUMENTS, publish, upload
from tests.sites.test_shares import path_of, share
from tests.sites.test_webapps import deploy, new_app, site

LARGE = b"%PDF-1.7\n" + b"p" * 700_000
SMALL = b"%PDF-1.7\n small and never asked for before"
BUSY = Overloaded("the bucket cannot be reached", headers={"Retry-After": "30"})


class FailingPlaces:
    """A bucket that fails at once, or after the first piece."""

    def __init__(self, places: Any, error: ApplianceError, *, behind: bool = False) -> None:
        self._places, self._error, self._behind = places, error, behind

    def read(self, place: str, start: int, end: int) -> Pieces:
        if not self._behind:
            raise self._error
        return BreakingPieces(self._places.read(place, start, end), self._error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._places, name)


class BreakingPieces(Pieces):
    """One piece, then the error."""

    def __init__(self, pieces: Pieces, error: ApplianceError) -> None:
        self._first, self._error = next(pieces), error

    def __next__(self) -> bytes:
        if (first := self.at_hand()) is None:
            raise self._error
        return first

    def at_hand(self) -> bytes | None:
        first, self._first = self._first, b""
        return first or None


@pytest.fixture
def fail(running: Running, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the store fail until the test ends or the patch is undone."""
    blobs = running.services.blobs

    def begin(error: ApplianceError, *, behind: bool = False) -> pytest.MonkeyPatch:
        monkeypatch.setattr(blobs, "_places", FailingPlaces(blobs._places, error, behind=behind))
        return monkeypatch

    return begin


def summarize(answer: httpx.Response) -> tuple[int, str, str | None]:
    return answer.status_code, answer.json()["error"]["code"], answer.headers.get("retry-after")


def test_a_failing_store_is_reported_as_such(running: Running, acme: httpx.Client, fail: Any) -> None:
    document = upload(acme, "failing.pdf", LARGE)
    publish(acme, document, "failing/large.pdf")
    small = upload(acme, "small.pdf", SMALL)
    publish(acme, small, "failing/small.pdf")
    new_app(acme, "failing-app")
    deploy(acme, "failing-app", {"index.html": b"<title>never read before</title>"})
    link = acme.post("/api/v1/webapps/failing-app/versions/1/preview", json={}).raise_for_status().json()["data"]["url"]
    hosts = ("cdn--acme", "failing-app--acme", "v1-failing-app--acme")
    with ExitStack() as stack:
        cdn, app, early = (stack.enter_context(site(running, host)) for host in hosts)
        let_in = early.get(httpx.URL(link).raw_path.decode())
        cookie = {"Cookie": let_in.headers["set-cookie"].partition(";")[0]}
        assert early.head("/", headers=cookie).status_code == 200
        assert cdn.head("/failing/large.pdf").status_code == 200
        assert cdn.head("/failing/small.pdf").status_code == 200
        fail(BUSY)
        for answer in (
            cdn.get("/failing/large.pdf"), cdn.get("/failing/small.pdf"), app.get("/"), early.get("/", headers=cookie),
        ):  # fmt: skip
            assert summarize(answer) == (503, "overloaded", "30")
    acme.delete("/api/v1/webapps/failing-app", params={"force": "true"}).raise_for_status()
    for each in (document, small):
        acme.delete(f"{DOCUMENTS}/{each}").raise_for_status()


def test_a_download_that_did_not_start_is_not_counted(running: Running, acme: httpx.Client, fail: Any) -> None:
    document = upload(acme, "only-once.pdf", LARGE + b"once")
    created = share(acme, document, max_downloads=1)
    file = f"{path_of(created)}/file"

    def counted() -> tuple[int, list[str]]:
        lines = acme.get(f"{DOCUMENTS}/{document}/downloads").json()["data"]
        state = acme.get(f"{DOCUMENTS}/{document}/shares/{created['id']}").json()["data"]
        return state["downloads"], [line["outcome"] for line in lines]

    with site(running, "cdn--acme") as visitor:
        assert visitor.head(file).status_code == 200
        patch = fail(BUSY)
        assert summarize(visitor.get(file)) == (503, "overloaded", "30")
        assert counted() == (0, ["failed"])
        patch.undo()
        patch = fail(Gone("deleted while it was read"), behind=True)
        with pytest.raises(httpx.RemoteProtocolError):
            visitor.get(file)
        patch.undo()
        assert counted() == (1, ["broken_off", "failed"])
        assert visitor.get(file).status_code == 404
    acme.delete(f"{DOCUMENTS}/{document}").raise_for_status()


def test_a_started_response_is_not_restarted() -> None:
    sent: list[str] = []

    async def half(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise BUSY

    async def send(message: Any) -> None:
        sent.append(message["type"])

    async def receive() -> Any:
        raise AssertionError("nobody reads")

    with pytest.raises(Overloaded):
        asyncio.run(CodedErrors(half, Readers(Languages(list)))({"gos.request_id": "r"}, receive, send))
    assert sent == ["http.response.start"]
