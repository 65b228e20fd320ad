"""Exports of audit trails are signed: whatever is changed, removed, cut off or signed by others fails the verification."""

import io
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import ConfigInvalid, ValidationFailed
from appliance.core.scope import APPLIANCE, TenantScope
from appliance.monitor import AuditFilter, audit
from appliance.monitor.signed_trails import (
    AuditKeys,
    FileStatus,
    list_audit_keys,
    make_checkpoint,
    public_keys_file,
    read_public_keys,
    sign_export,
    verify_file,
)
from appliance.monitor.signed_trails.keys import SigningKey, fingerprint_of
from tests.monitor.test_audit import act

SEALER = Sealer(b"m" * 32)


@pytest.fixture
def keys() -> AuditKeys:
    return AuditKeys(SEALER)


@pytest.fixture
def exported(acme: TenantScope, keys: AuditKeys) -> list[bytes]:
    """The lines of an export of six entries."""
    act(acme, 6)
    return [line.encode() for line in sign_export(keys.current(), "acme", audit.iter_exported(acme))]


def verify(lines: list[bytes]) -> FileStatus:
    return verify_file(io.BytesIO(b"".join(lines)), read_public_keys(public_keys_file().encode()))


def of_stranger() -> SigningKey:
    private = Ed25519PrivateKey.generate()
    return SigningKey(fingerprint_of(private.public_key()), private)


def test_an_export_is_signed_with_a_key_that_is_made_at_first_use(exported: list[bytes], keys: AuditKeys) -> None:
    status = verify(exported)
    assert status.is_signed
    assert (status.chain.entries, status.chain.first_seq, status.chain.last_seq) == (6, 1, 6)
    assert status.key == keys.current().fingerprint
    assert [key.fingerprint for key in list_audit_keys()] == [status.key]
    ((sealed,),) = db.rows("SELECT sealed FROM audit_key")
    assert len(SEALER.open(bytes(sealed), "appliance/audit-key/1")) == 32
    with pytest.raises(ConfigInvalid):
        AuditKeys(Sealer(b"n" * 32)).current()


def changed_byte(lines: list[bytes]) -> Iterator[bytes]:
    yield from (line.replace(b"key_3", b"key_4") for line in lines)


def changed_space(lines: list[bytes]) -> Iterator[bytes]:
    """The entry stays the same; the bytes do not."""
    yield from (line.replace(b'"seq": 3', b'"seq":  3') for line in lines)


def removed_line(lines: list[bytes]) -> Iterator[bytes]:
    yield from (line for line in lines if b'"seq": 3,' not in line)


def removed_first(lines: list[bytes]) -> Iterator[bytes]:
    yield from lines[1:]


def removed_last_entry(lines: list[bytes]) -> Iterator[bytes]:
    yield from (*lines[:5], lines[6])


def cut_end(lines: list[bytes]) -> Iterator[bytes]:
    yield from lines[:6]


def cut_signature(lines: list[bytes]) -> Iterator[bytes]:
    yield from (*lines[:6], lines[6][:-20])


def changed_time_of_signature(lines: list[bytes]) -> Iterator[bytes]:
    at = json.loads(lines[6])["at"]
    yield from (*lines[:6], lines[6].replace(str(at).encode(), str(at + 1).encode()))


def claimed_filter(lines: list[bytes]) -> Iterator[bytes]:
    yield from (*lines[:2], *lines[3:6], lines[6].replace(b'"filtered": false', b'"filtered": true'))


def other_key(lines: list[bytes]) -> Iterator[bytes]:
    yield from (line.encode() for line in sign_export(of_stranger(), "acme", [line.decode() for line in lines[:6]]))


