"""The cache of a bucket: it saves requests, keeps its bound, and never serves anything but the content."""

import hashlib
import os
import secrets
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.app.parts import make_cached_places, make_places
from appliance.blobs.cache import _SIZE, CACHE_FOLDER, LARGEST_CONTENT, UNFINISHED_MS, CachedPlaces, ContentCache
from appliance.blobs.local import LocalPlaces
from appliance.blobs.s3 import S3Places, open_bucket
from appliance.blobs.service import GRACE_MS, Blobs, Places
from appliance.core import clock
from appliance.core.config import Config, load_config
from appliance.core.config.sections import Blobs as Settings
from appliance.core.config.sections import Storage
from appliance.core.errors import ConfigInvalid
from appliance.core.scope import TenantScope
from appliance.tenants import service as tenants
from tests.blobs.endpoint import Endpoint, running_endpoint
from tests.blobs.probes import files_in
from tests.forking import Forked
from tests.store.opening import open_migrated

KEYS = {"region": "eu-central-1", "key_id": "ann", "secret_key": "x"}


@dataclass
class Setup:
    """Places of a bucket with a cache of 1 MiB in `folder`, and the server, which lists the requests for contents."""

    places: CachedPlaces
    bucket: S3Places
    folder: Path
    endpoint: Endpoint

    def store(self, content: bytes) -> str:
        """Stores a content; returns its place."""
        digest = hashlib.sha256(content).hexdigest()
        place = f"acme/{digest[:2]}/{digest}.{secrets.token_hex(6)}"
        receiver = self.places.receiver()
        receiver.write(content)
        self.places.adopt(receiver.finish().path, place)
        return place

    def read(self, place: str, size: int) -> bytes:
        return b"".join(self.places.read(place, 0, size))

    def cached(self) -> list[Path]:
        return [self.folder / name for name in files_in(self.folder) if not name.startswith("+")]

    def reads(self) -> int:
        return len(self.endpoint.reads)


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    with running_endpoint(tmp_path) as endpoint:
        settings = Settings(store="s3", bucket="contents", endpoint=endpoint.url, ca_file=str(endpoint.ca_file), **KEYS)  # type: ignore[arg-type]
        bucket, folder = S3Places(open_bucket(settings), tmp_path / "blobs"), tmp_path / CACHE_FOLDER
        yield Setup(CachedPlaces(bucket, ContentCache(folder, 1 << 20)), bucket, folder, endpoint)


def test_a_cached_content_is_read_without_a_request(setup: Setup) -> None:
    content = os.urandom(300_000)
    place = setup.store(content)
    assert [setup.read(place, len(content)) for _ in range(3)] == [content] * 3
    assert b"".join(setup.places.read(place, 100, 270_000)) == content[100:270_000]
    neighbour = CachedPlaces(setup.bucket, ContentCache(setup.folder, 1 << 20))  # another process with the same data folder
    pieces = neighbour.read(place, 0, len(content))
    assert pieces.at_hand() == content[: 1 << 18]
    assert b"".join(pieces) == content[1 << 18 :]
    assert setup.reads() == 1
    assert [path.read_bytes() for path in setup.cached()] == [content]
    assert [path.stat().st_mode & 0o777 for path in (setup.folder, *setup.cached())] == [0o700, 0o600]


def test_ranges_and_large_contents_pass_without_being_cached(setup: Setup) -> None:
    small, large = os.urandom(10_000), os.urandom(LARGEST_CONTENT + 1)
    places = setup.store(small), setup.store(large)
    for _ in range(2):
        assert b"".join(setup.places.read(places[0], 0, 4096)) == small[:4096]
        assert b"".join(setup.places.read(places[0], 1, 10_000)) == small[1:]
        assert setup.read(places[1], len(large)) == large
    assert (setup.reads(), setup.cached()) == (6, [])


