"""File names and media types from uploads are accepted only as far as they are harmless."""

import pytest

from appliance.documents.contents.media_types import settle_media_type
from appliance.documents.naming import check_name, clean_name

HOSTILE = [
    "..",
    ".",
    "/",
    "\\",
    "a/../../etc/passwd",
    "C:\\x\\y.txt",
    "a\x00.txt",
    "\u202egpj.exe",
    " . ",
    "x" * 300 + ".pdf",
    "a\r\nb",
]


@pytest.mark.parametrize(
    ("name", "clean"),
    [
        ("Rechnung März.pdf", "Rechnung März.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\scan.png", "scan.png"),
        ("a\x00b\r\n.txt", "a_b__.txt"),
        ("in\u202efdp.exe", "in_fdp.exe"),
        ("..", "document"),
        ("", "document"),
        (".htaccess", "htaccess"),
        ("x" * 300 + ".pdf", "x" * 196 + ".pdf"),
    ],
)
def test_an_uploaded_file_name_is_cleaned(name: str, clean: str) -> None:
    assert clean_name(name) == clean


@pytest.mark.parametrize("name", HOSTILE)
def test_cleaning_is_idempotent(name: str) -> None:
    assert check_name(clean_name(name)) == clean_name(name)


@pytest.mark.parametrize(
    ("head", "name", "declared", "media_type"),
    [
        (b"%PDF-1.4", "a.png", "image/png", "application/pdf"),
        (b"\x89PNG\r\n\x1a\n", "a.html", "text/html", "image/png"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "a", None, "image/webp"),
        (b"PK\x03\x04....", "a.xlsx", None, "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        (b"PK\x03\x04....", "a.png", "image/png", "application/zip"),
        (b"a,b\n1,2\n", "a.csv", "application/octet-stream", "text/csv"),
        (b"a,b\n1,2\n", "a", "text/csv; charset=utf-8", "text/csv"),
        (b"a,b\n1,2\n", "a.png", "image/png", "text/plain"),
        (b'{"a": 1}', "a.json", None, "application/json"),
        (b"<!DOCTYPE html><p>", "a.csv", "text/plain", "text/html"),
        (b"\xef\xbb\xbf \n<SCRIPT>alert(1)", "a.txt", "text/plain", "text/html"),
        (b"<!-- x --><svg onload='x'>", "a.txt", None, "image/svg+xml"),
        (b"<?xml version='1.0'?><svg>", "a.xml", "application/xml", "image/svg+xml"),
        (b"<?xml version='1.0'?><order/>", "a.dat", None, "application/xml"),
        (b"\x00\x01\x02", "a.csv", "text/csv", "application/octet-stream"),
        (b"\xff\xfea\x00", "a.csv", None, "text/csv"),
        (b"caf\xe9,1", "a.csv", None, "text/csv"),
        (b"", "a.txt", None, "text/plain"),
    ],
)
def test_the_content_determines_its_type(head: bytes, name: str, declared: str | None, media_type: str) -> None:
    assert settle_media_type(head, name, declared) == media_type