def other_key_under_our_name(lines: list[bytes]) -> Iterator[bytes]:
    false = SigningKey(json.loads(lines[6])["key"], of_stranger().private)
    yield from (line.encode() for line in sign_export(false, "acme", [line.decode() for line in lines[:6]]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed_byte, "its content was changed"),
        (changed_space, "a byte was changed after the signature"),
        (removed_line, "entry 3 is missing"),
        (removed_first, "the file has 5 entries; 6 were signed"),
        (removed_last_entry, "the checkpoint in line 6 is about entry 6, not about the one before it"),
        (changed_time_of_signature, "the signature in line 7 is wrong"),
        (claimed_filter, "the signature in line 6 is wrong"),
        (other_key, "is signed with another key"),
        (other_key_under_our_name, "the signature in line 7 is wrong"),
    ],
)
def test_tampering_is_detected(
    exported: list[bytes], change: Callable[[list[bytes]], Iterator[bytes]], reason: str
) -> None:
    status = verify(list(change(exported)))
    assert not status.is_signed
    assert not status.chain.intact
    assert reason in str(status.chain.reason)


def test_a_file_without_its_end_is_not_signed(exported: list[bytes]) -> None:
    status = verify(list(cut_end(exported)))
    assert (status.chain.intact, status.is_signed, status.key, status.unsigned) == (True, False, None, 6)
    with pytest.raises(ValidationFailed, match="line 7 is not an exported entry"):
        verify(list(cut_signature(exported)))


def test_an_export_may_be_filtered_and_is_still_complete(acme: TenantScope, keys: AuditKeys) -> None:
    act(acme, 6)
    filters = AuditFilter(text="key_")
    lines = [line for line in audit.export_entries(acme, filters, 100) if json.loads(line)["seq"] in (2, 5)]
    signed = [line.encode() for line in sign_export(keys.current(), "acme", lines, is_filtered=filters.leaves_gaps)]
    status = verify(signed)
    assert (status.is_signed, status.chain.entries, status.chain.first_seq, status.chain.last_seq) == (True, 2, 2, 5)
    assert not verify(signed[1:]).is_signed
    assert not verify([signed[0].replace(b"key_1", b"key_2"), *signed[1:]]).is_signed


def test_an_export_without_entries_is_signed(keys: AuditKeys) -> None:
    (line,) = sign_export(keys.current(), "acme", [])
    assert verify([line.encode()]).is_signed
    assert not verify([]).is_signed


def of_stream(keys: AuditKeys, lines: list[bytes], number: int) -> bytes:
    """The checkpoint that follows this entry in a stream."""
    return make_checkpoint(keys.current(), "acme", number, json.loads(lines[number - 1])["hash"]).encode()


def test_a_checkpoint_vouches_for_no_file_without_its_entries(exported: list[bytes], keys: AuditKeys) -> None:
    status = verify([of_stream(keys, exported, 6)])
    assert not status.is_signed
    assert status.chain.reason == "the file has no entries; its checkpoint is about entry 6"


def test_a_received_file_may_begin_with_a_checkpoint_and_goes_on_after_it(exported: list[bytes], keys: AuditKeys) -> None:
    """A receiver begins a new file every day."""
    first, last = of_stream(keys, exported, 2), of_stream(keys, exported, 6)
    status = verify([first, first, *exported[2:6], last])
    assert (status.is_signed, status.chain.first_seq, status.chain.last_seq) == (True, 3, 6)
    removed = verify([first, *exported[3:6], last])
    assert not removed.is_signed
    assert removed.chain.reason == "line 2 is not entry 3, which follows the checkpoint before it"
    of_other_entry = make_checkpoint(keys.current(), "acme", 2, json.loads(exported[2])["hash"]).encode()
    replaced = verify([of_other_entry, *exported[2:6], last])
    assert (replaced.is_signed, replaced.chain.reason) == (False, removed.chain.reason), "an entry of this number, but another one"
    foreign = make_checkpoint(keys.current(), "other", 2, json.loads(exported[1])["hash"]).encode()
    assert "line 2 is of another trail" in str(verify([foreign, *exported[2:6], last]).chain.reason)


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.replace(b'"seq": 3', b'"seq": "3"'),
        lambda line: line.replace(b'"seq": 3', b'"seq": true'),
        lambda line: line.replace(b'"subject": "key_2"', b'"subject": "key_9", "subject": "key_2"'),
        lambda line: line.replace(b'"subject": "key_2"', b'"approved": "yes", "subject": "key_2"'),
        lambda line: line.replace(b'"subject": "key_2"', b'"subject": "\\ud800"'),
        lambda line: b"[" * 100_000 + line,
    ],
    ids=["text", "boolean", "twice", "more", "surrogate", "deep"],
)
def test_a_line_that_no_export_has_is_named(
    exported: list[bytes], keys: AuditKeys, change: Callable[[bytes], bytes]
) -> None:
    """Its hash does not cover what a reader sees, or there is none."""
    changed = change(exported[2])
    assert changed != exported[2]
    with pytest.raises(ValidationFailed, match="line 3 is not an exported entry"):
        verify([*exported[:2], changed, *exported[3:6], of_stream(keys, exported, 6)])


