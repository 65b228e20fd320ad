"""Canaries are found in whatever encoding, unless the caller has sent them."""

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from .backups import Report, run
from .canaries import MARK, Canaries

ID = b"doc_" + b"0123456789abcdefghijk"


@pytest.mark.parametrize("encode", [bytes, lambda raw: raw[::-1], bytes.hex, base64.b64encode], ids=["plain", "back", "hex", "64"])
def test_a_secret_is_found(encode: object) -> None:
    canaries = Canaries.new()
    secret = canaries.keep("token", "sekret-0123456789")
    encoded = encode(secret.encode())  # type: ignore[operator]
    response = b"<p>" + (encoded.encode() if isinstance(encoded, str) else encoded) + b"</p>"
    canaries.note_sent(response)
    assert canaries.find(response) == ["token"]


def test_ids_and_names_are_found_unless_they_were_sent() -> None:
    canaries = Canaries.new()
    canaries.ids = {ID}
    response = b'{"id": "' + ID + b'", "name": "proc-' + MARK.encode() + b'12"}'
    assert canaries.find(response) == [ID.decode(), f"{MARK}12"]
    canaries.note_sent(b"/documents/" + ID, f"/processes/proc-{MARK}12".encode())
    assert canaries.find(response) == []
    assert canaries.find(f"{MARK}1".encode()) == [f"{MARK}1"]


@pytest.mark.fuzz
@pytest.mark.parametrize(("control", "expected"), [("none", ""), ("leak", "leaks"), ("fault", "unhandled")])
def test_the_long_fuzz_notices_a_defect(control: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    options = f"--one --count 40 --only get_document --control {control}".split()
    ended = subprocess.run([sys.executable, "-m", "tests.soak.fuzzing", "--results", file, *options], check=False)
    (report,) = map(json.loads, file.read_text().splitlines())
    assert {name for name in ("leaks", "unhandled", "undocumented", "missing_refusals") if report[name]} == {expected} - {""}
    assert ended.returncode == bool(expected)


@pytest.mark.soak
def test_a_backup_that_holds_the_database_is_noticed(tmp_path: Path) -> None:
    report = Report(1, "sqlite", "", control="lock")
    run(report, 1, tmp_path, None)
    assert report.stalls[0] > 100
    assert not report.holds
