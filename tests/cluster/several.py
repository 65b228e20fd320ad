"""Several processes of one installation: one data folder, one PostgreSQL database, `gos serve` and `gos worker` in any number."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from appliance.connectors.testing import free_port
from tests.chaos.harness import TRUST, prepare_store
from tests.chaos.launcher import launch
from tests.forking import Forked
from tests.readiness import wait_ready


@dataclass
class Process:
    """One process; `port` is 0 for a worker."""

    command: tuple[str, ...]
    forked: Forked
    port: int = 0


@dataclass
class Several:
    """Processes of one installation, with the tenant acme and a key that has every scope."""

    folder: Path
    key: str
    base: str = "localhost"
    processes: list[Process] = field(default_factory=list)

    def start(self, *command: str, port: int = 0) -> Process:
        """Start `gos` with this command; a server is waited for until it is ready."""
        arguments = ["--data", str(self.folder), *command]
        if command[0] == "serve":
            port = port or free_port()
            arguments += ["--port", str(port)]
        forked = Forked(launch, "none", arguments, log=self.folder / "appliance.log")
        process = Process(command, forked, port)
        self.processes.append(process)
        if port:
            wait_ready(port, check=lambda: self._runs(process))
        return process

    def _runs(self, process: Process) -> bool:
        if process.forked.poll() is not None:
            raise AssertionError((self.folder / "appliance.log").read_text()[-3000:])
        return True

    def stop(self, process: Process) -> int:
        """SIGTERM, as an administrator would; answers the exit code."""
        process.forked.terminate()
        self.processes.remove(process)
        return process.forked.wait(60)

    def client(self, process: Process) -> httpx.Client:
        """Tenant acme's API in this process."""
        return self.client_at(process.port)

    def client_at(self, port: int) -> httpx.Client:
        """Tenant acme's API on this port of this machine."""
        headers = {"Host": f"acme.{self.base}:{port}", "X-API-Key": self.key}
        return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60, trust_env=False, verify=TRUST)

    def stop_all(self) -> None:
        """Stop whatever still runs; a second signal ends a drain."""
        for each in [*self.processes, *self.processes]:
            each.forked.terminate()
        for each in self.processes:
            each.forked.wait(60)


@contextmanager
def several(folder: Path, database: str, **settings: dict[str, Any]) -> Iterator[Several]:
    """An installation without a process yet; whatever still runs at the end is stopped."""
    quick = {"logs": {"level": "warning"}, "queue": {"workers": 2, "sweep_ms": 100}, "storage": {"database": database}}
    folder.joinpath("config.yaml").write_text(json.dumps(quick | settings))
    group = Several(folder, prepare_store(folder), settings.get("domains", {}).get("base", "localhost"))
    try:
        yield group
    finally:
        group.stop_all()


def publish(client: httpx.Client, process: dict[str, Any]) -> None:
    """Create and publish a process."""
    client.put(f"/api/v1/processes/{process['id']}", json=process).raise_for_status()
    client.post(f"/api/v1/processes/{process['id']}/publish", json={}).raise_for_status()
