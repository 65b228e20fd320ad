"""Integrations: created, read without secrets, changed, tested, deleted; never across tenants."""

import pytest

from appliance.connectors.registry import Registry
from appliance.core import logs
from appliance.core.database import db
from appliance.core.errors import (
    AlreadyExists,
    Conflict,
    ConnectorFailed,
    NotFound,
    ValidationFailed,
    VersionConflict,
)
from appliance.core.pages import PageRequest
from appliance.governance.executor import ActionFailed
from appliance.integrations import history
from appliance.integrations.history import CallFilter
from appliance.integrations.service import Integrations
from appliance.integrations.spec import IntegrationSpec, merged_spec
from appliance.tenants import service as tenants
from tests.integrations.world import Ledger, World


def test_an_integration_is_read_back_without_its_secrets(world: World) -> None:
    world.ledger(label="shop", headers={"X-Key": "canary-1"}, nested=[{"key": "canary-2"}])
    read = world.integrations.get_integration(world.one, "books")
    assert (read.slug, read.name, read.connector, read.version) == ("books", "books", "ledger", 1)
    assert read.settings["label"] == "shop"
    assert read.settings["token"]["sealed"] is True
    assert "canary" not in str(read)
    assert "tok-4711" not in str(read)


def test_no_secret_is_stored_in_plain_text(world: World) -> None:
    world.ledger(headers={"X-Key": "canary-12345"})
    world.executor.execute(world.one, world.request("look", input={"do": "echo", "note": "canary-12345"}))
    with pytest.raises(ActionFailed):
        world.executor.execute(world.one, world.request(input={"do": "Rejected"}))
    dump = str(db.rows("SELECT * FROM integration") + db.rows("SELECT * FROM integration_call"))
    assert "canary-12345" not in dump
    assert "tok-4711-secret" not in dump


def test_all_problems_of_the_settings_are_reported_at_once(world: World) -> None:
    spec = IntegrationSpec("ledger", {"token": "x", "host": "UPPER", "surprise": 1})
    with pytest.raises(ValidationFailed) as caught:
        world.integrations.create_integration(world.one, "books", spec)
    assert {detail.pointer for detail in caught.value.details} == {"/settings/token", "/settings/host", "/settings/surprise"}
    assert world.integrations.list_integrations(world.one, PageRequest()).items == []


@pytest.mark.parametrize("slug", ["", "A", "a--b", "connectors", "x" * 64, "1a"])
def test_an_invalid_slug_is_refused(world: World, slug: str) -> None:
    with pytest.raises(ValidationFailed):
        world.integrations.create_integration(world.one, slug, IntegrationSpec("ledger", {"token": "abc"}))


def test_an_unknown_connector_names_the_known_ones(world: World) -> None:
    with pytest.raises(ValidationFailed, match=r"http, .*ledger"):
        world.integrations.create_integration(world.one, "books", IntegrationSpec("unheard-of", {}))
    with pytest.raises(NotFound):
        world.integrations.get_connector("unheard-of")
    assert world.integrations.get_connector("http").name == "http"


def test_slugs_are_unique_per_tenant(world: World) -> None:
    world.ledger()
    with pytest.raises(AlreadyExists):
        world.ledger()
    world.ledger(world.two)


def test_another_tenants_integration_is_not_found(world: World) -> None:
    world.ledger()
    world.executor.execute(world.one, world.request())
    for verb in (
        lambda: world.integrations.get_integration(world.two, "books"),
        lambda: world.integrations.replace_integration(world.two, "books", IntegrationSpec("ledger", {"token": "abc"})),
        lambda: world.integrations.delete_integration(world.two, "books"),
        lambda: world.integrations.test_integration(world.two, "books"),
        lambda: world.executor.execute(world.two, world.request()),
        lambda: history.list_calls(world.two, "books", CallFilter(), PageRequest()),
    ):
        with pytest.raises(NotFound) as foreign:
            verb()
        assert str(foreign.value) == "there is no integration 'books' here"
    assert len(Ledger.booked) == 1


def test_a_change_keeps_secrets_that_are_sent_back_as_markers(world: World) -> None:
    world.ledger(label="a")
    current = world.integrations.get_integration(world.one, "books")
    changed = world.integrations.replace_integration(
        world.one, "books", merged_spec(current, {"name": "Books", "settings": {"label": "b"}}), if_version=1
    )
    assert (changed.name, changed.version, changed.settings["label"]) == ("Books", 2, "b")
    world.executor.execute(world.one, world.request("look"))
    assert Ledger.seen[-1] == {"token": "tok-4711-secret", "label": "b"}
    with pytest.raises(VersionConflict):
        world.integrations.replace_integration(world.one, "books", IntegrationSpec("ledger", {"token": "abc"}), if_version=1)


