"""Uploaded certificates next to ordered ones, and cleanup after cancelled orders."""

import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import Conflict
from appliance.core.leases import LeaseLost
from appliance.core.scope import TenantScope
from appliance.sites.front.tls import build_server_config
from appliance.tenants import service as tenants
from appliance.testing.running import make_config
from appliance.webapps.certificates import Authority, Certificates, Issuer, Worker, orders
from appliance.webapps.certificates.issuing import CertificateRequest
from appliance.webapps.certificates.models import OrderRow
from appliance.webapps.certificates.order_processor import OrderProcessor
from appliance.webapps.certificates.schedule import DAY
from tests.sites.acme_server import AcmeServer, acme_server
from tests.sites.live_server import await_that
from tests.sites.signing import Authority as Signer
from tests.sites.signing import Leaf, pem_of, text_of
from tests.store.opening import open_migrated

ACME = TenantScope("acme", "key:acme")
HOST = "shop.example.com"


@pytest.fixture
def certificates(tmp_path: Path) -> Iterator[Certificates]:
    open_migrated(f"sqlite:///{tmp_path}/gos.db")
    tenants.create_tenant("acme", "Acme")
    yield Certificates(Sealer(b"k" * 32))
    db.close_database()


class Zone:
    """An authority that checks TXT records, and the operator's command that stores them in files."""

    def __init__(self, folder: Path, authority: AcmeServer, certificates: Certificates) -> None:
        self.records = authority.records = folder / "records"
        self.records.mkdir()
        script = folder / "hook"
        self.hold = folder / "hold"  # while it is there, the command does not end after it has added a record
        script.write_text(
            f'#!/bin/sh\ncase "$1" in remove) rm -f "{self.records}/$2"; exit;; esac\necho "$3" >>"{self.records}/$2"\n'
            f'while [ -e "{self.hold}" ]; do sleep 0.05; done\n'
        )
        script.chmod(stat.S_IRWXU)
        self.authority, self.certificates = authority, certificates
        self.hosts = [CertificateRequest(HOST, "acme", (HOST,))]
        self.command = str(script)
        self.worker = self.process("wrk_1")

    def process(self, instance: str) -> Worker:
        """A new process that replaces the previous one."""
        self.worker = Worker(instance, lambda name: name == instance)
        settings = Authority(f"{self.authority.url}/directory", dns_hook=(self.command,), hook_seconds=600)
        self.ordering = OrderProcessor(settings, self.certificates, self.worker.stopping)
        self.issuer = Issuer(self.certificates, self, self.worker, self.ordering)
        return self.worker

    def list_requests(self) -> list[CertificateRequest]:
        return self.hosts

    def report_status(self, request: CertificateRequest, status: object) -> None:
        """Nobody asks."""

    def run_rounds(self, count: int) -> None:
        for _ in range(count):
            self.issuer.run_round()
            db.write(lambda: db.execute("UPDATE certificate_order SET due_at = 0 WHERE order_url IS NOT NULL"))

    def names(self) -> list[str]:
        return [file.name for file in self.records.iterdir()]

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Runs the block while the command is adding a record; the round has ended afterwards."""
        self.hold.touch()
        thread = threading.Thread(target=self.run_rounds, args=(2,))
        thread.start()
        try:
            await_that(lambda: bool(self.names()))
            yield
        finally:
            if not self.worker.stopping.is_set():
                self.hold.unlink()
            thread.join(60)
        assert not thread.is_alive(), "the round goes on"
        self.hold.unlink(missing_ok=True)


@pytest.fixture
def zone(tmp_path: Path, certificates: Certificates) -> Iterator[Zone]:
    with acme_server() as authority:
        yield Zone(tmp_path, authority, certificates)


def test_an_ordered_certificate_does_not_replace_an_uploaded_one(zone: Zone) -> None:
    zone.authority.pause = 3
    zone.run_rounds(4)
    assert zone.authority.orders[0].status == "processing"
    row = orders.claim("wrk_1", lambda name: name == "wrk_1")
    assert row is not None
    zone.authority.pause = 0
    uploaded = zone.certificates.upload(ACME, HOST, zone.authority.signer.pair(HOST))
    with pytest.raises(LeaseLost):
        zone.ordering.advance(row)
    zone.run_rounds(3)
    assert zone.certificates.get(ACME, HOST) == uploaded
    assert len(zone.authority.orders) == 1


def test_an_upload_is_checked_again_inside_the_write(certificates: Certificates) -> None:
    def released() -> None:
        raise Conflict("released meanwhile")

    with pytest.raises(Conflict):
        certificates.upload(ACME, HOST, Signer().pair(HOST), check=released)
    assert certificates.find(ACME, HOST) is None


def test_a_missing_chain_can_be_added(tmp_path: Path, certificates: Certificates) -> None:
    root = Signer()
    between = Signer("Between", root)
    leaf = Leaf([HOST])
    pair = (text_of(between.sign(leaf)), pem_of(leaf.key))
    server = build_server_config(make_config(tmp_path, server__tls="internal"), certificates)
    server.create_ssl_context()
    served = []
    for chain in ("", text_of(between.certificate), text_of(between.certificate)):
        stored = certificates.upload(ACME, HOST, pair, chain)
        server.reload()
        offer = server.offer(HOST)
        assert offer is not None
        assert offer.certificate == stored
        served.append(offer.context)
    assert len({id(context) for context in served}) == 3
    server.reload()
    assert server.offer(HOST) is offer, "what has not changed is not loaded again"


def test_a_stopping_process_starts_nothing(zone: Zone) -> None:
    zone.run_rounds(1)
    requests = list(zone.authority.seen)
    zone.worker.stopping.set()
    zone.run_rounds(1)
    row = orders.claim("wrk_1", lambda name: name == "wrk_1")
    assert row is not None
    with pytest.raises(orders.Stopped):
        zone.ordering.advance(row)
    zone.issuer.ask_renewals()
    assert zone.authority.seen == requests


def test_a_stopping_process_does_not_wait_for_the_hook(zone: Zone) -> None:
    with zone.publishing():
        zone.worker.stopping.set()
    (row,) = OrderRow.select()
    assert (row.owner, row.failures, row.problem) == (None, 0, None)
    zone.process("wrk_2")
    zone.run_rounds(6)
    assert zone.certificates.get(ACME, HOST).origin == "acme"
    assert len(zone.authority.orders) == 1
    assert zone.names() == []


def test_a_stopping_process_requests_no_renewal_times(zone: Zone) -> None:
    zone.authority.window = {"start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"}
    zone.run_rounds(6)
    zone.worker.stopping.set()
    zone.issuer.ask_renewals()
    assert "renewal" not in zone.authority.seen
    zone.process("wrk_2")
    zone.issuer.ask_renewals()
    assert "renewal" in zone.authority.seen


@pytest.mark.parametrize("by", ["release", "upload", "other names"])
def test_a_cancelled_order_removes_what_it_published(zone: Zone, by: str) -> None:
    zone.authority.pause = 9
    zone.run_rounds(4)
    assert zone.names() == [f"_acme-challenge.{HOST}"]
    if by == "release":
        zone.hosts = []
    elif by == "upload":
        zone.certificates.upload(ACME, HOST, zone.authority.signer.pair(HOST))
    else:
        zone.hosts = [CertificateRequest(HOST, "acme", (HOST, f"www.{HOST}"), reachable=False)]
    zone.issuer.run_round()
    assert zone.names() == []


def test_records_published_after_a_cancellation_are_removed(zone: Zone) -> None:
    with zone.publishing():
        zone.hosts = []
        db.write(lambda: orders.park(HOST))
        db.write(lambda: orders.note_withdrawn(HOST))
    assert zone.names() == []
    assert zone.certificates.find(ACME, HOST) is None


def test_a_cancelled_order_is_deleted_when_its_attempts_expire(zone: Zone) -> None:
    zone.run_rounds(2)
    zone.hosts = []
    zone.run_rounds(2)
    (row,) = OrderRow.select()
    assert (row.due_at, len(row.tries)) == (orders.NEVER, 1)
    tries = [at - DAY for at in row.tries]
    db.write(lambda: OrderRow.update(tries=tries).execute())
    zone.issuer.run_round()
    assert list(OrderRow.select()) == []


def test_challenges_of_a_deleted_tenant_are_removed(zone: Zone) -> None:
    zone.authority.pause = 9
    zone.run_rounds(4)
    write = "INSERT INTO acme_challenge (token, host, order_host, answer) VALUES ('t1', ?, ?, 'a'), ('t2', 'gone', 'gone', 'a')"
    db.write(lambda: db.execute(write, (HOST, HOST)))
    zone.issuer.run_round()
    assert db.rows("SELECT token FROM acme_challenge") == [("t1",)]
