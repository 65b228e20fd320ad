"""A tenant's integration reaches the tenant's own part of the operator's folders, and nothing of another's."""

from pathlib import Path

import pytest

from appliance.app.parts import make_integrations
from appliance.connectors import AllowedFolders
from appliance.connectors.egress import Egress
from appliance.core.config import load_config
from appliance.core.errors import AddressNotAllowed, ConfigInvalid
from appliance.core.scope import TenantScope
from appliance.governance.executor import ActionRequest, GovernedExecutor, Instance
from appliance.integrations.calls import Calls
from appliance.integrations.connections import Connections
from appliance.integrations.service import Integrations
from appliance.integrations.spec import IntegrationSpec
from appliance.integrations.tokens import TokenStore
from tests.governance.ruling import make_governor
from tests.integrations.world import World


def write_file(executor: GovernedExecutor, scope: TenantScope, name: str) -> object:
    return executor.execute(scope, ActionRequest(name, "put", {"path": "a.txt", "text": scope.tenant_id})).output


def test_a_tenant_reaches_its_own_folder_and_no_other(world: World, tmp_path: Path) -> None:
    for tenant in ("one", "two"):
        (tmp_path / tenant).mkdir()
    folders = AllowedFolders.of([f"{tmp_path}/{{tenant}}"])
    calls = Calls(Connections(Egress.of([]), folders), TokenStore(world.sealer))
    integrations = Integrations(lambda: world.integrations.registry, world.sealer, lambda *_: "", calls)
    executor = GovernedExecutor(integrations, make_governor(world.sealer), Instance("instance-1", lambda *_: None))
    try:
        for scope in (world.one, world.two):
            for name in ("one", "two"):
                integrations.create_integration(scope, name, IntegrationSpec("folder", {"root": f"{tmp_path}/{name}"}))
        assert write_file(executor, world.one, "one") == write_file(executor, world.two, "two") == {"size": 3}
        for scope, name in ((world.one, "two"), (world.two, "one")):
            with pytest.raises(AddressNotAllowed, match=r"folders\.allow"):
                write_file(executor, scope, name)
        assert {name: (tmp_path / name / "a.txt").read_text() for name in ("one", "two")} == {"one": "one", "two": "two"}
    finally:
        executor.stop()


def test_the_configuration_may_not_name_the_appliances_own_data(world: World, tmp_path: Path) -> None:
    flags = {"storage.data": str(tmp_path / "data"), "folders.allow": [str(tmp_path)]}
    with pytest.raises(ConfigInvalid, match="own folder"):
        make_integrations(load_config(None, environment={}, flags=flags), world.sealer)
