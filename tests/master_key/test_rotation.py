"""After a rotation every value is sealed with the new key, all digests stay, and the earlier key is not needed for anything."""

import base64
import threading
from collections.abc import Callable
from typing import Any

import pytest

from appliance.blobs import installation_id, read_installation
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer, first_digest_key, key_id, load_keys, open_digest_key
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid, Conflict, InvalidRequest
from appliance.core.leases import LeaseLost
from appliance.core.pages import PageRequest
from appliance.master_key import KeyRing, Resealer, add_key, get_status, list_keys, resealing, retire_keys, rotate_key
from appliance.master_key.columns import SEALED_COLUMNS
from appliance.master_key.rotation import PICK_UP_MS, RETIRE_MS
from appliance.monitor import audit
from appliance.tenants import service
from tests.master_key.world import (
    CANARY,
    add_if_shared,
    fill,
    find_sealed,
    opened,
    pass_time,
    read_values,
    reseal,
    rotate,
)

COLUMNS = {column.name for column in SEALED_COLUMNS}


def test_nothing_needs_the_earlier_key_after_a_rotation(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(config) as sealer:
        fill(sealer)
        (first,) = load_keys(config)
        old, digest, installation = key_id(first), sealer.digest(b"a key"), installation_id(sealer)
        assert find_sealed(old) == COLUMNS | {"master_key.digests"}
        add_if_shared(config)
        new = rotate(config, sealer, monkeypatch)
        assert get_status(sealer).earlier == dict.fromkeys(((name, old) for name in COLUMNS), 1)
        reseal(sealer)
        assert find_sealed(old) == {"master_key.digests"}
        assert find_sealed(new) == COLUMNS | {"master_key.digests"}
        pass_time(monkeypatch, RETIRE_MS)
        assert retire_keys(config, sealer) == [old]
        assert find_sealed(old) == set()
        KeyRing(config, sealer).refresh()
        assert sealer.key_ids == {new}
        assert {name: CANARY in values for name, values in read_values(sealer).items()} == dict.fromkeys(COLUMNS, True)
        with pytest.raises(ConfigInvalid, match="cannot be decrypted"):
            read_values(Sealer(first))
        assert (sealer.digest(b"a key"), installation_id(sealer)) == (digest, installation)
    assert [key_id(key) for key in load_keys(config)] == [new]
    assert read_installation(config) == installation
    with opened(config) as sealer:  # the next start
        assert (sealer.current, sealer.digest(b"a key")) == (new, digest)
        assert set(read_values(sealer)) == COLUMNS


def test_rotations_are_in_the_trail_of_every_tenant(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(config) as sealer:
        for name in ("acme", "globex"):
            service.create_tenant(name, name)
        old = str(sealer.current)
        add_if_shared(config)
        new = rotate(config, sealer, monkeypatch)
        reseal(sealer)
        pass_time(monkeypatch, RETIRE_MS)
        retire_keys(config, sealer)
        for name in ("acme", "globex"):
            page = audit.list_entries(service.system_scope(name), audit.AuditFilter(), PageRequest(limit=10))
            assert [(e.action, e.subject) for e in page.items[:2]] == [("master_key.retire", old), ("master_key.rotate", new)]


def test_values_of_earlier_releases_are_opened_and_sealed_again(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(config) as sealer:
        fill(sealer)
        key = load_keys(config)[0]
        before_ids(monkeypatch, sealer, lambda: fill(sealer))
        db.write(lambda: db.execute("DELETE FROM master_key"))
    with opened(config) as sealer:
        assert read_values(sealer) == {name: {CANARY} for name in COLUMNS}
        assert find_sealed(key_id(key)) == {"master_key.digests"}
        assert sealer.digest(b"x") == Sealer(key).digest(b"x")
        reseal(sealer)
        assert find_sealed(key_id(key)) == COLUMNS | {"master_key.digests"}
        assert read_values(sealer) == {name: {CANARY} for name in COLUMNS}


def before_ids(monkeypatch: pytest.MonkeyPatch, sealer: Sealer, work: Callable[[], None]) -> None:
    """Seal as releases did before keys had ids."""
    with monkeypatch.context() as patch:
        seal = sealer.seal
        patch.setattr(sealer, "seal", lambda value, context: b"\x01" + seal(value, context)[9:])
        work()


def test_a_value_that_no_key_opens_stops_nothing(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals of imported tenants are sealed with the key of another appliance."""
    foreign = base64.b64encode(Sealer(b"f" * 32).seal(b"x", "elsewhere")).decode()
    with opened(config) as sealer:
        fill(sealer)
        db.write(lambda: db.execute("UPDATE journal SET answer = ?", (f'{{"sealed":"{foreign}"}}',)))
        db.write(lambda: db.execute("UPDATE webhook SET sealed = ?, sealed_old = ?", (b"\x01short", b"")))
        add_if_shared(config)
        rotate(config, sealer, monkeypatch)
        reseal(sealer)
        assert list_keys()[-1].unreadable == 2
        assert get_status(sealer).unreadable == {"journal.answer": 1, "webhook.sealed": 1}
        pass_time(monkeypatch, RETIRE_MS)
        assert len(retire_keys(config, sealer)) == 1


def test_a_key_that_a_value_needs_is_not_retired(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(config) as sealer:
        fill(sealer)
        earlier = Sealer(*load_keys(config))
        add_if_shared(config)
        rotate(config, sealer, monkeypatch)
        with pytest.raises(Conflict, match="less than a minute ago"):
            retire_keys(config, sealer)
        pass_time(monkeypatch, RETIRE_MS)
        with pytest.raises(Conflict, match=rf"needed by {len(COLUMNS)} values \(acme_account.private_key: 1, "):
            retire_keys(config, sealer)
        reseal(sealer)
        db.write(lambda: db.execute("UPDATE secret SET sealed = ?", (sealed_by(earlier),)))  # by a process that lags behind
        with pytest.raises(Conflict, match=r"needed by 1 values \(secret.sealed: 1\)"):
            retire_keys(config, sealer)
        assert len(load_keys(config)) == 2
        reseal(sealer)  # because the refusal has begun it again
        assert len(retire_keys(config, sealer)) == 1


def sealed_by(sealer: Sealer) -> bytes:
    ((tenant, name),) = db.rows("SELECT tenant_id, name FROM secret")
    return sealer.seal(CANARY, f"{tenant}/secret/{name}")


def test_a_value_that_changes_meanwhile_is_not_overwritten(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(config) as sealer:
        fill(sealer)
        add_if_shared(config)
        rotate(config, sealer, monkeypatch)
        seal, changed = sealer.seal, sealer.seal(b"set by a person just now", "x")

        def interrupted(value: bytes, context: str) -> bytes:
            if "/secret/" in context:
                db.write(lambda: db.execute("UPDATE secret SET sealed = ?", (changed,)))
            return seal(value, context)

        with monkeypatch.context() as patch:
            patch.setattr(sealer, "seal", interrupted)
            reseal(sealer)
        assert [bytes(row[0]) for row in db.rows("SELECT sealed FROM secret")] == [changed]


def test_one_process_at_a_time_seals_and_another_takes_over(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(config) as sealer:
        fill(sealer)
        add_if_shared(config)
        rotate(config, sealer, monkeypatch)
        first, second = Resealer(sealer), Resealer(sealer)
        with monkeypatch.context() as patch:
            patch.setattr(resealing, "CALL_SECONDS", 0.0)
            first.work()  # claims, and has no time
        second.work()
        assert get_status(sealer).waiting == len(COLUMNS)
        assert second.next_due() == pytest.approx(clock.now_ms() + resealing.LEASE_MS, abs=1)
        pass_time(monkeypatch, resealing.LEASE_MS + 1)
        while second.next_due() is not None:
            second.work()
        assert (get_status(sealer).waiting, second.next_due()) == (0, None)
        with pytest.raises(LeaseLost):
            db.write(lambda: resealing._store((str(sealer.current),), first._fence, []))
        first.work()
        assert list_keys()[-1].resealed == len(COLUMNS)


def test_writes_are_small(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write is bounded in rows and bytes, so that others hardly wait; a large value has a write of its own."""
    with opened(config) as sealer:
        service.create_tenant("acme", "Acme")
        scope = service.system_scope("acme")
        for number in range(120):
            service.set_secret(scope, sealer, f"s{number}", "x" * 40)
        service.set_secret(scope, sealer, "t_large", "x" * 30_000)
        add_if_shared(config)
        rotate(config, sealer, monkeypatch)
        sizes: list[int] = []
        store = resealing._store

        def measured(key: tuple[str], fence: int, changes: list[resealing.Change]) -> None:
            sizes.append(len(changes))
            store(key, fence, changes)

        monkeypatch.setattr(resealing, "_store", measured)
        monkeypatch.setattr(resealing, "BATCH_BYTES", 10_000)
        reseal(sealer)
        assert [size for size in sizes if size] == [50, 50, 20, 1]


def test_a_process_that_has_not_read_the_new_key_finds_it(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(config) as ours:
        theirs = Sealer(*load_keys(config))
        add_if_shared(config)
        rotate(config, ours, monkeypatch)
        sealed = ours.seal(CANARY, "x")
        with pytest.raises(ConfigInvalid, match="cannot be decrypted"):
            theirs.open(sealed, "x")
        KeyRing(config, theirs)
        assert theirs.open(sealed, "x") == CANARY
        assert ours.open(Sealer(*load_keys(config)[:1]).seal(CANARY, "x"), "x") == CANARY


def test_made_up_ids_of_keys_cost_a_look_a_second_at_most(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(config) as sealer:
        ring = KeyRing(config, sealer)
        looks: list[str] = []
        rows = db.rows

        def counted(sql: str, params: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
            looks.append(sql)
            return rows(sql, params)

        monkeypatch.setattr(db, "rows", counted)
        monkeypatch.setattr(clock, "monotonic", lambda: 1000.0)
        monkeypatch.setattr(ring, "_looked_at", 0.0)
        for number in range(50):
            with pytest.raises(ConfigInvalid):
                sealer.open(b"\x02" + bytes([number]) * 60, "x")
        assert len(looks) == 1


def test_a_key_becomes_current_after_a_pause_in_which_all_processes_read_it(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(config) as sealer:
        reseal(sealer)
        old, ring = sealer.current, KeyRing(config, sealer)
        assert ring.next_due() is None
        pass_time(monkeypatch, 0)  # and stop the clock
        add_if_shared(config)
        rotation = rotate_key(config)
        assert ring.next_due() == 0
        ring.refresh()
        assert (sealer.current, sealer.key_ids) == (old, {old, rotation.id})
        assert ring.next_due() == rotation.current_from
        assert Resealer(sealer).next_due() is None
        with pytest.raises(Conflict, match="a few seconds ago"):
            rotate_key(*[config] if not db.is_shared() else [config, add_key(config)])
        pass_time(monkeypatch, PICK_UP_MS)
        ring.refresh()
        assert (sealer.current, ring.next_due()) == (rotation.id, None)


def test_a_process_without_the_new_key_says_so_and_goes_on_with_the_earlier_one(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(config) as sealer:
        fill(sealer)
        old, text = str(sealer.current), (config.data / "key").read_bytes()
        other = Sealer(*load_keys(config))
        add_if_shared(config)
        new = rotate(config, sealer, monkeypatch)
        (config.data / "key").write_bytes(text)  # the key file of another machine
        ring = KeyRing(config, other)
        ring.refresh()
        ring.refresh()
        assert other.current == old
        message = f"this process lacks the master key {new} and cannot open what others seal with it: add it to the source of its "
        errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert errors == [f"{message}keys, and restart it"]
        Resealer(other).work()
        assert get_status(sealer).waiting == len(COLUMNS)
        reseal(sealer)
        pass_time(monkeypatch, RETIRE_MS)
        db.write(lambda: db.execute("UPDATE master_key SET retired_at = 1 WHERE id = ?", (old,)))
        ring.refresh()
        with pytest.raises(ConfigInvalid, match="lacks the current master key"):
            other.seal(b"x", "x")


def test_several_new_keys_need_a_choice(config: Config) -> None:
    with opened(config):
        new = [bytes([number]) * 32 for number in (1, 2)]
        with (config.data / "key").open("ab") as file:
            file.writelines(base64.b64encode(key) + b"\n" for key in new)
        with pytest.raises(Conflict, match="has several new master keys"):
            rotate_key(config)
        with pytest.raises(InvalidRequest, match="has no new master key 00"):
            rotate_key(config, "00")
        assert rotate_key(config, key_id(new[1])).id == key_id(new[1])


def test_on_a_server_a_key_is_added_before_it_is_used(config: Config) -> None:
    with opened(config):
        if db.is_shared():
            with pytest.raises(Conflict, match="add one with gos master-key add, copy the file to every machine"):
                rotate_key(config)
        key = add_key(config)
        with pytest.raises(Conflict, match=f"has the new key {key} already"):
            add_key(config)
        assert rotate_key(config).id == key


def test_the_key_of_digests_is_that_of_the_first_key(config: Config) -> None:
    with opened(config):
        (key,), (record,) = load_keys(config), list_keys()
        assert open_digest_key(key, record.digests or b"") == first_digest_key(key)


def test_requests_go_on_during_a_rotation(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others read and set secrets while the values are sealed again; each finds what it has set."""
    with opened(config) as sealer:
        service.create_tenant("acme", "Acme")
        scope, ends = service.system_scope("acme"), threading.Event()
        for number in range(200):
            service.set_secret(scope, sealer, f"s{number}", f"first {number}")
        add_if_shared(config)
        rotate(config, sealer, monkeypatch)
        seen: list[bool] = []

        def others() -> None:
            for number in range(200):
                service.set_secret(scope, sealer, f"s{number}", f"second {number}")
                seen.append(service.unseal_secret(scope, sealer, f"s{number}") == f"second {number}")
            ends.set()

        thread = threading.Thread(target=others)
        thread.start()
        while not ends.is_set():
            reseal(sealer)
        thread.join()
        reseal(sealer)
        assert (len(seen), all(seen)) == (200, True)
        values = [service.unseal_secret(scope, sealer, f"s{number}") for number in range(200)]
        assert values == [f"second {number}" for number in range(200)]
        assert get_status(sealer).waiting == 0
