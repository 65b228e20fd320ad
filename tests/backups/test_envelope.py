"""An encrypted file opens with its passphrase if it is complete and unchanged, otherwise not at all."""

import io
import json
import random

import pytest

from appliance.backups import envelope
from appliance.backups.envelope import MAGIC, PIECE, TAG, OpeningReader, SealingWriter
from appliance.backups.problems import BackupInvalid
from tests.backups.sealing import ORIGINAL_COST

PASSPHRASE = "a passphrase of a test"


def sealed(content: bytes) -> bytes:
    target = io.BytesIO()
    writer = SealingWriter(target, PASSPHRASE)
    for start in range(0, len(content), 700_001):
        writer.write(content[start : start + 700_001])
    writer.finish()
    return target.getvalue()


def opened(data: bytes, passphrase: str = PASSPHRASE) -> bytes:
    reader, found = OpeningReader(io.BytesIO(data), passphrase), b""
    while piece := reader.read(900_001):
        found += piece
    return found


CONTENT = random.Random(1).randbytes(2 * PIECE + 77)  # noqa: S311
FILE = sealed(CONTENT)
HEAD = len(FILE) - (2 * (PIECE + TAG) + 77 + TAG)


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE])
def test_what_was_written_is_read(size: int) -> None:
    assert opened(sealed(CONTENT[:size])) == CONTENT[:size]


def test_the_file_shows_nothing_of_its_content() -> None:
    assert CONTENT[:16] not in FILE
    assert sealed(CONTENT)[HEAD:] != FILE[HEAD:]


def test_another_passphrase_opens_nothing() -> None:
    with pytest.raises(BackupInvalid, match="passphrase is wrong"):
        opened(FILE, "another passphrase")


def test_the_key_is_made_as_strongly_as_is_recommended(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 9106, section 4, asks for 64 MiB with three passes in four lanes where there are no 2 GiB."""
    monkeypatch.setattr(envelope, "_COST", ORIGINAL_COST)
    file = sealed(CONTENT)
    told = json.loads(file[len(MAGIC) + 2 : file.index(b"}") + 1])
    assert (told["memory_kib"] >= 65_536, told["rounds"] >= 3, told["lanes"]) == (True, True, 4)
    assert opened(file) == CONTENT


def test_a_short_passphrase_is_refused() -> None:
    with pytest.raises(BackupInvalid, match="at least 12"):
        SealingWriter(io.BytesIO(), "too short")


@pytest.mark.parametrize(
    "changed",
    [
        FILE[:-1],
        FILE[: HEAD + PIECE + TAG],  # ends with a whole piece that is not the last
        FILE[: HEAD + 2 * (PIECE + TAG)],
        FILE[:HEAD],
        FILE + b"more",
        FILE[:HEAD] + FILE[HEAD + PIECE + TAG :],  # a piece is missing
        FILE[:HEAD] + FILE[HEAD + PIECE + TAG : HEAD + 2 * (PIECE + TAG)] + FILE[HEAD : HEAD + PIECE + TAG] + FILE[-77 - TAG :],
        *(FILE[:at] + bytes([FILE[at] ^ 1]) + FILE[at + 1 :] for at in (20, HEAD - 3, HEAD, HEAD + PIECE, len(FILE) - 1)),
    ],
    ids=range(12),
)
def test_what_was_changed_does_not_open(changed: bytes) -> None:
    with pytest.raises(BackupInvalid):
        opened(changed)


def test_a_file_cannot_demand_more_than_we_give() -> None:
    usual = b'"memory_kib":%d' % envelope._COST["memory_kib"]
    assert usual in FILE
    greedy = FILE.replace(usual, b'"memory_kib":99999999')
    with pytest.raises(BackupInvalid, match="header"):
        opened(greedy)  # its length is told too
    told = greedy[13:15]
    longer = (int.from_bytes(told, "big") + len(greedy) - len(FILE)).to_bytes(2, "big")
    with pytest.raises(BackupInvalid, match="does not support"):
        opened(greedy[:13] + longer + greedy[15:])
