"""The appliance's own translations are read once in a test process: 0.1 s for each of the dozens of appliances that a run makes."""

from copy import copy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from appliance.core import catalogues
from appliance.core.catalogues import Reading

PROPER = catalogues.read_catalogue
OWN = Path(__file__).resolve().parents[1] / "ui" / "translations"


@lru_cache
def _kept(path: Path, _changed_ns: int) -> Reading:
    return PROPER(path)


def _read(path: Path) -> Reading:
    """Whoever loads languages adds to their texts, so each time these are others; the messages below them stay as they are."""
    if path.resolve().parent != OWN:
        return PROPER(path)
    kept = _kept(path, path.stat().st_mtime_ns)
    return replace(kept, language=replace(kept.language, catalogue=copy(kept.language.catalogue)))


def read_once() -> None:
    """From now on in this process."""
    catalogues.read_catalogue = _read
