"""Backups in an S3-compatible bucket: complete, encrypted, read back, kept as configured, and restored from there."""

import hashlib
import secrets
from dataclasses import dataclass, replace
from pathlib import Path

import obstore
import pytest

from appliance.backups import backup_folder, list_jobs
from appliance.backups.backup_folder import list_backups
from appliance.backups.backup_runner import Progress
from appliance.backups.buckets import BucketFolder, find_object, make_in_bucket, open_folder
from appliance.backups.problems import BackupInvalid
from appliance.backups.schedule import RETRY_MS, find_due, findings, get_status
from appliance.backups.verification import verify_backup
from appliance.blobs import open_bucket
from appliance.core import clock
from appliance.core.config import load_config
from appliance.core.config.sections import Blobs as BucketSettings
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, ConfigInvalid, NotFound, Overloaded
from tests.backups.backup_processes import BackupProcess
from tests.backups.buckets import bucket_world, folder_of_world, leave_unfinished, names_in, unfinished_in
from tests.backups.conftest import PASSPHRASE, World, digests, make_world, restore

HOUR = 3_600_000


@dataclass
class Site:
    """An appliance whose backups are in the bucket."""

    world: World
    bucket: BucketSettings
    prefix: str

    def names(self) -> list[str]:
        return names_in(self.bucket, self.prefix)

    def own_name(self, stamp: str) -> str:
        """The name of a backup of this installation."""
        return f"gos-{stamp}Z{backup_folder.new_path(self.world.config).name.partition('Z')[2]}"


@pytest.fixture
def site(tmp_path: Path, bucket: BucketSettings) -> Site:
    prefix = f"backups/{secrets.token_hex(6)}"
    return Site(bucket_world(tmp_path / "data", bucket, prefix), bucket, prefix)


def later(monkeypatch: pytest.MonkeyPatch, ms: int = HOUR) -> None:
    at = clock.now_ms() + ms + 1
    monkeypatch.setattr(clock, "now_ms", lambda: at)


