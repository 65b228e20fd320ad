"""Contents compressed in the encodings that browsers take: quickly when they are stored, as small as can be some time later."""

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


def quick_forms(data: bytes) -> Iterator[tuple[str, bytes]]:
    """(content coding, bytes) of what everybody takes, at some 40 MB/s, when it is clearly smaller than the content; equal
    contents give equal bytes.  The best level of gzip takes four times as long and saves another hundredth."""
    yield from _worthwhile(data, "gzip", gzip.compress(data, 6, mtime=0))


def small_forms(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Likewise for the codings that take a second per MB and save another seventh."""
    yield from _worthwhile(data, "zstd", zstandard.compress(data, 19 if len(data) < 1 << 20 else 12))
    yield from _worthwhile(data, "br", brotli.compress(data, quality=11 if len(data) < BEST_BELOW else 9))


def _worthwhile(data: bytes, encoding: str, form: bytes) -> Iterator[tuple[str, bytes]]:
    if len(form) < WORTH * len(data):
        yield encoding, form