def test_saving_equal_settings_keeps_the_version(world: World) -> None:
    spec = IntegrationSpec("ledger", {"token": "tok-4711-secret", "label": "a"})
    assert world.integrations.save_integration(world.one, "books", spec)[1] is True
    again, new = world.integrations.save_integration(world.one, "books", spec)
    assert (again.version, new) == (1, False)
    other = IntegrationSpec("ledger", {"token": "another-secret", "label": "a"})
    assert world.integrations.save_integration(world.one, "books", other)[0].version == 2


def test_a_sealed_secret_cannot_be_sent_to_another_host_by_changing_the_address(world: World) -> None:
    world.ledger(host="good.example")
    current = world.integrations.get_integration(world.one, "books")
    with pytest.raises(ValidationFailed, match="enter the value again"):
        world.integrations.replace_integration(world.one, "books", merged_spec(current, {"settings": {"host": "evil.example"}}))
    moved = {"settings": {"host": "new.example", "token": "given-again"}}
    assert world.integrations.replace_integration(world.one, "books", merged_spec(current, moved)).version == 2


def test_references_to_tenant_secrets_follow_their_changes(world: World) -> None:
    world.integrations.create_integration(world.one, "books", IntegrationSpec("ledger", {"token": "= secrets.books_token"}))
    assert world.integrations.get_integration(world.one, "books").settings == {"token": "= secrets.books_token"}
    with pytest.raises(ConnectorFailed, match="PUT /api/v1/secrets/books_token") as caught:
        world.executor.execute(world.one, world.request())
    assert caught.value.details[0].code == "config_error"
    for value in ("first-value", "second-value"):
        tenants.set_secret(world.one, world.sealer, "books_token", value)
        world.executor.execute(world.one, world.request("look"))
        assert Ledger.seen[-1] == {"token": value}
    assert Ledger.closed == [{"token": "first-value"}]
    tenants.set_secret(world.two, world.sealer, "books_token", "the other tenant's")
    world.executor.execute(world.one, world.request("look"))
    assert Ledger.seen[-1] == {"token": "second-value"}


def test_the_result_of_a_test_is_stored_without_the_secret(world: World) -> None:
    world.ledger(label="shop")
    check = world.integrations.test_integration(world.one, "books")
    assert (check.ok, check.message) == (True, "Hello shop, your token is [redacted].")
    stored = world.integrations.get_integration(world.one, "books").check
    assert stored is not None
    assert (stored.ok, stored.message, stored.at) == (True, check.message, check.at)
    world.integrations.replace_integration(world.one, "books", IntegrationSpec("ledger", {"token": "wrong"}))
    assert world.integrations.get_integration(world.one, "books").check is None
    failed = world.integrations.test_integration(world.one, "books")
    assert (failed.ok, failed.error_class) == (False, "auth_error")


def test_an_integration_survives_the_loss_of_its_connector(world: World) -> None:
    world.ledger()
    bare = Integrations(lambda: Registry({}), world.sealer, lambda *_: "", world.integrations.calls)
    assert bare.get_integration(world.one, "books").settings["token"]["sealed"] is True
    with pytest.raises(ConnectorFailed, match="not installed"):
        bare.ready(world.one, "books")


def test_deleting_requires_unknown_outcomes_to_be_settled(world: World) -> None:
    world.ledger()
    with pytest.raises(ActionFailed) as caught:
        world.executor.execute(world.one, world.request(input={"do": "TransientError unknown"}))
    with pytest.raises(Conflict, match="settle"):
        world.integrations.delete_integration(world.one, "books")
    history.settle_call(world.one, "books", caught.value.call_id, done=False, output=None)
    world.integrations.delete_integration(world.one, "books")
    with pytest.raises(NotFound):
        world.integrations.get_integration(world.one, "books")
    assert db.rows("SELECT count(*) FROM integration_call") == [(0,)]


def test_opened_secrets_never_reach_the_process_log(world: World) -> None:
    world.ledger()
    world.executor.execute(world.one, world.request("look"))
    assert logs.redact("it was tok-4711-secret") == "it was [redacted]"


def test_lists_are_paged_in_order(world: World) -> None:
    for slug in ("c", "a", "b"):
        world.integrations.create_integration(world.one, slug, IntegrationSpec("ledger", {"token": "abc"}))
    first = world.integrations.list_integrations(world.one, PageRequest(limit=2, count=True))
    assert ([item.slug for item in first.items], first.total) == (["a", "b"], 3)
    rest = world.integrations.list_integrations(world.one, PageRequest(limit=2, cursor=first.next_cursor))
    assert [item.slug for item in rest.items] == ["c"]
