"""Names that hold a hash of their content, as bundlers give them, told from names that people give; pure."""

import re

_CODE = ("js", "mjs", "css", "map", "woff", "woff2", "ttf", "otf", "eot")
_ASSETS = (
    *_CODE, "wasm", "png", "jpg", "jpeg", "gif", "webp", "avif", "svg", "ico", "mp4", "webm", "ogg", "mp3", "wav",
)  # fmt: skip
_MARKS = re.compile(r"\.chunk$|-s(\.p)?$")  # of webpack, and of the fonts of Next
_LAST = re.compile(r"(?:^|[.-])([A-Za-z0-9_]+)$")
_LAST_EIGHT = re.compile(r"(?:^|[.-])([A-Za-z0-9_-]{8})$")
_HEX = re.compile(r"[0-9a-f]{8,64}")
_SHORT = 16  # as many hex digits are no word, whatever they spell
_EIGHT = 8  # how long Vite and esbuild make theirs
_BASE32 = re.compile(r"(?=.*[2-7][A-Z]|(?:.*[2-7]){3})[A-Z2-7]{8}")
_DATE = re.compile(r"(?<![0-9])(?:19|20)[0-9]{2}(?:(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])?)?(?![0-9])")
_TURN = re.compile(r"(?<=[0-9])(?=[A-Za-z])|(?<=[A-Za-z])(?=[0-9])|(?<=[a-z])(?=[A-Z])")
_WORDS = re.compile(r"[a-z_-]+")


def is_fingerprinted(path: str) -> bool:
    """Whether the name surely holds a hash: a file that changes gets another name, so that it may be kept for a year."""
    stem, extension = _parts(path)
    found = _LAST.search(stem)
    if found is None:
        return False
    # Some tools put something of theirs behind it: `app-4f2a9c1b0d3e5f6a_bg.wasm`.
    return any(_is_hash(each, extension) for each in (found[1], found[1].rpartition("_")[0]))


def may_be_fingerprinted(path: str) -> bool:
    """Whether an open page of an older version may ask for this name.

    What pages load may have a hash that looks like a word, as `index-DiwrgTda.js`; anything else has to be a hash surely, since
    people take files out of a version on purpose.
    """
    if is_fingerprinted(path):
        return True
    stem, extension = _parts(path)
    found = _LAST_EIGHT.search(stem)
    return extension in _CODE and found is not None and not _WORDS.fullmatch(found[1]) and not _DATE.search(found[1])


def _parts(path: str) -> tuple[str, str]:
    """The name without what follows a hash, and the extension (of a map, its own)."""
    stem, _, extension = path.rpartition("/")[2].rpartition(".")
    if extension == "map":
        stem = stem.rpartition(".")[0]
    return _MARKS.sub("", stem), extension.lower()


def _is_hash(text: str, extension: str) -> bool:
    """Hex digits, or eight of base 32 or 64: both letters and digits, and no word with a number before or behind it."""
    turns = len(_TURN.findall(text.replace("_", "")))
    if len(text) < _SHORT and _DATE.search(text):
        return False
    if _HEX.fullmatch(text):
        return turns >= (1 if extension in _CODE or len(text) >= _SHORT else 2)
    if len(text) != _EIGHT or extension not in _ASSETS:
        return False
    return turns >= 3 or (extension in _CODE and _BASE32.fullmatch(text) is not None)
