"""Untrusted archives: a corpus of hostile ones, each generated here, and random bytes."""

import gzip
import io
import os
import stat
import struct
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.blobs.archives import ArchiveLimits, read_members
from appliance.blobs.paths import Paths
from appliance.core.errors import ApplianceError, InvalidRequest, PayloadTooLarge, ValidationFailed

LIMITS = ArchiveLimits(files=20, bytes=18 << 20)
FILES = {"index.html": b"<h1>hello</h1>", "assets/app-3f2a1b9c.js": b"let a = 1\n" * 300, "assets/empty": b""}
Entry = tuple[str, bytes]


def make_zip(*members: Entry, mode: int = 0, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = method
            archive.writestr(info, content)
    return out.getvalue()


def make_tar(*members: Entry, kind: bytes = tarfile.REGTYPE, form: int = tarfile.PAX_FORMAT, link: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, link, len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def make_tgz(*members: Entry, **more: object) -> bytes:
    return gzip.compress(make_tar(*members, **more), 1)  # type: ignore[arg-type]


def unpack(data: bytes, limits: ArchiveLimits = LIMITS) -> dict[str, bytes]:
    return {member.path: member.read() for member in read_members(io.BytesIO(data), limits)}


MAKERS: list[Callable[..., bytes]] = [make_zip, make_tar, make_tgz]


@pytest.mark.parametrize("make", MAKERS)
def test_packed_files_are_read(make: Callable[..., bytes]) -> None:
    assert unpack(make(*FILES.items())) == FILES


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_tar_format_supports_long_and_non_ascii_names(form: int) -> None:
    files = {"./assets/" + "long/" * 25 + "a.js": b"1", "grün/日本.html": b"2"}
    assert unpack(make_tgz(*files.items(), form=form)) == {name.removeprefix("./"): data for name, data in files.items()}


def test_git_comments_and_folders_are_skipped() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", pax_headers={"comment": "0" * 40}) as archive:
        for name in ("./", "./assets"):
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE
            archive.addfile(info)
        info = tarfile.TarInfo("./assets/a.js")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"1"))
    assert unpack(out.getvalue()) == {"assets/a.js": b"1"}


def test_members_can_be_skipped_unread() -> None:
    for make in MAKERS:
        assert [member.path for member in read_members(io.BytesIO(make(*FILES.items())), LIMITS)] == list(FILES)


def test_a_nested_archive_is_a_plain_file() -> None:
    inner = make_zip(("bomb", bytes(17 << 20)))
    assert unpack(make_zip(("inner.zip", inner))) == {"inner.zip": inner}


# -- the corpus

BAD_NAMES = {
    "parent": "../evil", "inner parent": "a/../../evil", "parent at the end": "a/..", "only parents": "..",
    "absolute": "/etc/passwd",
    "two slashes": "//host/share", "empty part": "a//b", "dot part": "a/./b", "dot": ".", "drive": "C:/x", "drive relative": "C:x",
    "backslash": "a\\b", "backslash parent": "..\\evil", "newline": "a\nb", "escape": "a\x1b[2Jb", "delete": "a\x7fb",
    "too long": "x" * 301, "part too long": "é" * 130 + ".js", "space at the end": "a/b ", "space alone": "a/ ",
    "space before": " a",
    "dot at the end": "a.", "dots": "a/...", "decomposed": "cafe\u0301.js", "direction": "a\u202egpj.js",
    "zero width": "a\u200b.js",
    "no-break space": "a\u00a0b", "stream": "a.js:secret", "wildcard": "a*.js", "question": "a?.js", "pipe": "a|b", "less": "a<b",
    "quote": 'a"b', "device": "con", "device with extension": "assets/NUL.js", "device com": "com1.html", "device lpt": "LPT9",
    "private use": "a\ue000", "surrogate-like": "a\ufffe",
}  # fmt: skip
COLLISIONS = {
    "case": ("a.js", "A.js"), "case of a folder": ("x/a.js", "X/a.js"), "sharp s": ("straße.js", "STRASSE.js"),
    "ligature": ("\ufb01le.js", "file.js"), "full width": ("\uff41.js", "a.js"), "dotted": ("\u01f0.js", "\u01f0.JS"),
    "superscript": ("a\u00b2.js", "a2.js"), "file then folder": ("a", "a/b"), "folder then file": ("a/b", "a"),
    "file then folder in capitals": ("a/b", "A"), "deep": ("a/b/c/d", "a/B"), "same": ("a.js", "a.js"),
}  # fmt: skip
KINDS = {
    "symbolic link": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "character device": tarfile.CHRTYPE,
    "block device": tarfile.BLKTYPE, "fifo": tarfile.FIFOTYPE, "contiguous": tarfile.CONTTYPE,
    "sparse": tarfile.GNUTYPE_SPARSE, "multi-volume": b"M", "unknown": b"Z",
}  # fmt: skip
MODES = {
    "link": stat.S_IFLNK, "character device": stat.S_IFCHR, "block device": stat.S_IFBLK, "fifo": stat.S_IFIFO,
    "socket": stat.S_IFSOCK,
}  # fmt: skip


