"""Validates paths of uploaded files: plain, relative, and with the same meaning on every system."""

import re
import unicodedata

from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence

LONGEST_PATH = 300
LONGEST_PART = 255  # bytes; the limit of common file systems
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\:*?\"<>|]")
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$)(\..*)?", re.IGNORECASE)


class Paths:
    """Collects the paths of a set of files and refuses those that some systems treat as equal."""

    def __init__(self, what: str = "the archive") -> None:
        self._what = what
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def add(self, path: str) -> str:
        """Adds a path and returns it; raises ValidationFailed when it is invalid, a duplicate, or both a file and a folder."""
        check_path(path, f"{self._what} member" if self._what == "the archive" else self._what)
        folded = _folded(path)
        if folded in self._files:
            raise ValidationFailed(Sentence(
                "%(what)s contains %(path)s twice, or in two spellings that many systems treat as equal",
                what=self._what, path=repr(path),
            ))
        if folded in self._folders:
            raise ValidationFailed(Sentence(
                "%(what)s contains %(path)s as a file and as the folder of %(folders)s",
                what=self._what, path=repr(path), folders=repr(self._folders[folded]),
            ))
        self._files[folded] = path
        for end in (at for at, letter in enumerate(folded) if letter == "/"):
            folder = folded[:end]
            if folder in self._files:
                raise ValidationFailed(Sentence(
                    "%(what)s contains %(files)s as a file and as the folder of %(path)s",
                    what=self._what, files=repr(self._files[folder]), path=repr(path),
                ))
            self._folders.setdefault(folder, path)
        return path


def check_path(name: str, what: str = "the archive member") -> str:
    """Returns the path if it is relative, plain and safe on every system; raises ValidationFailed naming it otherwise."""
    parts = name.split("/")
    if (
        len(name) > LONGEST_PATH
        or not name.isprintable()
        or any(part in ("", ".", "..") or part != part.strip() or part.endswith(".") or _DEVICE.fullmatch(part) for part in parts)
        or _FORBIDDEN.search(name)
        or unicodedata.normalize("NFC", name) != name
        or any(len(part.encode("utf8", "surrogatepass")) > LONGEST_PART for part in parts)
    ):
        raise ValidationFailed(Sentence(
            "%(what)s %(name)s is not accepted: use plain relative paths without .. or \\", what=what, name=repr(name[:100])
        ))
    return name


def _folded(path: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", path).casefold())