def test_what_is_used_longest_ago_is_deleted_first(setup: Setup) -> None:
    contents = [os.urandom(100_000) for _ in range(30)]
    places = [setup.store(content) for content in contents]
    for number, content in enumerate(contents):
        clock_of_use = clock.now_ms() * 1_000_000 - (len(contents) - number) * 10**9
        assert setup.read(places[number], 100_000) == content
        newest = max(setup.cached(), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, ns=(clock_of_use, clock_of_use))
        assert setup.read(places[0], 100_000) == contents[0]  # used again and again
        assert sum(path.stat().st_blocks * 512 for path in setup.cached()) <= 1 << 20
    remaining = {path.read_bytes() for path in setup.cached()}
    assert contents[0] in remaining
    assert 7 <= len(remaining) <= 10
    assert remaining - {contents[0]} == set(contents[-len(remaining) + 1 :])
    assert setup.reads() == len(contents)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path, size: os.truncate(path, size - 1), lambda path, size: os.truncate(path, 0),
        lambda path, size: path.write_bytes(bytes(size)), lambda path, _: path.write_bytes(path.read_bytes() + b"x"),
        lambda path, size: path.write_bytes(b"x" + path.read_bytes()[1:]), lambda path, _: path.unlink(),
    ],
    ids=["truncated", "empty", "zeros", "longer", "changed", "missing"],
)  # fmt: skip
def test_a_damaged_file_is_not_served(setup: Setup, damage: Callable[[Path, int], object]) -> None:
    content = os.urandom(50_000)
    place = setup.store(content)
    setup.read(place, len(content))
    damage(setup.cached()[0], len(content))
    assert [setup.read(place, len(content)) for _ in range(2)] == [content] * 2
    assert setup.reads() == 2
    assert [path.read_bytes() for path in setup.cached()] == [content]


def test_a_damaged_object_is_not_cached(setup: Setup) -> None:
    place = setup.store(b"content")
    setup.endpoint.objects[f"/contents/{place}"] = b"changed"
    assert setup.read(place, 7) == b"changed"  # its reader checks it
    setup.endpoint.objects[f"/contents/{place}"] = b"content"
    assert setup.read(place, 7) == b"content"


def test_a_deleted_content_leaves_the_cache(setup: Setup) -> None:
    place = setup.store(b"content")
    setup.read(place, 7)
    setup.places.delete(place)
    assert setup.cached() == []
    with pytest.raises(FileNotFoundError):
        setup.places.read(place, 0, 7)


def test_copies_of_what_was_deleted_are_collected(setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_migrated(f"sqlite:///{tmp_path}/gos.db")
    tenants.create_tenant("acme", "acme")
    tenants.create_tenant("globex", "globex")
    acme, globex = TenantScope("acme", "key:test"), TenantScope("globex", "key:test")
    here = Blobs(setup.places, [])
    elsewhere = Blobs(CachedPlaces(setup.bucket, ContentCache(tmp_path / "other", 1 << 20)), [])
    monkeypatch.setattr(S3Places, "walk", lambda _: iter(()))
    contents = [(scope, here.put(scope, content).sha256) for scope in (acme, globex) for content in (b"one", b"two")]
    for blobs in (here, elsewhere):
        assert [blobs.read_whole(scope, sha256, 3) for scope, sha256 in contents] == [b"one", b"two"] * 2
    tenants.delete_tenant("globex")
    assert here.collect() == 0
    assert [path.name[:4] for path in setup.cached()] == ["acme"] * 2
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now + GRACE_MS + 1000)
    assert here.collect() == 2
    assert setup.cached() == []
    assert len(files_in(tmp_path / "other")) == 4 + 1
    elsewhere.collect()
    assert files_in(tmp_path / "other") == [_SIZE]


CALLS = ("utime", "flock", "pwrite", "rename")


def store_until_killed(folder: str, call: str, content: bytes) -> int:
    """Caches a content, and dies before the first call of this function."""

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    import fcntl

    owner = {"flock": fcntl, "rename": Path}.get(call, os)
    setattr(owner, call, die)
    ContentCache(Path(folder), 1 << 20).store(place_of(content), content)
    return 0


