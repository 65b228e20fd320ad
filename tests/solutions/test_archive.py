"""Archives are read without trust."""

import gzip
import io
import stat
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable

import pytest

from appliance.core.errors import ApplianceError, InvalidRequest, PayloadTooLarge, ValidationFailed
from appliance.solutions.archive import ArchiveLimits, read_archive, write_zip

LIMITS = ArchiveLimits(files=20, bytes=1 << 20)
FILES = {"solution.yaml": b"name: x\n", "processes/a/process.yaml": b"id: a\n"}


def make_zip(*members: tuple[str, bytes], mode: int = 0, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = method
            archive.writestr(info, content)
    return out.getvalue()


def make_tar(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, link, len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def test_a_zip_is_read_back_and_equal_files_give_equal_bytes() -> None:
    assert read_archive(write_zip(FILES), LIMITS) == FILES
    assert write_zip(FILES) == write_zip(dict(reversed(FILES.items())))


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_a_single_folder_around_everything_is_removed(make: Callable[..., bytes]) -> None:
    wrapped = [(f"shop-main/{path}", content) for path, content in FILES.items()]
    assert read_archive(make(*wrapped), LIMITS) == FILES


def test_a_tar_made_of_the_current_folder_is_read() -> None:
    assert read_archive(make_tar(*((f"./{path}", content) for path, content in FILES.items())), LIMITS) == FILES


BAD_NAMES = [
    "../evil", "a/../../evil", "/etc/passwd", "a//b", "a/./b",
    "C:/x", "a\\b", "a\nb", "x" * 301, "a/ ", "cafe\u0301.ts", "a\u202eb",
]  # fmt: skip


@pytest.mark.parametrize("make", [make_zip, make_tar])
@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_path_that_leads_outside_or_deceives_is_refused(make: Callable[..., bytes], name: str) -> None:
    with pytest.raises(ValidationFailed, match="is not accepted"):
        read_archive(make(("solution.yaml", b""), (name, b"x")), LIMITS)


@pytest.mark.parametrize("names", [("a.ts", "A.ts"), ("straße.ts", "STRASSE.ts"), ("x/a.ts", "X/a.ts")])
@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_names_that_one_system_takes_for_the_same_are_refused(make: Callable[..., bytes], names: tuple[str, str]) -> None:
    with pytest.raises(ValidationFailed, match="two spellings"):
        read_archive(make(*((name, b"") for name in names)), LIMITS)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_a_second_member_of_the_same_name_is_refused(make: Callable[..., bytes]) -> None:
    with pytest.raises(ValidationFailed, match="twice"):
        read_archive(make(("a.ts", b"good"), ("a.ts", b"evil")), LIMITS)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(kind: bytes) -> None:
    with pytest.raises(ValidationFailed, match="'link' is not a regular file"):
        read_archive(make_tar(("link", b""), kind=kind, link="/etc/passwd"), LIMITS)


def test_a_link_in_a_zip_is_refused() -> None:
    with pytest.raises(ValidationFailed, match="'link' is a link"):
        read_archive(make_zip(("link", b"/etc/passwd"), mode=stat.S_IFLNK | 0o777), LIMITS)


def test_an_unusual_method_is_refused() -> None:
    with pytest.raises(ValidationFailed, match="unsupported compression method"):
        read_archive(make_zip(("a", b"x"), method=zipfile.ZIP_BZIP2), LIMITS)


def zip_that_lies() -> bytes:
    """The directory says 10 bytes, the member unpacks to 8 MiB."""
    data = make_zip(("bomb", b"\0" * (8 << 20)))
    return data.replace((8 << 20).to_bytes(4, "little"), (10).to_bytes(4, "little"))


@pytest.mark.parametrize(
    "bomb",
    [
        make_zip(("bomb", b"\0" * (8 << 20))),
        make_tar(("bomb", b"\0" * (8 << 20))),
        zip_that_lies(),
        gzip.compress(b"\0" * (64 << 20)),
    ],
    ids=["zip", "tar", "lying zip", "gzip of nothing"],
)
def test_a_bomb_is_refused_before_it_fills_the_memory(bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((PayloadTooLarge, InvalidRequest)):
            read_archive(bomb, LIMITS)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_too_many_members_are_refused(make: Callable[..., bytes]) -> None:
    with pytest.raises(PayloadTooLarge, match="more than 20 members"):
        read_archive(make(*((f"f{number}", b"") for number in range(21))), LIMITS)


@pytest.mark.parametrize(
    "data",
    [b"", b"name: x", b"PK\x03\x04rubbish", b"\x1f\x8brubbish", write_zip(FILES)[:-30], make_tar(*FILES.items())[:-20]],
)
def test_a_file_that_is_not_an_archive_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_archive(data, LIMITS)


def test_truncated_and_corrupted_archives_do_not_crash() -> None:
    for data in (write_zip(FILES), make_tar(*FILES.items())):
        for position in range(len(data)):
            for broken in (data[:position], data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :]):
                try:
                    read_archive(broken, LIMITS)
                except ApplianceError:
                    continue
