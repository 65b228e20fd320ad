"""Runs an appliance inside the test process, with a real server, database and sandbox."""

import asyncio
import ssl
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from appliance.app import composition as app
from appliance.connectors.testing import free_port
from appliance.core import clock
from appliance.core.config import Config, environment, load_config
from appliance.core.scope import TenantScope
from appliance.sites.front import new_event_loop
from appliance.tenants import SCOPES, people, service
from appliance.tenants.keys import keys
from appliance.web import Services
from appliance.webapps.certificates import ca_certificate

START_SECONDS = 30.0


def make_config(folder: Path, **settings: Any) -> Config:
    """The configuration of a test: data in `folder`, a free port, quiet logs; `settings` are `section__name=value`.

    Requests wait for their turn for up to 20 s, because the tests themselves keep the processors busy.
    The only environment variable used is GOS_RUNTIMES, the folder of the prepared runtimes.
    """
    flags = {
        "storage.data": str(folder), "server.port": free_port(), "server.queue_ms": 10_000, "logs.level": "error",
        "queue.sweep_ms": 100,
    }  # fmt: skip
    if runtimes := environment("GOS_RUNTIMES"):
        flags["sandbox.runtimes"] = runtimes
    flags |= {name.replace("__", ".", 1): value for name, value in settings.items()}
    return load_config(environment={}, flags=flags)


@dataclass
class Running:
    """A running appliance.  `api` builds a client for a tenant; tenants are created on first use."""

    appliance: app.Appliance
    config: Config
    _loop: asyncio.AbstractEventLoop
    _stop: asyncio.Event
    _thread: threading.Thread
    _moved_ms: int = 0

    @property
    def services(self) -> Services:
        return self.appliance.services

    def tenant(self, tenant_id: str) -> TenantScope:
        """The system scope of the tenant, which is created if needed."""
        # Not `tenant_exists`: it caches for a second, possibly from a previous appliance in this process.
        if tenant_id not in {row.id for row in service.list_tenants()}:
            service.create_tenant(tenant_id, tenant_id.title())
        return service.system_scope(tenant_id)

    def key(self, tenant_id: str, scopes: Iterable[str] = tuple(SCOPES), **more: Any) -> str:
        """Issue an API key and return its text; the rate limit is high unless given."""
        spec = keys.KeySpec("test", list(scopes), "test", **{"rate_requests": 1_000_000, **more})
        return keys.issue_key(self.tenant(tenant_id), self.services.sealer, spec)[1]

    def user(self, login: str, password: str, tenant_id: str | None = None, role: str = "owner") -> str:
        """Create a user, with a role in a tenant if one is given; returns the user's id."""
        person = people.create_user(login, password)
        if tenant_id is not None:
            people.add_member(self.tenant(tenant_id), login, role)
        return str(person.id)

    def client(self, host: str, headers: Mapping[str, str] | None = None) -> httpx.Client:
        """An HTTP client that connects to this appliance and requests the host `host`."""
        name = f"{host}{self.config.port_suffix}"
        all_headers = {"Host": name, **(headers or {})}
        return httpx.Client(
            base_url=_loopback(self.config), verify=_trust(self.config), headers=all_headers, timeout=90, trust_env=False
        )

    def api(self, tenant_id: str, scopes: Iterable[str] = tuple(SCOPES)) -> httpx.Client:
        """An HTTP client for a tenant's API, with a new key of these scopes."""
        return self.client(f"{tenant_id}.{self.config.domains.base}", {"X-API-Key": self.key(tenant_id, scopes)})

    def move_clock(self, ms: int) -> None:
        """Advance the clock of this appliance; `stop` resets it for the next one in this process."""
        self._moved_ms += ms
        clock.move(ms)
        for each in self.appliance.upkeep:
            each.hasten()

    def stop(self) -> None:
        """Stop the appliance as SIGTERM would, and reset the clock."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self.appliance.stop()
        clock.move(-self._moved_ms)


def start(config: Config) -> Running:
    """Start an appliance in a thread of this process; only one can run at a time, because the database is process-wide."""
    appliance = app.build(config)
    appliance.start()
    ready = threading.Event()
    box: dict[str, Any] = {}

    async def serve() -> None:
        box["loop"], box["stop"] = asyncio.get_running_loop(), asyncio.Event()
        ready.set()
        await app.run_server(appliance, box["stop"].wait)

    def serve_in_thread() -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=serve_in_thread, name="server", daemon=True)
    thread.start()
    if not ready.wait(START_SECONDS):
        raise TimeoutError("the server did not start")
    running = Running(appliance, config, box["loop"], box["stop"], thread)
    _wait_ready(config, thread)
    return running


def _wait_ready(config: Config, server: threading.Thread) -> None:
    """Wait until the server responds; TimeoutError if it does not, RuntimeError if its thread has ended."""
    until = clock.monotonic() + START_SECONDS
    with httpx.Client(verify=_trust(config), trust_env=False, timeout=START_SECONDS) as client:
        while True:
            try:
                client.get(f"{_loopback(config)}/readyz").raise_for_status()
                return
            except httpx.TransportError as error:
                if clock.monotonic() > until:
                    raise TimeoutError("the server did not answer in time") from error
            server.join(0.02)
            if not server.is_alive():
                raise RuntimeError("the server ended before it answered; its port may have been taken")


def _loopback(config: Config) -> str:
    """The URL at which the server listens itself, bypassing any proxy."""
    return f"{'http' if config.tls_mode == 'off' else 'https'}://127.0.0.1:{config.server.port}"


def _trust(config: Config) -> ssl.SSLContext | bool:
    """The TLS trust: the built-in CA if it signs the certificate, otherwise the system's CAs."""
    return ssl.create_default_context(cafile=ca_certificate(config)) if config.tls_mode == "internal" else True
