"""Processes that share the jobs of a tenant."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from appliance.app.parts import blob_holders, make_integrations, place_holders
from appliance.backups.jobs import JobRunner, NewJob, TenantJob, records
from appliance.backups.jobs.files import FOLDER
from appliance.blobs import Blobs
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.solutions import SolutionServices, Transfers
from tests.backups.conftest import World, make_world
from tests.processes.world import wait_until


@dataclass
class Processes:
    """Processes of an appliance by name, in one data folder and with one database; `alive` names those that are."""

    world: World
    sealer: Sealer
    scope: TenantScope
    alive: set[str] = field(default_factory=set)
    processes: list[Transfers] = field(default_factory=list)

    def open(self, name: str) -> Transfers:
        self.alive.add(name)
        tools = SolutionServices(None, make_integrations(self.world.config, self.sealer))
        runner = JobRunner(self.sealer, name, self.alive.__contains__)
        self.processes.append(Transfers(self.world.config, self.world.places, self.sealer, tools, runner))
        return self.processes[-1]

    @property
    def blobs(self) -> Blobs:
        return Blobs(self.world.places, blob_holders(), place_holders())

    def files(self) -> list[str]:
        """The files of jobs in the store, and what is left in temporary folders, as soon as nothing runs."""
        wait_until(lambda: not any(each.runner._active for each in self.processes))
        data = self.world.config.data
        paths = [*(data / "blobs").glob("*/jobs/*"), *(data / "blobs" / "incoming").iterdir(), *(data / FOLDER).glob("*")]
        return sorted(path.relative_to(data).as_posix() for path in paths)


@contextmanager
def open_processes(folder: Path, url: str = "") -> Iterator[Processes]:
    """A filled appliance without a process yet."""
    world = make_world(folder, url)
    with world.opened() as sealer:
        scope = world.fill()
        processes = Processes(world, sealer, TenantScope(scope.tenant_id, "user:ada", scope.scopes))
        yield processes
        for each in processes.processes:
            each.stop()


def hang(cluster: Processes, job: NewJob, process: str = "dead") -> records.Claim:
    """The claim of a process on a new job, which it does not work on."""
    cluster.alive.add(process)
    return db.write(partial(records.insert_running, cluster.scope, job, process))[0]


def kill(cluster: Processes, survivor: Transfers, process: str = "dead") -> None:
    survivor.runner.resume()
    assert survivor.runner._active == {}, "its process lives"
    cluster.alive.remove(process)
    survivor.runner.resume()


def wait_for(latest: Callable[[], TenantJob | None]) -> TenantJob:
    """The last job as soon as it is over."""
    job: TenantJob = wait_until(lambda: None if (last := latest()) is None or last.is_busy else last)
    return job


def collections(scope: TenantScope) -> list[str]:
    return sorted(each["name"] for each in datapool.list_collections(scope, PageRequest(10)).items)
