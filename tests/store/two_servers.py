"""Two `gos serve` on one database: each a process of its own, with a data folder in common."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from appliance.connectors.testing import free_port
from tests.chaos.harness import TRUST, prepare_store
from tests.chaos.launcher import launch
from tests.forking import Forked
from tests.readiness import wait_ready

SECONDS = 30.0  # for what a busy machine does late


class TwoServers:
    """The running servers; `here` and `there` are clients of the tenant acme with a key of all scopes, one of each."""

    def __init__(self, folder: Path, database: str, control: str | Callable[[], None], settings: dict[str, Any]) -> None:
        self.folder = folder
        self.database = database
        self.ports = [free_port(), free_port()]
        self._control = control
        self._processes: list[Forked] = []
        common = {"server": {"port": self.ports[0]}, "logs": {"level": "warning"}, "storage": {"database": database}}
        folder.joinpath("config.yaml").write_text(json.dumps({**common, **settings}))
        self.key = prepare_store(folder)

    def start(self) -> None:
        for port in self.ports:
            arguments = ["--data", str(self.folder), "serve", "--port", str(port)]
            self._processes.append(Forked(launch, self._control, arguments, log=self.folder / "appliance.log"))
        wait_ready(*self.ports, check=self._is_running)

    def _is_running(self) -> bool:
        if any(process.poll() is not None for process in self._processes):
            raise AssertionError((self.folder / "appliance.log").read_text()[-3000:])
        return True

    def kill(self, server: int) -> None:
        """SIGKILL to a server and all of its processes."""
        os.killpg(self._processes[server].pid, signal.SIGKILL)
        self._processes[server].wait(SECONDS)

    def stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.terminate()
        try:
            for process in self._processes:
                process.wait(SECONDS)
        finally:
            for process in self._processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def client(self, server: int, host: str = "acme.localhost", **headers: str) -> httpx.Client:
        """A client of a server that asks for a host, by default with the tenant's key."""
        known = {"X-API-Key": self.key} if host == "acme.localhost" else {}
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.ports[server]}", timeout=SECONDS * 2, trust_env=False, verify=TRUST,
            headers={"Host": f"{host}:{self.ports[0]}", **known, **headers},
        )  # fmt: skip


@contextmanager
def two_servers(
    folder: Path, database: str, control: str | Callable[[], None] = "none", **settings: Any
) -> Iterator[TwoServers]:  # fmt: skip
    """Both run for as long as the block; `control` is one of `tests.chaos.launcher`, or changes each process."""
    servers = TwoServers(folder, database, control, settings)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()
