"""Every moment that was shipped is restored as it was, compared by the digests of every table and the bytes of every content."""

import hashlib
from pathlib import Path

import pytest

from appliance.core import clock
from appliance.core.errors import ValidationFailed
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.documents import service as documents
from appliance.documents.models import DocumentRow
from appliance.tenants import service
from tests.backups.conftest import PASSPHRASE, World, digests, make_world
from tests.backups.points.worlds import point_world, restore_point, shipping, wait_for_shipment


def contents_of(world: World) -> dict[str, str]:
    """The sha256 of the bytes of every document, by tenant and id."""
    result = {}
    for name in ("initech", "hooli"):
        scope = service.system_scope(name)
        for row in scope.select(DocumentRow):
            content = b"".join(world.blobs.read_checked(scope, row.sha256))
            result[f"{name}/{row.id}"] = hashlib.sha256(content).hexdigest()
    return result


def add_document(world: World, scope: TenantScope, name: str, content: bytes) -> str:
    stored = world.blobs.put(scope, content)
    return documents.Documents(world.incoming).create_document(scope, documents.NewDocument(name), stored).id


@pytest.mark.parametrize("passphrase", [PASSPHRASE, ""], ids=["sealed", "open"])
def test_the_second_before_a_deletion_is_restored(tmp_path: Path, passphrase: str) -> None:
    place = tmp_path / "points"
    place.mkdir()
    source = point_world(tmp_path / "data", str(place), passphrase)
    with source.opened():
        scope = source.fill()
        with shipping(source) as shipper:
            report = add_document(source, scope, "plan.txt", b"what we planned" * 5000)
            datapool.create_entity(scope, "orders", {"number": "late", "total": "7.25"})
            before, before_contents = digests(), contents_of(source)
            moment = wait_for_shipment(shipper)
            datapool.delete_collection(scope, "lines", allow_loss=True)
            documents.Documents(source.incoming).delete_document(scope, report)
            wait_for_shipment(shipper)
            after, after_contents = digests(), contents_of(source)
        assert before != after
        assert len(before_contents) == len(after_contents) + 1
    options = {"passphrase": passphrase or None, "key_file": None if passphrase else source.config.data / "key"}
    earlier = make_world(tmp_path / "earlier")
    done = restore_point(source, earlier, moment, **options)
    assert clock.parse_rfc3339(done.manifest["made_at"]) <= moment
    assert done.manifest["contents"]["damaged"] == []
    with earlier.opened():
        assert digests() == before
        assert contents_of(earlier) == before_contents
    latest = make_world(tmp_path / "latest")
    restore_point(source, latest, None, **options)
    with latest.opened():
        assert digests() == after
        assert contents_of(latest) == after_contents


def test_a_moment_outside_of_the_range_names_it(tmp_path: Path) -> None:
    place = tmp_path / "points"
    place.mkdir()
    source = point_world(tmp_path / "data", str(place))
    with source.opened():
        source.fill()
        with shipping(source) as shipper:
            wait_for_shipment(shipper)
    for moment in (clock.now_ms() - 3_600_000, clock.now_ms() + 3_600_000):
        with pytest.raises(ValidationFailed, match=r"has points from 20.*Z to 20.*Z; choose a moment between them"):
            restore_point(source, make_world(tmp_path / "other"), moment)
    assert not (tmp_path / "other").exists()


