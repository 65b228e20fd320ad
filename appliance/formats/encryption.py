"""Detects password-protected office files.

An encrypted OOXML file is the stream `EncryptedPackage` in a compound file (MS-OFFCRYPTO 2.3.4); the manifest of an
OpenDocument file declares how each part is encrypted (OASIS OpenDocument 1.3, part 2).
"""

import zipfile
from io import BufferedReader

from .errors import ContentEncrypted

_COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_PACKAGE = "EncryptedPackage".encode("utf-16-le")
_MANIFEST, _ENCRYPTION, MAX_MANIFEST_BYTES = "META-INF/manifest.xml", b"encryption-data", 1 << 20
CHUNK = 1 << 20


def check_package_not_encrypted(content: BufferedReader) -> None:
    """Raise ContentEncrypted for an encrypted OOXML file; otherwise rewind the content."""
    content.seek(0)
    if content.read(len(_COMPOUND_FILE)) == _COMPOUND_FILE:
        before = b""
        while chunk := content.read(CHUNK):
            if _PACKAGE in before + chunk:
                raise ContentEncrypted("the document")
            before = chunk[-len(_PACKAGE) :]
    content.seek(0)


def check_parts_not_encrypted(archive: zipfile.ZipFile) -> None:
    """Raise ContentEncrypted for an encrypted OpenDocument file or a password-protected archive."""
    members = archive.infolist()
    if any(member.flag_bits & 0x1 for member in members):
        raise ContentEncrypted("the document")
    if any(member.filename == _MANIFEST for member in members):
        with archive.open(_MANIFEST) as manifest:
            if _ENCRYPTION in manifest.read(MAX_MANIFEST_BYTES):
                raise ContentEncrypted("the document")
