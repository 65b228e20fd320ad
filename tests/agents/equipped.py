"""More tools for the agents of a world: a WebApp with two versions, and a process whose executions stay queued."""

from appliance.agents.tools.processes import ProcessTools
from appliance.agents.tools.webapps import WebAppTools
from appliance.api import make_shapes
from appliance.blobs import Blobs, LocalPlaces
from appliance.core.config import load_config
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.processes import ProcessFlow
from appliance.processes.definitions import Draft, PublishRequest, versions
from appliance.sandbox import Pool, Settings
from appliance.webapps import BLOB_TABLES, NewApp, WebApps
from appliance.webapps.files import Limits
from appliance.webapps.publishing import Publisher
from tests.agents.world import World
from tests.processes.world import make_ports
from tests.webapps.smoke_checks import Visitor, make_version


class Shop:
    """The app `shop` with versions 1 (published) and 2; `checked` versions have smoke checks, which all pass."""

    def __init__(self, world: World) -> None:
        self._world, self.visitor = world, Visitor()
        self._blobs = Blobs(LocalPlaces(world.folder / "blobs"), BLOB_TABLES)
        self.webapps = WebApps(self._blobs, Limits(100, 1 << 20, 1 << 18))
        self.webapps.create_app(world.scope, NewApp("shop"))
        for _ in range(2):
            make_version(self.webapps, self._blobs, world.scope, ())
        self.publishers: list[Publisher] = []
        self.serve(1)

    def equip(self) -> None:
        """Give the present process the tool `publish_webapp`."""
        name = self._world.presence.instance
        publishing = Publisher(self.webapps, name, name.__eq__)
        publishing.set_probe(self.visitor)
        self.publishers.append(publishing)
        shapes = make_shapes()
        for tool in WebAppTools(publishing, shapes.version, shapes.publication).tools():
            self._world.runs.runner.dependencies.toolbox.add(tool)

    def serve(self, number: int) -> None:
        """A person publishes this version."""
        self.webapps.publish_version(TenantScope("one", "key:test"), "shop", number)

    @property
    def served(self) -> int | None:
        return self.webapps.published_number(self._world.scope, "shop")

    def close(self) -> None:
        for each in self.publishers:
            each.stop()


def put_process(scope: TenantScope, output: int) -> None:
    """Publish one more version of the process `work`, which answers this."""
    draft = Draft({"id": "work", "steps": [{"id": "end", "stop": {"output": {"version": output}}}]}, {})
    versions.save_draft(scope, "work", draft)
    db.write(lambda: versions.publish_checked(scope, "work", draft.digest(), PublishRequest()))


def equip_process(world: World) -> None:
    """Give the present process `execute_process`; executions stay queued."""
    config = load_config(environment={}, flags={"storage.data": str(world.folder)})
    pool = Pool(Settings(processes=1, slots=1))
    flow = ProcessFlow(config, world.presence, pool, world.queue, make_ports(world.folder, world.presence))
    for tool in ProcessTools(flow, make_shapes().execution).tools():
        world.runs.runner.dependencies.toolbox.add(tool)
