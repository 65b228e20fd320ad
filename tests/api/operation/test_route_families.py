"""Families of routes are loaded by the first requests to them, however many come at once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from werkzeug.routing import Map

from appliance.api.frame import blueprint


def test_one_family_is_loaded_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 can fail to make two syntax trees at once, of which werkzeug builds its rules."""
    inside, most, both = [0], [0], threading.Barrier(2)

    class ObservedMap(Map):
        def __init__(self, *args: Any, **options: Any) -> None:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            try:
                both.wait(0.5)  # for another one, which must not come
            except threading.BrokenBarrierError:
                both.reset()
            super().__init__(*args, **options)
            inside[0] -= 1

    monkeypatch.setattr(blueprint, "Map", ObservedMap)
    families = blueprint._Families(services=None)  # type: ignore[arg-type]  # loading needs none
    with ThreadPoolExecutor(2) as threads:
        loaded = list(threads.map(families._load, ["documents", "keys"]))
    assert most == [1]
    assert "get_document" in loaded[0][1]
