"""Two changes of LLM profiles and their usage end as if one had followed the other."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from appliance.connectors.egress import Egress
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.llm import usage
from appliance.llm.profile import Profile
from appliance.llm.service import LanguageModels, Origin
from appliance.llm.usage import UsageSum
from appliance.tenants import ALL_SCOPES
from appliance.tenants import service as tenants
from tests.llm.conftest import SEALER
from tests.store.cluster import Cluster
from tests.store.interleaving import Pair, check_pair, without_exclusive_writes
from tests.store.opening import open_migrated

SCOPE = TenantScope("acme", "key:test", ALL_SCOPES)
MOST = UsageSum(1, 60, 0)
numbers = itertools.count(1)


@pytest.fixture(scope="module")
def llm(cluster: Cluster) -> Iterator[LanguageModels]:
    open_migrated(cluster.emptied())
    tenants.create_tenant("acme", "Acme")
    yield LanguageModels(Egress(), SEALER, lambda scope, name: tenants.unseal_secret(scope, SEALER, name))
    db.close_database()


def profile(model: str = "small", **more: Any) -> Profile:
    return Profile.model_validate({"kind": "openai", "model": model, "base_url": "https://llm.test", **more})


def new_profile(of: LanguageModels, **more: Any) -> str:
    slug = f"p{next(numbers)}"
    of.create_profile(SCOPE, slug, profile(**more), "sk-1")
    return slug


def read(slug: str) -> Any:
    open_calls = db.rows("SELECT count(*) FROM llm_reservation WHERE profile = ?", (slug,))
    used = db.rows("SELECT calls, input_tokens FROM llm_usage WHERE profile = ?", (slug,))
    return db.rows("SELECT version FROM llm_profile WHERE id = ?", (slug,)), open_calls, used


def two_profiles_of_one_name(of: LanguageModels) -> Pair:
    slug = f"p{next(numbers)}"
    return Pair.of((partial(of.create_profile, SCOPE, slug, profile(), "sk-1"),) * 2, partial(read, slug))


def a_profile_is_put_twice(of: LanguageModels) -> Pair:
    slug = f"p{next(numbers)}"
    return Pair.of((partial(of.put_profile, SCOPE, slug, profile(), "sk-1"),) * 2, partial(read, slug))


def a_profile_is_put_and_deleted(of: LanguageModels) -> Pair:
    slug = new_profile(of)
    return Pair(
        lambda: of.put_profile(SCOPE, slug, profile("large"), "sk-2"), lambda: of.delete_profile(SCOPE, slug), partial(read, slug)
    )


def two_changes_of_a_version(of: LanguageModels) -> Pair:
    slug = new_profile(of)
    return Pair.of(
        (partial(of.put_profile, SCOPE, slug, profile(model), "sk-2", if_version=1) for model in "ab"), partial(read, slug)
    )


def reserve(slug: str, place: str, budgeted: Profile) -> Any:
    return db.write(lambda: usage.reserve(SCOPE, slug, budgeted, Origin("exe_1", place), MOST))


def settle(reservation: usage.Reservation) -> None:
    db.write(lambda: usage.settle(SCOPE, reservation, MOST))


def two_last_calls_of_a_budget(of: LanguageModels) -> Pair:
    budgeted = profile(budgets={"day": {"tokens": 50}})
    slug = new_profile(of)
    return Pair.of((partial(reserve, slug, place, budgeted) for place in "ab"), partial(read, slug))


def a_call_is_settled_twice(of: LanguageModels) -> Pair:
    """Once by its process, once as one that seems lost."""
    slug = new_profile(of)
    reservation = reserve(slug, "a", profile())
    return Pair.of((partial(settle, reservation),) * 2, partial(read, slug))


def two_calls_are_settled(of: LanguageModels) -> Pair:
    slug = new_profile(of)
    reservations = [reserve(slug, place, profile()) for place in "ab"]
    return Pair.of((partial(settle, each) for each in reservations), partial(read, slug))


PAIRS: dict[str, Callable[[LanguageModels], Pair]] = {
    each.__name__: each
    for each in (
        two_profiles_of_one_name, a_profile_is_put_twice, a_profile_is_put_and_deleted, two_changes_of_a_version,
        two_last_calls_of_a_budget, a_call_is_settled_twice, two_calls_are_settled,
    )
}  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS)
def test_both_orders(llm: LanguageModels, pair: str, request: pytest.FixtureRequest) -> None:
    assert check_pair(lambda: PAIRS[pair](llm), reads=request.config.option.all) >= 4


def test_without_exclusive_writes_a_budget_is_exceeded(llm: LanguageModels) -> None:
    with without_exclusive_writes(), pytest.raises(AssertionError, match="was halted before"):
        check_pair(lambda: two_last_calls_of_a_budget(llm))
