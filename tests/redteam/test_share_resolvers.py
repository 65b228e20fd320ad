"""A tenant whose name server is silent waits for itself: the threads that resolve names are shared out."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from appliance.connectors import egress as egress_module
from appliance.connectors.contract import TransientError
from appliance.connectors.egress import Egress
from appliance.connectors.network import resolving_for
from appliance.connectors.network.resolving import PER_OWNER, ResolverThreads
from appliance.core.pools import RESOLVER, PoolSize
from appliance.core.scope import TenantScope
from appliance.governance.executor import TenantThreads
from appliance.governance.executor.threads import PoolLimits

PUBLIC = "93.184.215.14"


class SilentNames:
    """Resolves at once, except names of `silent.example`, which it answers once `go` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.lookups = threading.Semaphore(0)
        self.resolving = 0

    def __call__(self, host: str, port: int) -> list[str]:
        if host.endswith("silent.example"):
            self.resolving += 1
            self.lookups.release()
            self.go.wait()
        return [PUBLIC]


@pytest.fixture
def names() -> Iterator[SilentNames]:
    resolver = SilentNames()
    yield resolver
    resolver.go.set()


@pytest.fixture
def world(names: SilentNames, monkeypatch: pytest.MonkeyPatch) -> Egress:
    monkeypatch.setattr(egress_module, "_resolvers", ResolverThreads())
    return Egress(resolver=names)


def look_up(world: Egress, tenant: str, host: str, timeout: float | None) -> list[str]:
    with resolving_for(tenant):
        return world.addresses(host, 443, timeout)


def test_a_tenant_with_a_silent_name_server_takes_its_share_of_the_threads(world: Egress, names: SilentNames) -> None:
    with ThreadPoolExecutor(3 * RESOLVER.threads) as callers:
        hosts = [f"n{number}.silent.example" for number in range(2 * RESOLVER.threads)]
        pending = [callers.submit(look_up, world, "acme", host, None) for host in hosts]
        for _ in range(PER_OWNER):
            names.lookups.acquire()
        assert look_up(world, "globex", "good.example", 30.0) == [PUBLIC]
        assert names.resolving == PER_OWNER
        with pytest.raises(TransientError, match="in time"):
            look_up(world, "acme", "good.example", 0.05)
        names.go.set()
        assert [each.result() for each in pending] == [[PUBLIC]] * len(pending)
    assert look_up(world, "acme", "good.example", 30.0) == [PUBLIC], "what was counted is given back"


def test_work_for_a_tenant_resolves_in_its_name(world: Egress, names: SilentNames) -> None:
    threads = TenantThreads(PoolLimits(PoolSize("test", 3 * PER_OWNER), 2 * PER_OWNER, "too much"))
    scope = TenantScope("acme", "system")
    pending = [threads.submit(scope, lambda: world.addresses("a.silent.example", 443, None)) for _ in range(2 * PER_OWNER)]
    for _ in range(PER_OWNER):
        names.lookups.acquire()
    other = threads.submit(TenantScope("globex", "system"), lambda: world.addresses("good.example", 443, 30.0))
    assert other.result() == [PUBLIC]
    assert names.resolving == PER_OWNER
    names.go.set()
    assert [each.result() for each in pending] == [[PUBLIC]] * len(pending)
    threads.stop(wait=True)
