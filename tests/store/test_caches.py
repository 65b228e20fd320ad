"""Caches of values from the database: their bound, and that no value outlives its database."""

from pathlib import Path

from appliance.core.database import db
from appliance.core.database.caches import Cache


def test_a_full_cache_is_emptied_before_it_grows() -> None:
    cache: Cache[str, int] = Cache(2)
    cache["a"], cache["b"], cache["a"] = 1, 2, 3
    assert cache == {"a": 3, "b": 2}
    cache["c"] = 4
    assert cache == {"c": 4}


def test_no_value_outlives_its_database(tmp_path: Path) -> None:
    cache: Cache[str, int] = Cache(2)
    cache["a"] = 1
    db.open_database(f"sqlite:///{tmp_path}/gos.db")
    db.close_database()
    assert cache == {}
