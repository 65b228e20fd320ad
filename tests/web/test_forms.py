"""Multipart forms are parsed from pieces of every size."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.blobs import LocalPlaces
from appliance.core.errors import ApplianceError, InvalidRequest, PayloadTooLarge, StorageFull
from appliance.web import FormLimits, FormReader

LIMITS = FormLimits(parts=6, files=2, text_bytes=500, file_bytes=2048)
Make = Callable[..., FormReader]


def part(head: str, data: bytes = b"") -> bytes:
    return f"--x\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + data + b"\r\n"


TEXT = part('name="word"', "grün".encode()) + part('name="word"', b"two")
FILE = part('name="photo"; filename="a.txt"', b"abc\r\n--y\r\n")
NONE_CHOSEN = part('name="photo"; filename=""')
END = b"--x--\r\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "incoming"


@pytest.fixture
def form(tmp_path: Path) -> Iterator[Make]:
    places = LocalPlaces(tmp_path)
    readers: list[FormReader] = []

    def create(kind: type[FormReader] = FormReader, boundary: str = "x") -> FormReader:
        readers.append(kind(places.receiver, boundary, LIMITS))
        return readers[-1]

    yield create
    for each in readers:
        each.discard()


def read(reader: FormReader, *pieces: bytes) -> tuple[list[tuple[str, str]], list[tuple[str, str, bytes]]]:
    for piece in pieces:
        reader.feed(piece)
    texts, files = reader.finish()
    return texts, [(file.field, file.name, file.received.path.read_bytes()) for file in files]


def test_texts_and_files_are_read_unchanged(form: Make, folder: Path) -> None:
    reader, body = form(), TEXT + NONE_CHOSEN + FILE + END
    sent = ([("word", "grün"), ("word", "two")], [("photo", "a.txt", b"abc\r\n--y\r\n")])
    assert read(reader, body) == sent
    assert len(list(folder.iterdir())) == 1
    reader.discard()
    assert list(folder.iterdir()) == []
    assert read(form(), *(bytes([each]) for each in body)) == sent


def test_a_form_can_be_split_anywhere(form: Make) -> None:
    body = TEXT + NONE_CHOSEN + part('name="last"', b"abc\r\n--y\r") + END
    for cut in range(len(body)):
        assert read(form(), body[:cut], body[cut:]) == ([("word", "grün"), ("word", "two"), ("last", "abc\r\n--y\r")], []), cut
    body = FILE + END
    for cut in range(len(body) - len(b"\r\n" + END), len(body)):
        assert read(form(), body[:cut], body[cut:]) == ([], [("photo", "a.txt", b"abc\r\n--y\r\n")]), cut


def test_a_file_is_synced_before_it_is_returned(form: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    reader = form()
    reader.feed(FILE + END)
    _, [file] = reader.finish()
    assert file.received.path.stat().st_ino in synced


def test_a_failing_sync_leaves_nothing(
    form: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "fsync", fail)
    reader = form()
    with pytest.raises(StorageFull):
        reader.feed(FILE + TEXT)
    reader.discard()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (FILE, InvalidRequest, "incomplete"),
        (b"{}", InvalidRequest, "incomplete"),
        (part("other=1", b"v") + END, InvalidRequest, "has no name"),
        (part('name="a"', b"\xff") + END, InvalidRequest, "UTF-8"),
        (part('name="a"') * 7 + END, PayloadTooLarge, "more than 6 parts"),
        (FILE * 3 + END, PayloadTooLarge, "maximum is 2,"),
        (part('name="a"; filename="a"', bytes(2049)) + END, PayloadTooLarge, "maximum is 2 KiB"),
        (part('name="a"', bytes(501)) + END, PayloadTooLarge, "texts of the form are too large"),
        (part(f'name="{"n" * 501}"') + END, PayloadTooLarge, "texts of the form are too large"),
    ],
)
def test_an_invalid_or_too_large_form_is_refused_and_leaves_nothing(
    form: Make, folder: Path, body: bytes, kind: type[ApplianceError], message: str
) -> None:
    reader = form()
    with pytest.raises(kind, match=message):
        read(reader, body)
    reader.discard()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("boundary", ["", "grün"])
def test_a_form_without_a_boundary_is_refused(form: Make, boundary: str) -> None:
    with pytest.raises(InvalidRequest, match="boundary"):
        form(boundary=boundary)


class OnlyTexts(FormReader):
    def accept(self, name: str, *, is_file: bool) -> None:
        if is_file:
            raise InvalidRequest(f"{name} is a file")


def test_a_part_can_be_refused_before_it_is_read(form: Make, folder: Path) -> None:
    reader = form(OnlyTexts)
    with pytest.raises(InvalidRequest, match="photo is a file"):
        reader.feed(TEXT + FILE[:90])
    assert list(folder.iterdir()) == []
