"""Recognizes file names with a content hash, as bundlers generate them. Pure functions."""

import re

_CODE = ("js", "mjs", "css", "map", "woff", "woff2", "ttf", "otf", "eot")
_ASSETS = (
    *_CODE, "wasm", "png", "jpg", "jpeg", "gif", "webp", "avif", "svg", "ico", "mp4", "webm", "ogg", "mp3", "wav",
)  # fmt: skip
_MARKS = re.compile(r"\.chunk$|-s(\.p)?$")  # suffixes of webpack, and of the fonts of Next.js
_LAST = re.compile(r"(?:^|[.-])([A-Za-z0-9_]+)$")
_LAST_EIGHT = re.compile(r"(?:^|[.-])([A-Za-z0-9_-]{8})$")
_HEX = re.compile(r"[0-9a-f]{8,64}")
_SHORT = 16  # that many hex digits are never a word
_EIGHT = 8  # length of the hashes of Vite and esbuild
_BASE32 = re.compile(r"(?=.*[2-7][A-Z]|(?:.*[2-7]){3})[A-Z2-7]{8}")
_DATE = re.compile(r"(?<![0-9])(?:19|20)[0-9]{2}(?:(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])?)?(?![0-9])")
_TURN = re.compile(r"(?<=[0-9])(?=[A-Za-z])|(?<=[A-Za-z])(?=[0-9])|(?<=[a-z])(?=[A-Z])")
_WORDS = re.compile(r"[a-z_-]+")


def is_fingerprinted(path: str) -> bool:
    """Whether the name certainly contains a hash, so that a changed file gets a new name and the file can be cached for a year."""
    stem, extension = _parts(path)
    match = _LAST.search(stem)
    if match is None:
        return False
    # Some tools append a suffix to the hash: `app-4f2a9c1b0d3e5f6a_bg.wasm`.
    return any(_is_hash(part, extension) for part in (match[1], match[1].rpartition("_")[0]))


def may_be_fingerprinted(path: str) -> bool:
    """Whether an open page of an older version may request this name.

    Assets of pages may have hashes that look like words, such as `index-DiwrgTda.js`. Other names need a certain hash, because
    people remove files from a version on purpose.
    """
    if is_fingerprinted(path):
        return True
    stem, extension = _parts(path)
    match = _LAST_EIGHT.search(stem)
    return extension in _CODE and match is not None and not _WORDS.fullmatch(match[1]) and not _DATE.search(match[1])


def _parts(path: str) -> tuple[str, str]:
    """The name without suffixes after the hash, and the extension (of a source map, that of its file)."""
    stem, _, extension = path.rpartition("/")[2].rpartition(".")
    if extension == "map":
        stem = stem.rpartition(".")[0]
    return _MARKS.sub("", stem), extension.lower()


def _is_hash(text: str, extension: str) -> bool:
    """Hex digits, or eight characters of base 32 or 64 that mix letters and digits and are not a word next to a number."""
    changes = len(_TURN.findall(text.replace("_", "")))
    if len(text) < _SHORT and _DATE.search(text):
        return False
    if _HEX.fullmatch(text):
        return changes >= (1 if extension in _CODE or len(text) >= _SHORT else 2)
    if len(text) != _EIGHT or extension not in _ASSETS:
        return False
    return changes >= 3 or (extension in _CODE and _BASE32.fullmatch(text) is not None)
