"""Disk usage, and the appliance's share of it."""

from pathlib import Path

import pytest

from appliance.core.scope import TenantScope
from appliance.monitor.disk import Disk, DiskGauge


def test_the_gauge_knows_the_disk_the_database_and_the_contents(acme: TenantScope, tmp_path: Path) -> None:
    sizes = iter([7, 11])
    gauge = DiskGauge(tmp_path, lambda: next(sizes))
    first = gauge.read()
    assert (first.blobs, first.total > first.free > 0, first.database > 50_000) == (0, True, True)
    gauge.measure()
    assert gauge.read().blobs == 7
    assert gauge.read().blobs == 7
    gauge.measure()
    assert gauge.read().blobs == 11


@pytest.mark.parametrize(("free", "is_full"), [(101, False), (100, True), (0, True)])
def test_nearly_full_is_nine_tenths(free: int, is_full: bool) -> None:
    assert Disk(1000, free, 0, 0).is_nearly_full is is_full
