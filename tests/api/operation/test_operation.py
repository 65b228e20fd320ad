"""An appliance behind a proxy with low limits: overload, forwarded callers, a full disk, a bug."""

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import StorageFull
from appliance.monitor import check_space
from appliance.testing.running import Running, make_config, start
from tests.api.resources import Resources
from tests.api.test_bodies import error

MOST = 4


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Believes proxies on loopback and works on four requests at once."""
    config = make_config(
        tmp_path_factory.mktemp("narrow"),
        server__max_in_flight=MOST,
        server__trusted_proxies=["127.0.0.0/8"],
        limits__json_body_kb=8,
    )
    live = start(config)
    yield live
    live.stop()


@pytest.fixture(scope="module")
def owner(narrow: Running) -> Iterator[httpx.Client]:
    with narrow.api("acme") as client:
        yield client


@contextmanager
def full_disk() -> Iterator[None]:
    pages = db.rows("PRAGMA page_count")[0][0]
    db.write(lambda: db.rows(f"PRAGMA max_page_count={pages}"))
    try:
        yield
    finally:
        db.write(lambda: db.rows("PRAGMA max_page_count=1000000"))


def test_an_overloaded_appliance_asks_callers_to_retry(owner: httpx.Client) -> None:
    busy, free, pause = threading.Event(), threading.Event(), threading.Event()

    def hold_the_writer() -> None:
        busy.set()
        free.wait()

    def write_something(name: str) -> None:
        while owner.put(f"/api/v1/secrets/{name}", json={"value": "x"}).status_code == 503:
            pause.wait(0.01)

    threads = [threading.Thread(target=lambda: db.write(hold_the_writer))]
    threads[0].start()
    busy.wait()
    threads += [threading.Thread(target=write_something, args=(f"busy_{number}",)) for number in range(MOST)]
    try:
        for each in threads[1:]:
            each.start()
        while (refused := owner.get("/api/v1/tenant")).is_success:
            pause.wait(0.01)
        error(refused, 503, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        assert owner.get("/healthz").status_code == 200
        assert owner.get("/readyz").status_code == 200
    finally:
        free.set()
        for each in threads:
            each.join()
    assert owner.get("/api/v1/tenant").is_success, "the places of what is done are free"


def test_a_trusted_proxy_names_caller_and_host(narrow: Running) -> None:
    key = narrow.key("acme", allowed_ips=["192.0.2.7"])
    with narrow.client("acme.localhost", {"X-API-Key": key}) as client:
        path = "/api/v1/tenant"
        assert client.get(path, headers={"X-Forwarded-For": "192.0.2.7"}).is_success
        assert client.get(path, headers={"X-Forwarded-For": "203.0.113.9, 192.0.2.7"}).is_success
        assert client.get(path, headers={"X-Forwarded-For": "192.0.2.7, 127.0.0.2"}).is_success
        for wrong in ("192.0.2.7, 203.0.113.9", "203.0.113.9", "", "nonsense", "192.0.2.7, nonsense"):
            error(client.get(path, headers={"X-Forwarded-For": wrong}), 403, "address_not_allowed")
        seen = client.get("/api-docs/openapi.json", headers={"X-Forwarded-Proto": "https", "X-Forwarded-Host": "acme.localhost"})
        assert seen.json()["servers"] == [{"url": "https://acme.localhost"}]
        error(client.get(path, headers={"X-Forwarded-Host": "evil.test"}), 421, "unknown_host")


def test_limits_are_settings(owner: httpx.Client) -> None:
    error(owner.post("/api/v1/keys", json={"name": "x" * 9000}), 413, "payload_too_large")


def test_on_a_full_disk_reads_work_and_writes_are_refused_until_there_is_room(narrow: Running, owner: httpx.Client) -> None:
    process = Resources(narrow, "acme", owner).process()
    large = {"definition": {"id": "large", "steps": []}, "files": {f"steps/{n}.js": "x" * 700 for n in range(8)}}
    with full_disk():
        answers = [owner.put(f"/api/v1/processes/large-{n}", json={**large, "definition": {"steps": []}}) for n in range(40)]
        refused = [answer for answer in answers if not answer.is_success]
        assert refused
        for answer in refused:
            error(answer, 507, "storage_full")
        assert owner.get(f"/api/v1/processes/{process}").is_success
    assert owner.put("/api/v1/processes/large", json=large).is_success


def wait_until_ready(client: httpx.Client) -> None:
    ends = clock.monotonic() + 30
    while (status := client.get("/readyz").status_code) != 200:
        assert (status, clock.monotonic() < ends) == (503, True)


def test_on_a_full_disk_the_appliance_is_not_ready_and_says_why(
    narrow: Running, owner: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """It becomes ready again by itself; until then the log has one line about it, and none about periodic work that fails."""
    wait_until_ready(owner)  # a test before this one may have filled the disk
    caplog.clear()
    with full_disk():
        with pytest.raises(StorageFull):
            db.write(lambda: db._try_write(1 << 20))
        check_space(narrow.config.data)
        seen = owner.get("/readyz")
        assert (seen.status_code, seen.json()["status"]) == (503, "storage_full")
        assert "disk is full" in seen.json()["message"]
        assert owner.get("/healthz").status_code == 200
        db.log_failure(logging.getLogger("appliance"), StorageFull("again"), "a round failed")
    wait_until_ready(owner)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [(record.levelname, record.exc_info) for record in warnings] == [("ERROR", None), ("WARNING", None)]
    assert "the disk is full" in warnings[0].getMessage()
    assert "free space again" in warnings[1].getMessage()
    assert db.rows("SELECT name FROM sqlite_master WHERE name = 'room_trial'") == []


def test_a_bug_reveals_no_internals(narrow: Running, owner: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    process = Resources(narrow, "acme", owner).process()
    db.write(lambda: db.execute("UPDATE process SET definition = 'the insides' WHERE id = ?", (process,)))
    answer = owner.get(f"/api/v1/processes/{process}", headers={"X-Request-Id": "find-me"})
    problem = error(answer, 500, "internal")
    assert problem["request_id"] == "find-me"
    assert "insides" not in answer.text
    assert "JSON" not in problem["message"]
    assert "JSONDecodeError" in caplog.text


def test_idle_connections_do_not_count(narrow: Running, owner: httpx.Client) -> None:
    with ExitStack() as idle:
        for _ in range(3 * MOST):
            idle.enter_context(socket.create_connection(("127.0.0.1", narrow.config.server.port)))
        assert owner.get("/api/v1/tenant").is_success
