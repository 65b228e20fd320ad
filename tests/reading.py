"""What every appliance of a test process reads alike is read once: its own translations, and the schemas of its connectors.

An appliance in the test's process takes 0.2 s for them, and a run makes dozens.
"""

from copy import copy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from appliance.core import catalogues
from appliance.core.catalogues import Reading
from appliance.core.json_schema import schema

PROPER = catalogues.read_catalogue
OWN = Path(__file__).resolve().parents[1] / "ui" / "translations"
MOST_SCHEMAS = 1024  # those of the connectors alone are more than the appliance keeps at a time


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
    schema._compile_text = lru_cache(MOST_SCHEMAS)(schema._compile_text.__wrapped__)
