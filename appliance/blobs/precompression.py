"""Contents compressed once, when they are stored, in the encodings that browsers take."""

import gzip
import re
from collections.abc import Iterator

import brotli
import zstandard

SMALLEST, LARGEST = 512, 16 << 20
BEST_BELOW = 256 << 10  # above it the best level of Brotli takes seconds
WORTH = 0.9  # a form that saves less than a tenth is not kept
_TEXTUAL = re.compile(
    r"(?i).*\.(html?|css|m?js|cjs|json|map|svg|xml|txt|md|csv|webmanifest|wasm|ttf|otf|eot|ico|bmp|rss|atom|geojson|topojson)"
)


def is_worth_a_try(path: str, size: int) -> bool:
    """Whether a file of this name and size may become smaller."""
    return SMALLEST <= size <= LARGEST and _TEXTUAL.fullmatch(path) is not None


def compressed_forms(data: bytes) -> Iterator[tuple[str, bytes]]:
    """(content coding, bytes) for each coding that makes the content clearly smaller; equal contents give equal bytes."""
    level = 19 if len(data) < 1 << 20 else 12
    quality = 11 if len(data) < BEST_BELOW else 9
    for encoding, form in (
        ("zstd", zstandard.compress(data, level)), ("br", brotli.compress(data, quality=quality)),
        ("gzip", gzip.compress(data, 9, mtime=0)),
    ):  # fmt: skip
        if len(form) < WORTH * len(data):
            yield encoding, form
