"""A database with two tenants, a provider on loopback, and profiles that lead to it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.connectors.egress import Egress
from appliance.core import clock
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.llm.profile import Profile
from appliance.llm.prompt import parse_prompt
from appliance.llm.service import Generated, LanguageModels, Origin
from appliance.processes.executions import service as executions
from appliance.tenants import service as tenants
from appliance.tenants import starters
from tests.llm.provider import Provider
from tests.store.opening import open_migrated

SEALER = Sealer(b"k" * 32)


@dataclass
class Desk:
    """Asks on behalf of tenant acme."""

    llm: LanguageModels
    provider: Provider
    scope: TenantScope
    other: TenantScope

    def profile(self, slug: str = "default", key: str | None = "sk-canary-123", **more: Any) -> None:
        """A profile, replaced when there is one."""
        settings = {"kind": "openai", "model": "small", "base_url": self.provider.url, **more}
        self.llm.put_profile(self.scope, slug, Profile.model_validate(settings), key)

    def ask(self, prompt: str = "Who?", *, seconds: float = 10.0, origin: Origin | None = None, **more: Any) -> Generated:
        """The settled result of one prompt."""
        prompt_members = {"profile": "default", "prompt": prompt, **more}
        done = self.llm.generate(self.scope, parse_prompt(prompt_members), origin or Origin(), clock.monotonic() + seconds)
        db.write(lambda: done.settle(self.scope))
        return done


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    server = Provider()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def started_executions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executions are known to have a starter, as in an appliance."""
    monkeypatch.setitem(starters.lookups, "execution", executions.find_starter)


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/gos.db"


@pytest.fixture
def desk(database: str, provider: Provider) -> Iterator[Desk]:
    open_migrated(database)
    for name in ("acme", "globex"):
        tenants.create_tenant(name, name)
    provider.forget()
    acme, globex = (TenantScope(name, "key:test") for name in ("acme", "globex"))
    llm = LanguageModels(
        Egress.of([f"127.0.0.1:{provider.port}"]), SEALER, lambda scope, name: tenants.unseal_secret(scope, SEALER, name)
    )
    yield Desk(llm, provider, acme, globex)
    db.close_database()