def test_an_export_of_a_time_has_no_gaps_after_the_clock_was_set_back(
    acme: TenantScope, keys: AuditKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    for moment in (1000, 3000, 2000, 4000, 2500, 5000):
        monkeypatch.setattr(clock, "now_ms", lambda moment=moment: moment)
        act(acme, 1)
    filters = AuditFilter(since=2800, until=4500)
    assert not filters.leaves_gaps
    for lines in (list(audit.iter_exported(acme, 2800, 4500)), audit.export_entries(acme, filters, 100)):
        assert [json.loads(line)["seq"] for line in lines] == [2, 3, 4, 5]
        signed = [line.encode() for line in sign_export(keys.current(), "acme", lines, is_filtered=filters.leaves_gaps)]
        assert verify(signed).is_signed
    assert list(audit.iter_exported(acme, 6000)) == list(audit.iter_exported(acme, until=1000)) == []


def test_entries_of_another_trail_are_refused(acme: TenantScope, other: TenantScope, keys: AuditKeys) -> None:
    act(acme, 1)
    act(other, 1)
    lines = [*audit.iter_exported(acme), *audit.iter_exported(other)]
    signed = [line.encode() for line in sign_export(keys.current(), "acme", lines)]
    assert "line 2 is of another trail" in str(verify(signed).chain.reason)
    (line,) = audit.iter_exported(acme)
    entry = json.loads(line)
    false = make_checkpoint(keys.current(), "other", 1, entry["hash"])
    assert not verify([line.encode(), false.encode()]).is_signed


def test_what_the_key_has_signed_otherwise_is_no_checkpoint(exported: list[bytes], keys: AuditKeys) -> None:
    last = {**json.loads(exported[6]), "action": "report.sign"}
    del last["signature"]
    text = json.dumps(last)
    signature = keys.current().sign(f"{text}\n".encode())
    signed = f'{text[:-1]}, "signature": "{signature}"}}\n'
    assert verify([*exported[:6], signed.encode()]).chain.reason == "line 7 is signed, but is no checkpoint"


def test_a_rotation_keeps_the_earlier_public_key_and_is_in_the_trail(exported: list[bytes], keys: AuditKeys) -> None:
    before = keys.current().fingerprint
    after = keys.rotate(TenantScope(APPLIANCE, "system"))
    assert keys.current().fingerprint == after != before
    assert [(key.fingerprint, key.retired_at is None) for key in list_audit_keys()] == [(after, True), (before, False)]
    assert [row[0] is None for row in db.rows("SELECT sealed FROM audit_key ORDER BY number")] == [True, False]
    status = verify(exported)
    assert (status.is_signed, status.key) == (True, before)
    (entry,) = [json.loads(line) for line in audit.iter_exported(TenantScope(APPLIANCE, "system"))]
    assert (entry["action"], entry["subject"], json.loads(entry["fields"])) == ("audit.key_rotate", after, {"previous": before})


def test_processes_that_sign_first_at_once_use_one_key() -> None:
    with ThreadPoolExecutor(8) as threads:
        used = list(threads.map(lambda _: AuditKeys(SEALER).current().fingerprint, range(16)))
    assert {key.fingerprint for key in list_audit_keys()} == set(used)
    assert len(set(used)) == 1


def test_a_file_without_a_key_is_named() -> None:
    with pytest.raises(ValidationFailed, match="the file has no Ed25519 public key"):
        read_public_keys(b"nothing")
    with pytest.raises(ValidationFailed, match="a public key of the file cannot be read"):
        read_public_keys(b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
