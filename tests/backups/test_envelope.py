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


def seal(content: bytes) -> bytes:
    target = io.BytesIO()
    writer = SealingWriter(target, PASSPHRASE)
    for start in range(0, len(content), 700_001):
        writer.write(content[start : start + 700_001])
    writer.finish()
    return target.getvalue()


def unseal(data: bytes, passphrase: str = PASSPHRASE) -> bytes:
    reader, content = OpeningReader(io.BytesIO(data), passphrase), b""
    while piece := reader.read(900_001):
        content += piece
    return content


CONTENT = random.Random(1).randbytes(2 * PIECE + 77)  # noqa: S311
FILE = seal(CONTENT)
HEAD = len(FILE) - (2 * (PIECE + TAG) + 77 + TAG)


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE])
def test_written_content_is_read_back(size: int) -> None:
    assert unseal(seal(CONTENT[:size])) == CONTENT[:size]


def test_the_file_reveals_nothing_of_its_content() -> None:
    assert CONTENT[:16] not in FILE
    assert seal(CONTENT)[HEAD:] != FILE[HEAD:]


def test_another_passphrase_is_refused() -> None:
    with pytest.raises(BackupInvalid, match="passphrase is wrong"):
        unseal(FILE, "another passphrase")


def test_the_key_is_derived_with_the_recommended_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 9106, section 4, asks for 64 MiB with three passes in four lanes where there are no 2 GiB."""
    monkeypatch.setattr(envelope, "_COST", ORIGINAL_COST)
    file = seal(CONTENT)
    header = json.loads(file[len(MAGIC) + 2 : file.index(b"}") + 1])
    assert (header["memory_kib"] >= 65_536, header["rounds"] >= 3, header["lanes"]) == (True, True, 4)
    assert unseal(file) == CONTENT


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
def test_a_changed_file_is_refused(changed: bytes) -> None:
    with pytest.raises(BackupInvalid):
        unseal(changed)


def test_a_file_cannot_demand_more_memory_than_allowed() -> None:
    usual = b'"memory_kib":%d' % envelope._COST["memory_kib"]
    assert usual in FILE
    expensive = FILE.replace(usual, b'"memory_kib":99999999')
    with pytest.raises(BackupInvalid, match="header"):
        unseal(expensive)  # its length is told too
    header_length = expensive[13:15]
    longer = (int.from_bytes(header_length, "big") + len(expensive) - len(FILE)).to_bytes(2, "big")
    with pytest.raises(BackupInvalid, match="does not support"):
        unseal(expensive[:13] + longer + expensive[15:])
