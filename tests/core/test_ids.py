"""Ids sort by creation and never meet; slugs keep to the contract."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.core import ids
from appliance.core.errors import ValidationFailed


def test_ids_sort_by_creation() -> None:
    created = [ids.new("exe") for _ in range(5000)]
    assert created == sorted(created)
    assert {len(one) for one in created} == {25}
    assert all(one.startswith("exe_") for one in created)


def test_ids_of_many_threads_never_collide() -> None:
    with ThreadPoolExecutor(8) as threads:
        created = [one for many in threads.map(lambda _: [ids.new("key") for _ in range(1000)], range(8)) for one in many]
    assert len(set(created)) == 8000


@given(st.integers(0, 62**9 - 1), st.integers(0, 62**9 - 1))
def test_base62_sorts_like_the_number(one: int, other: int) -> None:
    assert (ids.base62(one, 9) < ids.base62(other, 9)) == (one < other)


@pytest.mark.parametrize("slug", ["a", "order-intake", "a1", "x" * 63, "v2", "n8n-import"])
def test_good_slugs(slug: str) -> None:
    assert ids.check_slug(slug) == slug


@pytest.mark.parametrize(
    "slug",
    ["", "A", "1a", "-a", "a-", "a--b", "a_b", "a.b", "ä", "a b", "a\n", "x" * 64, "../a", "cdn", "content", "www", "api",
     "connectors", "batch"],
)  # fmt: skip
def test_bad_slugs(slug: str) -> None:
    with pytest.raises(ValidationFailed) as refusal:
        ids.check_slug(slug, pointer="/id")
    assert refusal.value.details[0].pointer == "/id"


@pytest.mark.parametrize(
    ("text", "slug"),
    [("Cart total", "cart-total"), ("  Große Aufträge -- 2 ", "grosse-auftrage-2"), ("4 eyes' check", "eyes-check"),
     ("x" * 80, "x" * 63), ("a" * 62 + " b", "a" * 62), ("日本", ""), ("12", ""), ("", "")],
)  # fmt: skip
def test_a_slug_reads_like_the_text(text: str, slug: str) -> None:
    assert ids.slug_of(text) == slug
    assert slug == "" or ids.check_slug(slug) == slug


@pytest.mark.parametrize("slug", ["v1", "v12-shop", "x" * 25])
def test_names_of_tenants_and_apps_are_shorter_and_never_look_like_a_version(slug: str) -> None:
    assert ids.check_slug(slug) == slug
    with pytest.raises(ValidationFailed):
        ids.check_slug(slug, longest=24)