def test_backups_are_made_kept_listed_and_restored(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = site.world.config
    with site.world.opened():
        site.world.fill()
        own, results = BackupProcess(config, site.world.places), []
        for _ in range(3):
            result = own.run_due()
            assert result is not None
            assert (result.problem, result.encrypted) == (None, True)
            results.append(result)
            assert own.run_due() is None, "it is not due"
            later(monkeypatch)
        newest = [result.path.rpartition("/")[2] for result in results[:0:-1]]
        assert [each.name for each in list_backups(config)] == newest
        assert site.names() == sorted([*newest, *(f"{name}.sha256" for name in newest)])
        assert [job.result for job in list_jobs()] == results[:0:-1], "what was deleted is forgotten"
        before = digests()
    assert not list((config.data / "backups").iterdir()), "the draft is deleted"
    source = find_object(config, results[-1].path)
    store = open_bucket(replace(site.bucket, prefix=site.prefix))
    content = bytes(obstore.get(store, source.name).bytes())
    checksum = bytes(obstore.get(store, f"{source.name}.sha256").bytes()).decode()
    assert checksum == f"{hashlib.sha256(content).hexdigest()}  {source.name}\n"
    assert verify_backup(source, PASSPHRASE)["contents"]["count"] == 2
    restored = make_world(tmp_path / "restored")
    restore(source, restored)
    with restored.opened():
        assert digests() | {"backup_job": ""} == before | {"backup_job": ""}


def test_an_object_without_its_checksum_does_not_count(site: Site) -> None:
    """Killed between upload and verification, or while an old one was deleted: the next backup deletes the leftovers."""
    store = open_bucket(replace(site.bucket, prefix=site.prefix))
    with site.world.opened():
        half, rest = site.own_name("20260101T000000"), site.own_name("20260102T000000")
        foreign = f"gos-20260101T000000Z-ins_{'0' * 24}.gosb"
        for name in (half, f"{rest}.sha256", foreign, "notes.txt"):
            obstore.put(store, name, b"left by somebody")
        assert list_backups(site.world.config) == []
        result = BackupProcess(site.world.config, site.world.places).run_due()
    assert result is not None
    assert result.problem is None
    name = result.path.rpartition("/")[2]
    assert site.names() == sorted([name, f"{name}.sha256", foreign, "notes.txt"])


def test_unfinished_uploads_of_killed_processes_are_deleted(site: Site) -> None:
    """Those of this installation at once, others' after a week, and what is no backup never."""
    with site.world.opened():
        own, foreign = site.own_name("20260101T000000"), f"gos-20260101T000000Z-ins_{'0' * 24}.gosb"
        for name in (own, foreign, "video.mp4"):
            leave_unfinished(site.bucket, site.prefix, name)
        process = BackupProcess(site.world.config, site.world.places)
        assert process.run_due() is not None
        assert unfinished_in(site.bucket, site.prefix) == sorted([foreign, "video.mp4"])
        folder_of_world(site.world).delete_leftovers(lambda _: False, clock.now_ms() + HOUR)
        assert unfinished_in(site.bucket, site.prefix) == ["video.mp4"]


def test_appliances_that_share_a_prefix_keep_their_own_backups(
    site: Site, bucket: BucketSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = bucket_world(tmp_path / "neighbour", bucket, site.prefix)
    names: dict[str, list[str]] = {"own": [], "other": []}
    for _ in range(3):
        for name, world in (("own", site.world), ("other", other)):
            with world.opened():
                done = BackupProcess(world.config, world.places).run_due()
            assert done is not None, "the neighbour's newest is no backup of ours"
            names[name].append(done.path.rpartition("/")[2])
        later(monkeypatch)
    for name, world in (("own", site.world), ("other", other)):
        assert [each.name for each in list_backups(world.config)] == names[name][:0:-1]
    assert len(site.names()) == 8


def test_bytes_that_the_bucket_has_changed_are_found_before_the_backup_counts(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = BucketFolder._upload

    def change(self: BucketFolder, draft: Path, name: str, course: object) -> str:
        digest = upload(self, draft, name, course)  # type: ignore[arg-type]
        changed = bytearray(draft.read_bytes())
        changed[100] ^= 1
        obstore.put(self._store, name, bytes(changed))
        return digest

    monkeypatch.setattr(BucketFolder, "_upload", change)
    with site.world.opened():
        result = BackupProcess(site.world.config, site.world.places).run_due()
    assert result is not None
    assert "other bytes than were stored" in str(result.problem)
    assert site.names() == []
    assert "FAIL" in dict(findings(site.world.config))


@pytest.mark.parametrize("stage", ["uploading", "reading"])
def test_a_process_that_lost_its_backup_while_uploading_leaves_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    report = Progress.report

    def lose(self: Progress, at: str, done: int, of: int) -> None:
        if at == stage:
            db.write(lambda: db.execute("UPDATE backup_job SET fence = fence + 1, owner = 'two'"))
        report(self, at, done, of)

    with site.world.opened():
        with monkeypatch.context() as patch:
            patch.setattr(Progress, "report", lose)
            assert BackupProcess(site.world.config, site.world.places).run_due() is None
        assert db.rows("SELECT state, owner FROM backup_job") == [("running", "two")]
    assert site.names() == unfinished_in(site.bucket, site.prefix) == []


def test_a_stop_while_uploading_leaves_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    report = Progress.report
    with site.world.opened():
        own = BackupProcess(site.world.config, site.world.places)

        def stop(self: Progress, at: str, done: int, of: int) -> None:
            report(self, at, done, of)
            if at == "uploading":
                own.begin_to_stop()

        monkeypatch.setattr(Progress, "report", stop)
        assert own.run_due() is None
        assert db.rows("SELECT state, owner, claims FROM backup_job") == [("running", None, 0)]
    assert site.names() == unfinished_in(site.bucket, site.prefix) == []


def test_a_backup_without_a_passphrase_is_not_sent_to_a_bucket(
    bucket: BucketSettings, tmp_path: Path
) -> None:
    prefix = f"backups/{secrets.token_hex(6)}"
    world = bucket_world(tmp_path / "data", bucket, prefix, passphrase="")
    with world.opened():
        result = BackupProcess(world.config, world.places).run_due()
        assert result is not None
        assert "must be encrypted" in str(result.problem)
        with pytest.raises(BackupInvalid, match="must be encrypted"):
            make_in_bucket(world.config, world.places, f"s3://{bucket.bucket}/{prefix}/own.gosb", None)
    assert names_in(bucket, prefix) == []
    assert any(level == "FAIL" and "must be encrypted" in text for level, text in findings(world.config))


def test_a_bucket_that_cannot_be_reached_fails_the_backup_and_is_reported(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site.world.opened():
        own = BackupProcess(site.world.config, site.world.places)
        first = own.run_due()
        assert first is not None
    broken = World(replace(site.world.config, backup=replace(site.world.config.backup, secret_key="another")))
    with broken.opened():
        jobs = list_jobs()
        assert find_due(broken.config, jobs) == first.at + HOUR, "what cannot be listed now is not made anew"
        status = get_status(broken.config, jobs)
        assert (status.files, "refuses" in str(status.unreachable)) == ((), True)
        reports = list(findings(broken.config, jobs))
        assert any(level == "FAIL" and "refuses" in text for level, text in reports)
        later(monkeypatch)
        own = BackupProcess(broken.config, broken.places)
        failed = own.run_due()
        assert failed is not None
        assert "refuses" in str(failed.problem)
        assert find_due(broken.config, list_jobs()) == failed.at + RETRY_MS


def test_the_doctor_says_how_old_the_newest_is_and_when_it_is_missing(site: Site) -> None:
    with site.world.opened():
        assert "it has none of this installation yet" in _texts(site)
        result = BackupProcess(site.world.config, site.world.places).run_due()
        assert result is not None
        assert "the newest of 1 is 0 hours old" in _texts(site)
        store = open_bucket(replace(site.bucket, prefix=site.prefix))
        obstore.delete(store, result.path.rpartition("/")[2])
        assert any(level == "FAIL" and "is missing" in text for level, text in findings(site.world.config, list_jobs()))


def _texts(site: Site) -> str:
    return "\n".join(text for _, text in findings(site.world.config, list_jobs()))


def test_a_backup_by_hand_is_stored_under_its_name_once(site: Site) -> None:
    address = f"s3://{site.bucket.bucket}/{site.prefix}/by-hand.gosb"
    with site.world.opened():
        site.world.fill()
        make_in_bucket(site.world.config, site.world.places, address, PASSPHRASE)
        with pytest.raises(AlreadyExists):
            make_in_bucket(site.world.config, site.world.places, address, PASSPHRASE)
    assert verify_backup(find_object(site.world.config, address), PASSPHRASE)["tables"]["tenant"] == 3
    assert list_backups(site.world.config) == [], "it is not one of the schedule"
    with pytest.raises(NotFound, match="there is no backup"):
        find_object(site.world.config, address + "x")


def test_a_bucket_that_does_not_exist_is_named(site: Site) -> None:
    with pytest.raises(Overloaded, match="does not exist"):
        open_folder(site.world.config, "s3://nowhere-at-all").list()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"backup.to": "s3://"}, "s3://bucket/prefix"),
        ({"backup.to": "s3://bucket/with space"}, "s3://bucket/prefix"),
        ({"backup.endpoint": "s3.example.com"}, "backup.endpoint"),
        ({"backup.key_id": "one"}, "must be set together"),
        ({"backup.ca_file": "/ca.pem"}, "backup.ca_file"),
        ({"backup.to": "s3://bucket/a/b", "blobs.store": "s3", "blobs.bucket": "bucket", "blobs.prefix": "a"}, "inside the bucket"),
        ({"backup.to": "s3://bucket/a", "blobs.store": "s3", "blobs.bucket": "bucket"}, "inside the bucket"),
    ],
    ids=["no-bucket", "space", "endpoint", "keys", "authorities", "inside-prefix", "inside-bucket"],
)
def test_invalid_settings_of_a_bucket_are_refused(flags: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigInvalid, match=words):
        load_config(environment={}, flags=flags)


def test_a_prefix_beside_that_of_contents_is_accepted() -> None:
    flags = {"backup.to": "s3://bucket/ab", "blobs.store": "s3", "blobs.bucket": "bucket", "blobs.prefix": "a"}
    assert load_config(environment={}, flags=flags).backup.to == "s3://bucket/ab"
