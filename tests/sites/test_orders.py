"""Certificates that people bring beside those that are ordered, and what an order leaves behind that nobody waits for."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.core import db, migrations
from appliance.core.crypto import Sealer
from appliance.core.errors import Conflict
from appliance.core.scope import TenantScope
from appliance.sites.tls import make_server_config
from appliance.tenants import service as tenants
from appliance.testing.running import make_config
from appliance.webapps.certificates import orders
from appliance.webapps.certificates.issuing import Issuer, Wish, Worker
from appliance.webapps.certificates.ordering import Authority, Ordering
from appliance.webapps.certificates.service import Certificates
from tests.sites.acme_server import AcmeServer, acme_server
from tests.sites.signing import Authority as Signer
from tests.sites.signing import Leaf, pem_of, text_of

ACME = TenantScope("acme", "key:acme")
HOST = "shop.example.com"


@pytest.fixture
def certificates(tmp_path: Path) -> Iterator[Certificates]:
    db.open_database(f"sqlite:///{tmp_path}/gos.db")
    migrations.migrate()
    tenants.create_tenant("acme", "Acme")
    yield Certificates(Sealer(b"k" * 32))
    db.close_database()


class Zone:
    """An authority that asks for TXT records, and the operator's command that keeps them in files."""

    def __init__(self, folder: Path, authority: AcmeServer, certificates: Certificates) -> None:
        self.records = authority.records = folder / "records"
        self.records.mkdir()
        script = folder / "hook"
        script.write_text(
            f'#!/bin/sh\ncase "$1" in add) echo "$3" >>"{self.records}/$2";; remove) rm -f "{self.records}/$2";; esac\n'
        )
        script.chmod(stat.S_IRWXU)
        self.authority, self.certificates = authority, certificates
        self.hosts = [Wish(HOST, "acme", (HOST,))]
        self.ordering = Ordering(Authority(f"{authority.url}/directory", dns_hook=(str(script),), hook_seconds=60), certificates)
        self.issuer = Issuer(certificates, self, Worker("wrk_1", lambda name: name == "wrk_1"), self.ordering)

    def wishes(self) -> list[Wish]:
        return self.hosts

    def note(self, wish: Wish, standing: object) -> None:
        """Nobody asks."""

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.issuer.look()
            db.write(lambda: db.execute("UPDATE certificate_order SET due_at = 0 WHERE order_url IS NOT NULL"))

    def names(self) -> list[str]:
        return [file.name for file in self.records.iterdir()]


@pytest.fixture
def zone(tmp_path: Path, certificates: Certificates) -> Iterator[Zone]:
    with acme_server() as authority:
        yield Zone(tmp_path, authority, certificates)


def test_what_an_order_brings_does_not_take_the_place_of_what_a_person_brought(zone: Zone) -> None:
    zone.authority.pause = 3
    zone.rounds(4)
    assert zone.authority.orders[0].status == "processing"
    row = orders.claim("wrk_1", lambda name: name == "wrk_1")
    assert row is not None
    zone.authority.pause = 0
    brought = zone.certificates.upload(ACME, HOST, zone.authority.signer.pair(HOST))
    with pytest.raises(orders.OrderLost):
        zone.ordering.advance(row)
    zone.rounds(3)
    assert zone.certificates.get(ACME, HOST) == brought
    assert len(zone.authority.orders) == 1


def test_what_forbids_a_certificate_meanwhile_keeps_it_out(certificates: Certificates) -> None:
    def released() -> None:
        raise Conflict("released meanwhile")

    with pytest.raises(Conflict):
        certificates.upload(ACME, HOST, Signer().pair(HOST), may=released)
    assert certificates.find(ACME, HOST) is None


def test_the_chain_that_was_missing_is_taken_up(tmp_path: Path, certificates: Certificates) -> None:
    root = Signer()
    between = Signer("Between", root)
    leaf = Leaf([HOST])
    pair = (text_of(between.sign(leaf)), pem_of(leaf.key))
    server = make_server_config(make_config(tmp_path, server__tls="internal"), certificates)
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
