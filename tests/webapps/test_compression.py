"""Background compression of contents: later, once, and only for contents that still exist."""

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path

import brotli
import pytest
import zstandard

from appliance.blobs import Blobs, quota
from appliance.core.scope import TenantScope
from appliance.solutions import write_zip
from appliance.webapps import changes
from appliance.webapps.files.compression import Compression
from appliance.webapps.files.preparation import EncodedForm
from appliance.webapps.publishing.served_grants import find_served
from appliance.webapps.service import NewApp, WebApps

SCRIPT = b"export const hello = 'hello, dear reader of this file'\n" * 100
BOTH = pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def unbounded() -> Iterator[None]:
    """Restores the quota that a test changes."""
    yield
    quota.configure(tenant_bytes=0)


def deploy(webapps: WebApps, scope: TenantScope, files: dict[str, bytes]) -> int:
    number = webapps.deploy_archive(scope, "shop", io.BytesIO(write_zip(files))).number
    webapps.publish_version(scope, "shop", number)
    return number


def forms_of(webapps: WebApps, scope: TenantScope, number: int = 1) -> dict[str, dict[str, tuple[str, int]]]:
    served = webapps.load_served(scope, "shop", number)
    assert served is not None
    return {path: dict(file.forms) for path, file in served.files.items()}


@BOTH
def test_a_version_is_ready_before_its_contents_are_compressed(
    webapps: WebApps, blobs: Blobs, acme: TenantScope, globex: TenantScope
) -> None:
    webapps.create_app(globex, NewApp("shop"))
    for scope in (acme, globex):
        deploy(webapps, scope, {"a.js": SCRIPT, "photo.jpg": SCRIPT[::-1], "small.js": b"1"})
        assert set(forms_of(webapps, scope)["a.js"]) == {"identity", "gzip"}
    events: list[tuple[str, str]] = []
    unsubscribe = changes.subscribe(lambda tenant, app: events.append((tenant, app)))
    assert Compression(blobs).compress_all() == 2
    unsubscribe()
    assert sorted(events) == [("acme", "shop"), ("globex", "shop")]
    for scope in (acme, globex):
        forms = forms_of(webapps, scope)
        assert set(forms["a.js"]) == {"identity", "gzip", "zstd", "br"}
        assert set(forms["photo.jpg"]) == set(forms["small.js"]) == {"identity"}
        assert brotli.decompress(blobs.read_whole(scope, forms["a.js"]["br"][0], 1 << 20)) == SCRIPT
        assert zstandard.decompress(blobs.read_whole(scope, forms["a.js"]["zstd"][0], 1 << 20)) == SCRIPT
        assert find_served(scope, "shop").forms == 1
    assert Compression(blobs).compress_all() == 0
    assert deploy(webapps, acme, {"a.js": SCRIPT, "b.js": SCRIPT[1:]}) == 2
    assert Compression(blobs).compress_all() == 1, "what an earlier version had is done"


def test_a_stopped_process_leaves_the_rest_to_the_next(webapps: WebApps, blobs: Blobs, acme: TenantScope) -> None:
    class Stopped(Compression):
        def _compress(self, scope: TenantScope, content: str) -> list[EncodedForm]:
            self.signal()
            return super()._compress(scope, content)

    deploy(webapps, acme, {f"{number}.js": SCRIPT[number:] for number in range(3)})
    assert Stopped(blobs).compress_all() == 1
    assert sum("br" in forms for forms in forms_of(webapps, acme).values()) == 1
    assert Compression(blobs).compress_all() == 2
    assert all("br" in forms for forms in forms_of(webapps, acme).values())


@BOTH
def test_contents_deleted_in_the_meantime_get_no_forms(webapps: WebApps, blobs: Blobs, acme: TenantScope) -> None:
    class Overtaken(Compression):
        def _compress(self, scope: TenantScope, content: str) -> list[EncodedForm]:
            webapps.delete_app(scope, "shop", force=True)
            return super()._compress(scope, content)

    deploy(webapps, acme, {"a.js": SCRIPT})
    assert Overtaken(blobs).compress_all() == 1
    webapps.create_app(acme, NewApp("shop"))
    deploy(webapps, acme, {"a.js": SCRIPT})
    assert set(forms_of(webapps, acme)["a.js"]) == {"identity", "gzip"}


def test_a_damaged_content_does_not_block_others(webapps: WebApps, blobs: Blobs, acme: TenantScope, tmp_path: Path) -> None:
    deploy(webapps, acme, {"a.js": SCRIPT, "b.js": SCRIPT[1:]})
    [stored] = (tmp_path / "blobs" / "acme").rglob(f"{hashlib.sha256(SCRIPT).hexdigest()}.*")
    stored.unlink()
    assert Compression(blobs).compress_all() == 2
    forms = forms_of(webapps, acme)
    assert (set(forms["a.js"]), set(forms["b.js"])) == ({"identity", "gzip"}, {"identity", "gzip", "zstd", "br"})
    assert Compression(blobs).compress_all() == 0


@pytest.mark.usefixtures("unbounded")
def test_a_tenant_without_storage_is_still_served(webapps: WebApps, blobs: Blobs, acme: TenantScope) -> None:
    deploy(webapps, acme, {"a.js": SCRIPT})
    quota.configure(tenant_bytes=blobs.usage(acme).bytes)
    assert Compression(blobs).compress_all() == 1
    assert set(forms_of(webapps, acme)["a.js"]) == {"identity", "gzip"}
    assert Compression(blobs).compress_all() == 0
