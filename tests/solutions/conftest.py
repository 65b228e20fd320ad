"""Tenants of their own for tests that apply solutions."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import httpx
import pytest

from appliance.cli import main
from appliance.core.scope import TenantScope
from appliance.solutions import service
from appliance.solutions.archive import write_zip
from appliance.solutions.definition import read_solution
from appliance.solutions.service import ApplyOptions, Change, SolutionServices
from appliance.testing.running import Running

_numbers = count(1)
Gos = Callable[..., tuple[int, str, str]]


@dataclass
class SolutionTenant:
    """A tenant, with short methods to plan and apply solutions."""

    running: Running
    scope: TenantScope
    api: httpx.Client

    @property
    def tools(self) -> SolutionServices:
        return self.running.services.solutions

    @property
    def demo(self) -> str:
        return f"http://127.0.0.1:{self.running.config.server.port}/demo"

    def plan(self, files: Mapping[str, str], **options: Any) -> list[Change]:
        return service.plan_solution(self.scope, self.tools, read(files), ApplyOptions(**options))

    def apply(self, files: Mapping[str, str], **options: Any) -> list[Change]:
        return service.apply_solution(self.scope, self.tools, read(files), ApplyOptions(**options))

    def send(self, verb: str, files: Mapping[str, str], **params: Any) -> httpx.Response:
        return self.api.post(f"/api/v1/solutions/{verb}", content=pack(files), params=params)


def read(files: Mapping[str, str]) -> Any:
    return read_solution({path: text.encode() for path, text in files.items()})


def pack(files: Mapping[str, str]) -> bytes:
    return write_zip({path: text.encode() for path, text in files.items()})


def make_solution(**additions: str) -> dict[str, str]:
    """A small valid solution; `additions` adds or replaces files by their paths."""
    files = {
        "solution.yaml": "name: small\nneeds: {connectors: [http], secrets: [erp_token]}\n",
        "collections/things.yaml": "fields:\n  - {name: code, type: text, unique: true}\n  - {name: weight, type: integer}\n",
        "integrations/erp.yaml": "connector: http\nsettings:\n  base_url: https://erp.example.com\n"
        "  auth: {kind: bearer, token: = secrets.erp_token}\n",
        "processes/add/process.yaml": "id: add\ngrants: {datapool: {things: [read]}}\nsteps:\n"
        "  - id: sum\n    code: {language: typescript, file: steps/sum.ts}\n",
        "processes/add/steps/sum.ts": "export default function (input: {a: number}) { return input.a + 1 }\n",
    }
    return files | additions


@pytest.fixture
def make_tenant(running: Running) -> Iterator[Callable[..., SolutionTenant]]:
    """Makes fresh tenants."""
    clients = []

    def make(*scopes: str) -> SolutionTenant:
        name = f"place{next(_numbers)}"
        client = running.api(name, scopes) if scopes else running.api(name)
        clients.append(client)
        return SolutionTenant(running, running.tenant(name), client)

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def tenant(make_tenant: Callable[..., SolutionTenant]) -> SolutionTenant:
    """A fresh tenant with the secret that `make_solution` needs."""
    instance = make_tenant()
    instance.api.put("/api/v1/secrets/erp_token", json={"value": "swordfish-17"}).raise_for_status()
    return instance


@pytest.fixture
def gos(tenant: SolutionTenant, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gos:
    """Runs a command as a person with a key of the tenant; answers exit code, output and errors."""
    monkeypatch.setenv("GOS_URL", tenant.running.config.tenant_url(tenant.scope.tenant_id))
    monkeypatch.setenv("GOS_API_KEY", tenant.running.key(tenant.scope.tenant_id))

    def run(*argv: object) -> tuple[int, str, str]:
        code = main([str(part) for part in argv])
        return code, *capsys.readouterr()

    return run
