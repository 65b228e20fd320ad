"""Zip archives: packed and unpacked, and every known trick refused by the member's name."""

import io
import stat
import zipfile
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.formats import FormatFailed
from appliance.formats.archives import _unique_name, unpack
from appliance.formats.errors import ContentInvalid, ContentTooLarge
from appliance.formats.request import Limits, Request

from .conftest import Perform

FailureOf = Callable[..., FormatFailed]


def archive(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members:
            file.writestr(name, content)
    return out.getvalue()


def special(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def test_documents_are_packed_and_come_back(perform: Perform) -> None:
    contents = [b"one" * 1000, b"two", b""]
    packed = perform("zip", *contents, names=["a/b.txt", "a_b.txt", "x"])
    assert packed.facts["names"] == ["a_b.txt", "a_b (2).txt", "x"]
    unpacked = perform("unzip", packed.content)
    parts = {each["path"]: unpacked.content[each["offset"] : each["offset"] + each["size"]] for each in unpacked.facts["files"]}
    assert parts == dict(zip(packed.facts["names"], contents, strict=True))
    assert [each["path"] for each in perform("unzip", packed.content, only=["*.txt"]).facts["files"]] == ["a_b.txt", "a_b (2).txt"]
    assert perform("zip", b"1", names=["a"]).content == perform("zip", b"1", names=["a"]).content


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (archive(("../evil.sh", b"x")), "../evil.sh"),
        (archive(("/etc/passwd", b"x")), "/etc/passwd"),
        (archive(("a/../../b", b"x")), "a/../../b"),
        (archive(("C:\\x", b"x")), "C:"),
        (archive(("a\nb", b"x")), "a\\nb"),
        (archive((special("link", stat.S_IFLNK | 0o777), b"/etc/passwd")), "link"),
        (archive((special("pipe", stat.S_IFIFO | 0o666), b"")), "pipe"),
        (archive(("Xevil", b"x")).replace(b"Xevil", b"\0evil"), "member '' is not accepted"),
        (archive(("Read.me", b"1"), ("read.ME", b"2")), "read.ME"),
        (archive(("ﬁle", b"1"), ("file", b"2")), "file"),
    ],
)
def test_a_member_that_would_do_harm_is_refused_by_name(failure_of: FailureOf, content: bytes, expected: str) -> None:
    failed = failure_of("unzip", content)
    assert failed.code == "content_invalid"
    assert expected in failed.message


def test_an_encrypted_member_is_refused(failure_of: FailureOf) -> None:
    content = bytearray(archive(("secret", b"x")))
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    assert "encrypted" in failure_of("unzip", bytes(content)).message


@pytest.mark.parametrize("content", [archive(("zeros", bytes(64 << 20))), archive(*((f"f{n}", b"") for n in range(101)))])
def test_bombs_are_refused_before_anything_is_unpacked(failure_of: FailureOf, content: bytes) -> None:
    assert len(content) < 1 << 20
    assert failure_of("unzip", content).code == "content_too_large"


def test_a_member_cannot_unpack_to_more_than_it_declares(failure_of: FailureOf) -> None:
    content = bytearray(archive(("zeros", bytes(64 << 20))))
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = content.index(mark) + offset
        content[at : at + 4] = (10).to_bytes(4, "little")
    failed = failure_of("unzip", bytes(content))
    assert failed.code == "content_invalid"
    assert "zeros" in failed.message


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_damaged_archives_are_refused_and_never_crash(data: st.DataObject) -> None:
    whole = archive(("a.txt", b"hello " * 50), ("b/c.bin", bytes(range(256))))
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    out = io.BytesIO()
    request = Request({}, [io.BufferedReader(io.BytesIO(cut))], io.BufferedWriter(out), Limits(10, 1 << 20))
    try:
        facts = unpack(request)
    except (ContentInvalid, ContentTooLarge):
        return
    assert sum(each["size"] for each in facts["files"]) <= 1 << 20


@given(st.lists(st.text(max_size=30), max_size=8))
def test_names_in_an_archive_are_unique_and_plain(names: list[str]) -> None:
    used: set[str] = set()
    unique = [_unique_name(name, used) for name in names]
    assert len({name.casefold() for name in unique}) == len(unique)
    assert all(name and "/" not in name and "\\" not in name and name not in (".", "..") for name in unique)