def flagged(flag: int) -> bytes:
    """A zip whose first member carries a flag, in both of its places."""
    data = bytearray(make_zip(("secret.js", b"x" * 50)))
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.index(signature) + at
        data[place : place + 2] = struct.pack("<H", struct.unpack("<H", data[place : place + 2])[0] | flag)
    return bytes(data)


def with_nul() -> bytes:
    """Some readers see index.html only, others see more."""
    return make_zip(("index.html#.php", b"x")).replace(b"index.html#.php", b"index.html\0.php")


def overlapping() -> bytes:
    """Two members of the directory that share the same data in the file."""
    data = make_zip(("a.js", b"x" * 5000), ("b.js", b"x" * 5000))
    first = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", first + 1)
    return data[: second + 42] + data[first + 42 : first + 46] + data[second + 46 :]


def with_two_names() -> bytes:
    """The directory says a.js, the member itself says b.js."""
    return make_zip(("a.js", b"x")).replace(b"a.js", b"b.js", 1)


def zip_with_a_wrong_size() -> bytes:
    data = make_zip(("bomb", bytes(8 << 20)))
    return data.replace((8 << 20).to_bytes(4, "little"), (10).to_bytes(4, "little"))


def corrupted() -> bytes:
    data = bytearray(make_zip(("a.js", b"some content that is stored"), method=zipfile.ZIP_STORED))
    data[data.index(b"content")] ^= 1
    return bytes(data)