def place_of(content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    return f"acme/{digest[:2]}/{digest}.1"


@pytest.mark.parametrize("call", CALLS)
def test_a_killed_process_leaves_a_cache_that_works(tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = [os.urandom(200_000) for _ in range(8)]
    cache = ContentCache(tmp_path, 1 << 20)
    cache.store(place_of(contents[0]), contents[0])
    for content in contents[1:4]:
        assert Forked(store_until_killed, str(tmp_path), call, content, log=tmp_path.parent / "log").wait(60) == -signal.SIGKILL
        assert cache.read(place_of(content)) is None
    assert cache.read(place_of(contents[0])) == contents[0]
    for content in contents:
        cache.store(place_of(content), content)
        assert cache.read(place_of(content)) == content
        assert sum(path.stat().st_size for path in tmp_path.iterdir() if not path.name.startswith("+")) <= 1 << 20
    now = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now + UNFINISHED_MS + 1000)
    cache.delete_unnamed(set)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("+")] == [_SIZE]


def test_threads_of_several_processes_share_a_cache(setup: Setup) -> None:
    contents = [os.urandom(10_000 + 5_000 * number) for number in range(25)]  # three times as much as the cache may have
    places = [setup.store(content) for content in contents]
    stores = [ContentCache(setup.folder, 1 << 20) for _ in range(3)]
    caches = [CachedPlaces(setup.bucket, each) for each in stores]
    wrong: list[str] = []

    def read_all(shared: Places, step: int) -> None:
        for number in range(100):
            index = number * step % len(contents)
            if b"".join(shared.read(places[index], 0, len(contents[index]))) != contents[index]:
                wrong.append(places[index])
            with stores[0]._locked_size():
                if sum(path.stat().st_size for path in setup.cached()) > 1 << 20:
                    wrong.append("too large")

    threads = [threading.Thread(target=read_all, args=(caches[step % 3], step)) for step in (1, 2, 3, 4, 6, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert 0 < setup.reads() < 600


def test_a_failing_disk_costs_only_the_cache(
    setup: Setup, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = setup.store(b"content")
    setup.folder.write_text("no folder")
    assert [setup.read(place, 7) for _ in range(3)] == [b"content"] * 3
    assert [record.message for record in caplog.records if "cached" in record.message] == [
        "Contents of the bucket cannot be cached."
    ]
    setup.folder.unlink()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 40, (1 << 40) - 1, 1 << 29))
    assert (setup.read(place, 7), setup.cached()) == (b"content", [])


def test_the_cache_is_used_where_it_is_configured(tmp_path: Path) -> None:
    bucket = Settings(store="s3", bucket="contents", endpoint="http://127.0.0.1:9", **KEYS)  # type: ignore[arg-type]
    config = Config(storage=Storage(data=str(tmp_path)), blobs=bucket)
    places = S3Places(open_bucket(bucket), tmp_path / "blobs")
    assert isinstance(make_cached_places(config, places), CachedPlaces)
    for settings in (Settings(), Settings(store="s3", bucket="contents", cache_mb=0, **KEYS)):  # type: ignore[arg-type]
        (tmp_path / CACHE_FOLDER).mkdir()
        (tmp_path / CACHE_FOLDER / "former").write_bytes(b"content")
        assert make_cached_places(Config(storage=Storage(data=str(tmp_path)), blobs=settings), places) is places
        assert not (tmp_path / CACHE_FOLDER).exists()
    assert isinstance(make_places(Config(storage=Storage(data=str(tmp_path))), ""), LocalPlaces)
    for wrong in ("-1", "1048577"):
        with pytest.raises(ConfigInvalid, match=r"blobs\.cache_mb"):
            load_config(environment={}, flags={"blobs.cache_mb": wrong})
