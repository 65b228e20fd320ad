"""Compresses contents for browsers: quickly when they are stored, and as small as possible in the background."""

import gzip
import re
from collections.abc import Iterator

import brotli
import zstandard

SMALLEST, LARGEST = 512, 16 << 20
BEST_BELOW = 256 << 10  # above this size the best level of Brotli takes seconds
WORTH = 0.9  # a compressed form that saves less than a tenth is discarded
_TEXTUAL = re.compile(
    r"(?i).*\.(html?|css|m?js|cjs|json|map|svg|xml|txt|md|csv|webmanifest|wasm|ttf|otf|eot|ico|bmp|rss|atom|geojson|topojson)"
)


def is_worth_a_try(path: str, size: int) -> bool:
    """Whether compression may help for a file of this name and size."""
    return SMALLEST <= size <= LARGEST and _TEXTUAL.fullmatch(path) is not None


def quick_forms(data: bytes) -> Iterator[tuple[str, bytes]]:
    """(content coding, bytes) of the gzip form, if it is clearly smaller than the content; deterministic, about 40 MB/s.

    The best level of gzip would take four times as long and save another 1 %.
    """
    yield from _worthwhile(data, "gzip", gzip.compress(data, 6, mtime=0))


def small_forms(data: bytes) -> Iterator[tuple[str, bytes]]:
    """(content coding, bytes) of the slower forms, which take about a second per MB and save another seventh."""
    yield from _worthwhile(data, "zstd", zstandard.compress(data, 19 if len(data) < 1 << 20 else 12))
    yield from _worthwhile(data, "br", brotli.compress(data, quality=11 if len(data) < BEST_BELOW else 9))


def _worthwhile(data: bytes, encoding: str, form: bytes) -> Iterator[tuple[str, bytes]]:
    if len(form) < WORTH * len(data):
        yield encoding, form