def pax(records: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    """A member `a.js` with these attributes before it."""
    note = make_tar(("PaxHeaders/a.js", records), kind=kind, form=tarfile.USTAR_FORMAT)
    return note[: 512 + -(-len(records) // 512) * 512] + make_tar(("a.js", b"1"))


def record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    length = len(rest) + 2 if len(rest) < 98 else len(rest) + 3
    return str(length).encode() + rest


def bad_checksum() -> bytes:
    data = bytearray(make_tar(("a.js", b"1")))
    data[0] ^= 1
    return bytes(data)


HOSTILE: dict[str, tuple[bytes, type[ApplianceError], str]] = {
    **{f"{make.__name__}: {what}": (make(("index.html", b""), (name, b"x")), ValidationFailed, "is not accepted")
       for make in (make_zip, make_tgz) for what, name in BAD_NAMES.items()},
    **{f"{make.__name__}: {what}": (make(*((name, b"") for name in names)), ValidationFailed, "twice|as the folder of")
       for make in (make_zip, make_tgz) for what, names in COLLISIONS.items() if not (what == "same" and make is make_zip)},
    **{f"tar: {what}": (make_tgz(("evil", b""), kind=kind, link="/etc/passwd"), ValidationFailed, "'evil' is not a regular file")
       for what, kind in KINDS.items()},
    "tar: folder that leads outside": (make_tgz(("../evil", b""), kind=tarfile.DIRTYPE), ValidationFailed, "is not accepted"),
    "tar: name given by an attribute": (pax(record(b"path", b"../evil")), ValidationFailed, "'../evil' is not accepted"),
    "tar: sparse by an attribute": (pax(record(b"GNU.sparse.major", b"1")), ValidationFailed, "'a.js' is not a regular file"),
    "tar: one name for all": (pax(record(b"path", b"evil"), tarfile.XGLTYPE), ValidationFailed, "one name or size"),
    "tar: size that is not there": (pax(record(b"size", b"99999999")), InvalidRequest, "ends in the middle, at 'a.js'"),
    "tar: attribute that is none": (pax(b"99 path=evil\n"), InvalidRequest, "invalid attribute"),
    "tar: attribute without length": (pax(b"path=evil\n"), InvalidRequest, "cannot be read"),
    "tar: endless description": (pax(b"x" * (1 << 17)), ValidationFailed, "more than 64 KiB"),
    "tar: cut after a member": (make_tar(("a.js", b"1"))[:1024], InvalidRequest, "incomplete: it ends at 'a.js'"),
    "tar: wrong checksum": (bad_checksum(), InvalidRequest, "no valid header"),
    "tar: something behind its end": (make_tar(("a.js", b"1")) + b"evil" * 200, InvalidRequest, "has data after its end"),
    "tar: zeros without end": (gzip.compress(make_tar(("a.js", b"1")) + bytes(8 << 20)), PayloadTooLarge, "unpacked"),
    **{f"zip: {what}": (make_zip(("evil", b"/etc/passwd"), mode=mode | 0o777), ValidationFailed, "'evil' is a link or a device")
       for what, mode in MODES.items()},
    "zip: folder that leads outside": (make_zip(("../evil/", b"")), ValidationFailed, "'../evil' is not accepted"),
    "zip: link that looks like a folder": (make_zip(("evil/", b""), mode=stat.S_IFLNK | 0o777), ValidationFailed, "is a link"),
    "zip: no name": (make_zip(("\0", b"")), ValidationFailed, "is not accepted"),
    "zip: a name that ends before it begins":
        (make_zip(("Xevil", b"")).replace(b"Xevil", b"\0evil"), ValidationFailed, "is not accepted"),
    "zip: encrypted": (flagged(0x1), ValidationFailed, "'secret.js' is encrypted"),
    "zip: strongly encrypted": (flagged(0x40), ValidationFailed, "'secret.js' is encrypted"),
    "zip: masked directory": (flagged(0x2000), ValidationFailed, "'secret.js' is encrypted"),
    "zip: bzip2": (make_zip(("a", b"x"), method=zipfile.ZIP_BZIP2), ValidationFailed, "'a' uses an unsupported compression method"),
    "zip: lzma": (make_zip(("a", b"x"), method=zipfile.ZIP_LZMA), ValidationFailed, "'a' uses an unsupported compression method"),
    "zip: NUL in a name": (with_nul(), ValidationFailed, "is not accepted"),
    "zip: overlapping": (overlapping(), ValidationFailed, "overlaps another"),
    "zip: two names for one member": (with_two_names(), InvalidRequest, "'a.js' cannot be read"),
    "zip: damaged": (corrupted(), InvalidRequest, "'a.js' cannot be read"),
    "zip: lying about a size": (zip_with_a_wrong_size(), InvalidRequest, "'bomb' cannot be read"),
    "zip: bomb": (make_zip(("bomb", bytes(17 << 20))), PayloadTooLarge, "'bomb' the archive unpacks to more than 200 times"),
    "tar: bomb": (make_tgz(("bomb", bytes(17 << 20))), PayloadTooLarge, "'bomb' the archive unpacks to more than 200 times"),
    "zip: bomb of many": (make_zip(*((f"b{number}", bytes(1 << 20)) for number in range(17))), PayloadTooLarge, "200 times"),
    "tar: too large": (make_tgz(("a", os.urandom(1 << 20) * 19)), PayloadTooLarge, "18 MiB unpacked"),
    "zip: too many": (make_zip(*((f"f{number}", b"") for number in range(21))), PayloadTooLarge, "more than 20 members"),
    "zip: too many folders": (make_zip(*((f"f{number}/", b"") for number in range(21))), PayloadTooLarge, "more than 20 members"),
    "zip: far too many": (make_zip(*((f"f{number}", b"") for number in range(9000))), PayloadTooLarge, "more than 20 members"),
    "tar: too many": (make_tgz(*((f"f{number}", b"") for number in range(21))), PayloadTooLarge, "more than 20 members"),
    "tar: too many folders": (
        make_tgz(*((f"f{number}", b"") for number in range(21)), kind=tarfile.DIRTYPE), PayloadTooLarge, "more than 20 members",
    ),
    "tar: too many descriptions": (pax(record(b"comment", b"x"))[:1024] * 200, PayloadTooLarge, "more than 20 members"),
    "gzip of nothing": (gzip.compress(bytes(20 << 20)), PayloadTooLarge, "unpacked"),
    "gzip of a gzip": (gzip.compress(gzip.compress(b"x" * 2000)), InvalidRequest, "the archive is incomplete"),
    "rar": (b"Rar!\x1a\x07\x01\x00" + bytes(600), InvalidRequest, "must be a zip, tar or tar.gz"),
    "7z": (b"7z\xbc\xaf\x27\x1c" + bytes(600), InvalidRequest, "must be a zip, tar or tar.gz"),
    "page": (b"<!doctype html>", InvalidRequest, "must be a zip, tar or tar.gz"),
    "nothing": (b"", InvalidRequest, "must be a zip, tar or tar.gz"),
}  # fmt: skip


def test_the_corpus_is_large() -> None:
    assert len(HOSTILE) >= 60


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_says_why(name: str) -> None:
    data, expected, message = HOSTILE[name]
    with pytest.raises(ApplianceError, match=message) as refused:
        unpack(data)
    assert type(refused.value) is expected


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_second_member_of_the_same_name_is_refused() -> None:
    with pytest.raises(ValidationFailed, match=r"'a\.js' twice"):
        unpack(make_zip(("a.js", b"good"), ("a.js", b"evil")))


def bombs() -> Iterator[bytes]:
    yield from (HOSTILE[name][0] for name in HOSTILE if "bomb" in name or "nothing" in name or "too many" in name)
    yield HOSTILE["tar: endless description"][0]


def skip_contents(data: bytes) -> None:
    for member in read_members(io.BytesIO(data), LIMITS):
        for _ in member.pieces:
            pass


def test_bombs_use_little_memory() -> None:
    tracemalloc.start()
    try:
        for bomb in bombs():
            with pytest.raises(ApplianceError):
                skip_contents(bomb)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_huge_directory_is_not_loaded_into_memory() -> None:
    whole = make_zip(("a", b""))
    start, end = whole.index(b"PK\x01\x02"), whole.index(b"PK\x05\x06")
    directory = whole[start:end] * 60_000
    close = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 60_000, 60_000, len(directory), start, 0)
    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooLarge, match="more than 10000 members"):
            unpack(whole[:start] + directory + close, ArchiveLimits(10_000, 1 << 20))
        assert tracemalloc.get_traced_memory()[1] < 12 << 20
    finally:
        tracemalloc.stop()


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NAMES, st.binary(max_size=200)), max_size=6), st.sampled_from(["zip", "tgz"]))
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_accepted_files_are_unchanged_and_stay_inside_the_root(members: list[Entry], form: str) -> None:
    try:
        data = make_zip(*members) if form == "zip" else make_tgz(*members)
        result = unpack(data)
    except (ApplianceError, ValueError):  # the writers of the standard library refuse some names themselves
        return
    for path, content in result.items():
        assert (path, content) in [(name.removeprefix("./"), data) for name, data in members]
        assert not path.startswith("/")
        assert ".." not in path.split("/")
    paths = Paths("the set")
    assert [paths.add(path) for path in result] == list(result)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(MAKERS), st.integers(0, 10_000), st.integers(0, 255), st.booleans())
def test_a_damaged_archive_never_crashes(make: Callable[..., bytes], position: int, value: int, cut: bool) -> None:
    data = make(*list(FILES.items())[:2])
    position %= len(data)
    broken = data[:position] if cut else data[:position] + bytes([value]) + data[position + 1 :]
    try:
        unpack(broken)
    except ApplianceError:
        return
