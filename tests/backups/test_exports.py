"""Exports made in the console: only the newest of each tenant is stored, for a day."""

import os

import pytest

from appliance.backups import exports
from appliance.backups.problems import UNCONTROLLED
from appliance.core import clock
from appliance.core.errors import NotFound
from tests.backups.conftest import World


def test_an_export_is_kept_for_a_day_and_no_longer(world: World) -> None:
    with world.opened():
        scope = world.fill()
        manifest = exports.make_export(world.config, world.places, scope, None, UNCONTROLLED)
        assert manifest["tenant"]["id"] == "initech"
        (export,) = exports.list_exports(world.config, scope)
        left = export.path.with_name(".killed.partial")
        left.write_bytes(b"half of one")
        exports.delete_expired(world.config)
        assert (export.path.is_file(), left.is_file()) == (True, True), "nobody knows yet whether it is still written"
        yesterday = (clock.now_ms() - exports.RETENTION_MS) / 1000 - 1
        for path in (export.path, left):
            os.utime(path, (yesterday, yesterday))
        old = export.path.rename(export.path.with_name("initech-20260101T000000Z.gost"))
        assert exports.list_exports(world.config, scope) == []
        with pytest.raises(NotFound, match="create a new one"):
            exports.get_export(world.config, scope, old.name)
        exports.delete_expired(world.config)
        assert list(old.parent.iterdir()) == []


def test_a_name_finds_only_exports_of_the_tenant(world: World) -> None:
    with world.opened():
        scope = world.fill()
        exports.make_export(world.config, world.places, scope, None, UNCONTROLLED)
        (export,) = exports.list_exports(world.config, scope)
        for name in ("../key", f"../exports/{export.name}", export.name.replace("initech", "hooli"), ""):
            with pytest.raises(NotFound):
                exports.get_export(world.config, scope, name)
