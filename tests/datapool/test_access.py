"""Access rules: who may see and change which entity, and that hidden entities cannot be detected."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.core import yaml12
from appliance.core.errors import Conflict, InvalidFilter, InvalidRequest, NotFound, PolicyDenied, ValidationFailed, VersionConflict
from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.datapool.access import Requester, create_allowed, delete_allowed, get_visible, list_visible, update_allowed

ANN = Requester("user", "u-ann", "ann@example.com", ("editor", "north"), "shop", "GET")
BOB = Requester("user", "u-bob", "bob@example.com", (), "shop", "GET")
NOBODY = Requester()
OWN = {"owner": "$actor.id"}
TEAMS = {
    "name": "teams",
    "fields": [{"name": "code", "type": "text"}, {"name": "secret", "type": "text"}],
    "access": {"view": {"code": {"_in": "$actor.roles"}}},
}
NOTES: dict[str, Any] = {
    "name": "notes",
    "fields": [
        {"name": "title", "type": "text", "unique": True},
        {"name": "owner", "type": "text"},
        {"name": "points", "type": "decimal", "scale": 2},
        {"name": "team", "type": "relation", "collection": "teams"},
    ],
    "search": ["title"],
}


@pytest.fixture
def teams(acme: TenantScope) -> dict[str, str]:
    datapool.create_collection(acme, TEAMS)
    entities = [datapool.create_entity(acme, "teams", {"code": code, "secret": f"s-{code}"}) for code in ("north", "south")]
    return {entity["code"]: entity["id"] for entity in entities}


def make_notes(scope: TenantScope, teams: dict[str, str], **access: Any) -> dict[str, str]:
    """Two notes of Ann, one of Bob, one without an owner's name."""
    datapool.create_collection(scope, NOTES | {"access": access})
    rows = [("a1", "u-ann", "1.50", "north"), ("a2", "u-ann", "3", "south"), ("b1", "u-bob", "2", "south"), ("n1", "", None, None)]
    ids = {}
    for title, owner, points, team in rows:
        values = {"title": title, "owner": owner, "points": points, "team": teams.get(str(team))}
        ids[title] = datapool.create_entity(scope, "notes", values)["id"]
    return ids


def titles(scope: TenantScope, who: Requester, **query: Any) -> list[str]:
    return [note["title"] for note in list_visible(scope, who, "notes", {"sort": "title"} | query).items]


def test_nothing_is_public_by_omission(acme: TenantScope, teams: dict[str, str]) -> None:
    note = make_notes(acme, teams)["a1"]
    attempts: list[Callable[[], object]] = [
        lambda: list_visible(acme, ANN, "notes", {}),
        lambda: get_visible(acme, ANN, "notes", note),
        lambda: create_allowed(acme, ANN, "notes", {"title": "x"}),
        lambda: create_allowed(acme, ANN, "notes", {"title": 5}),
        lambda: update_allowed(acme, ANN, "notes", note, {"title": "x"}),
        lambda: delete_allowed(acme, ANN, "notes", note),
    ]
    for attempt in attempts:
        with pytest.raises(PolicyDenied):
            attempt()
    assert datapool.get_entity(acme, "notes", note)["title"] == "a1"


def test_a_list_contains_only_entities_that_the_rule_allows(acme: TenantScope, globex: TenantScope, teams: dict[str, str]) -> None:
    make_notes(acme, teams, list=OWN)
    assert titles(acme, ANN) == ["a1", "a2"]
    assert titles(acme, BOB) == ["b1"]
    assert titles(acme, NOBODY) == []  # an absent id is not the empty text
    page = list_visible(acme, ANN, "notes", {"count": True, "limit": 1, "sort": "-points"})
    assert (page.total, [note["title"] for note in page.items]) == (2, ["a2"])
    assert titles(acme, ANN, cursor=page.next_cursor, sort="-points") == ["a1"]
    assert titles(acme, ANN, search="b1") == []
    assert titles(acme, ANN, filter={"_or": [{"owner": "u-bob"}, {"owner": "$actor.id"}]}) == ["a1", "a2"]
    with pytest.raises(InvalidRequest, match="not available where access rules apply"):
        list_visible(acme, ANN, "notes", {"aggregate": {"n": {"count": "*"}}})
    with pytest.raises(NotFound):
        list_visible(globex, ANN, "notes", {})


def test_a_hidden_entity_is_not_found(acme: TenantScope, teams: dict[str, str]) -> None:
    notes = make_notes(acme, teams, view=OWN, update=OWN, delete=OWN)
    assert get_visible(acme, ANN, "notes", notes["a1"])["points"] == "1.50"
    for hidden in (notes["b1"], notes["n1"], "ent_none", "ent_" + "0" * 21):
        with pytest.raises(NotFound):
            get_visible(acme, ANN, "notes", hidden)
        with pytest.raises(NotFound):
            update_allowed(acme, ANN, "notes", hidden, {"title": "x"}, if_version=7)
        with pytest.raises(NotFound):
            delete_allowed(acme, ANN, "notes", hidden)


def test_hidden_entities_cannot_be_detected_through_a_relation(acme: TenantScope, teams: dict[str, str]) -> None:
    notes = make_notes(acme, teams, list="allow", view="allow")
    everything = ["a1", "a2", "b1", "n1"]
    assert titles(acme, ANN, filter={"team": {"secret": {"_starts_with": "s-"}}}) == ["a1"]
    assert titles(acme, ANN, filter={"team": {"_none": {"secret": "s-south"}}}) == everything
    assert titles(acme, ANN, filter={"team": {"_none": {"secret": "s-north"}}}) == ["a2", "b1", "n1"]
    assert titles(acme, BOB, filter={"team": {"secret": {"_starts_with": "s-"}}}) == []
    page = list_visible(acme, ANN, "notes", {"expand": "team", "sort": "title", "fields": "team"})
    assert [note["team"] for note in page.items][1:] == [teams["south"], teams["south"], None]
    assert page.items[0]["team"]["secret"] == "s-north"
    expanded = get_visible(acme, BOB, "notes", notes["a1"], query=datapool.parse_query({"expand": "team"}))
    assert expanded["team"] == teams["north"]
    datapool.change_collection(acme, "teams", {"access": {"view": "deny"}})
    with pytest.raises(InvalidFilter, match="has no members"):
        titles(acme, ANN, filter={"team": {"secret": "s-north"}})


def test_a_created_entity_must_fulfil_the_rule(acme: TenantScope, teams: dict[str, str]) -> None:
    make_notes(acme, teams, create={"_and": [OWN, {"points": {"_lt": 10}}]}, list="allow")
    created = create_allowed(acme, ANN, "notes", {"title": "new", "owner": "u-ann", "points": 1})
    assert list(created) == ["id"]  # the created entity may not be viewed
    for values in ({"title": "x", "owner": "u-bob", "points": 1}, {"title": "x", "owner": "u-ann", "points": 10}, {"title": "x"}):
        with pytest.raises(PolicyDenied):
            create_allowed(acme, ANN, "notes", values)
    with pytest.raises(PolicyDenied):
        create_allowed(acme, NOBODY, "notes", {"title": "x", "owner": "", "points": 1})
    with pytest.raises(ValidationFailed, match="points"):
        create_allowed(acme, ANN, "notes", {"title": "x", "owner": "u-ann", "points": "many"})
    assert titles(acme, ANN) == ["a1", "a2", "b1", "n1", "new"]
    assert datapool.list_entity_history(acme, "notes", created["id"], PageRequest()).items[0].event == "created"


def test_a_unique_conflict_is_revealed_only_to_those_allowed_by_the_rule(acme: TenantScope, teams: dict[str, str]) -> None:
    make_notes(acme, teams, create=OWN, update=OWN)
    for values in ({"title": "b1", "owner": "u-bob"}, {"title": "free", "owner": "u-bob"}):
        with pytest.raises(PolicyDenied):
            create_allowed(acme, ANN, "notes", values)
    with pytest.raises(ValidationFailed, match="unique"):
        create_allowed(acme, ANN, "notes", {"title": "b1", "owner": "u-ann"})


def test_an_update_must_fulfil_the_rule_before_and_after(acme: TenantScope, teams: dict[str, str]) -> None:
    notes = make_notes(acme, teams, view={"owner": {"_neq": ""}}, update=OWN)
    changed = update_allowed(acme, ANN, "notes", notes["a1"], {"points": "9.25"}, if_version=1)
    assert (changed["points"], changed["owner"], changed["_version"]) == ("9.25", "u-ann", 2)
    with pytest.raises(PolicyDenied):  # given away
        update_allowed(acme, ANN, "notes", notes["a1"], {"owner": "u-bob"})
    with pytest.raises(PolicyDenied):  # taken; it may be viewed
        update_allowed(acme, ANN, "notes", notes["b1"], {"owner": "u-ann"})
    with pytest.raises(NotFound):
        update_allowed(acme, ANN, "notes", notes["n1"], {"owner": "u-ann"})
    with pytest.raises(VersionConflict):
        update_allowed(acme, ANN, "notes", notes["a1"], {"points": 1}, if_version=1)
    owners = [note["owner"] for note in datapool.query_entities(acme, "notes", {"sort": "title"}).items]
    assert owners == ["u-ann", "u-ann", "u-bob", ""]


def test_a_rule_can_refer_to_the_request_body(acme: TenantScope, teams: dict[str, str]) -> None:
    rule = {"$request.body.owner": {"_null": True}, "title": {"_neq": "$request.body.title"}}
    notes = make_notes(acme, teams, create={"title": "$request.body.title"}, update=rule, view="allow")
    assert create_allowed(acme, BOB, "notes", {"title": "t"})["title"] == "t"
    with pytest.raises(PolicyDenied):
        create_allowed(acme, BOB, "notes", {"owner": "u-bob"})
    with pytest.raises(PolicyDenied):
        update_allowed(acme, BOB, "notes", notes["a1"], {"owner": "u-bob", "title": "z"})
    with pytest.raises(PolicyDenied):  # afterwards the title is what was sent
        update_allowed(acme, BOB, "notes", notes["a1"], {"title": "z"})
    with pytest.raises(PolicyDenied):  # no title was sent
        update_allowed(acme, BOB, "notes", notes["a1"], {"points": 1})


def test_a_rule_over_the_entity_itself_sees_the_new_values(acme: TenantScope) -> None:
    parent = {"name": "parent", "type": "relation", "collection": "trees"}
    datapool.create_collection(
        acme,
        {
            "name": "trees",
            "fields": [{"name": "state", "type": "text"}, parent],
            "access": {"update": {"parent": {"state": "open"}}, "view": "allow"},
        },
    )
    tree = datapool.create_entity(acme, "trees", {"state": "open"})["id"]
    datapool.update_entity(acme, "trees", tree, {"parent": tree})
    with pytest.raises(PolicyDenied):
        update_allowed(acme, ANN, "trees", tree, {"state": "closed"})
    assert datapool.get_entity(acme, "trees", tree)["state"] == "open"


def test_deleting_has_its_own_rule(acme: TenantScope, teams: dict[str, str]) -> None:
    notes = make_notes(acme, teams, delete=OWN, view="allow")
    with pytest.raises(PolicyDenied):
        delete_allowed(acme, ANN, "notes", notes["b1"])
    with pytest.raises(VersionConflict):
        delete_allowed(acme, ANN, "notes", notes["a1"], if_version=3)
    delete_allowed(acme, ANN, "notes", notes["a1"])
    with pytest.raises(NotFound):
        get_visible(acme, ANN, "notes", notes["a1"])
    datapool.change_collection(acme, "teams", {"access": {"delete": "allow"}})
    with pytest.raises(Conflict) as conflict:
        delete_allowed(acme, ANN, "teams", teams["south"])
    assert "notes" not in conflict.value.message


ACCESS_CASES: list[tuple[Any, Requester, bool]] = [
    ("allow", NOBODY, True),
    ({"$actor.kind": "user"}, ANN, True),
    ({"$actor.kind": "user"}, NOBODY, False),
    ({"$actor.kind": {"_neq": "agent"}}, NOBODY, True),
    ({"$actor.email": {"_neq": "bob@example.com"}}, ANN, True),
    ({"$actor.email": {"_neq": "bob@example.com"}}, NOBODY, False),
    ({"$actor.email": {"_nin": ["bob@example.com"]}}, NOBODY, False),
    ({"$actor.email": {"_null": True}}, NOBODY, True),
    ({"$actor.roles": {"_contains": "editor"}}, ANN, True),
    ({"$actor.roles": {"_contains": "edit"}}, ANN, False),
    ({"$actor.roles": {"_contains": "editor"}}, BOB, False),
    ({"$request.app": "shop", "$request.method": {"_in": ["GET"]}}, ANN, True),
    ({"$request.app": "shop"}, NOBODY, False),
    ({"$request.now": {"_gt": "2020-01-01T00:00:00Z"}}, NOBODY, True),
    ({"created_at": {"_gte": "$now"}}, NOBODY, True),
    ({"created_at": {"_lt": "$now"}}, NOBODY, False),
    ({"title": {"_neq": "$actor.id"}}, ANN, True),
    ({"title": {"_neq": "$actor.id"}}, NOBODY, False),
    ({"title": {"_nin": ["x", "$actor.id"]}}, NOBODY, False),
    ({"title": {"_nin": "$actor.roles"}}, ANN, True),
    ({"title": {"_nin": "$actor.roles"}}, BOB, False),
    ({"title": {"_or": [{"_neq": "$actor.id"}, {"_eq": "a1"}]}}, NOBODY, True),
    ({"team": {"code": {"_in": "$actor.roles"}}}, ANN, True),
    ({"team": {"_none": {"code": "$actor.id"}}}, ANN, True),
    ({"team": {"_none": {"code": "$actor.id"}}}, NOBODY, False),
    ({"team": {"_none": {"_or": [{"code": "x"}, {"code": "$actor.id"}]}}}, NOBODY, False),
    ({"points": {"_gt": "$actor.email"}}, ANN, False),
]


def test_absent_values_never_grant_access(acme: TenantScope, teams: dict[str, str]) -> None:
    make_notes(acme, teams)
    for rule, who, opens in ACCESS_CASES:
        datapool.change_collection(acme, "notes", {"access": None})
        datapool.change_collection(acme, "notes", {"access": {"list": rule}})
        assert ("a1" in titles(acme, who)) is opens, (rule, who)


WRONG_RULES: list[tuple[str, Any, str]] = [
    ("list", {"owner": "$actor.name"}, "is not available in this rule"),
    ("list", {"owner": "$actor"}, "is not available in this rule"),
    ("list", {"owner": "$request.body.owner"}, "is not available in this rule"),
    ("delete", {"$request.body.owner": "x"}, "no field"),
    ("create", {"owner": "$request.body.nothing"}, "is not available in this rule"),
    ("list", {"owner": "$actor.roles"}, "need the list"),
    ("list", {"owner": {"_in": "$actor.id"}}, "need the list"),
    ("list", {"$actor.roles": {"_neq": "editor"}}, "is a list"),
    ("list", {"$actor.age": 5}, "no field"),
    ("list", {"nothing": 5}, "no field"),
    ("list", {"points": "many"}, "decimal"),
    ("view", {"team": {"$actor.kind": "user"}}, "no field"),
    ("view", {}, 'write "allow"'),
    ("view", "public", "a filter must be an object"),
]


def test_a_wrong_rule_is_refused_when_it_is_written(acme: TenantScope, teams: dict[str, str]) -> None:
    make_notes(acme, teams)
    for verb, rule, message in WRONG_RULES:
        for dry_run in (True, False):
            with pytest.raises(ValidationFailed, match=message) as refusal:
                datapool.change_collection(acme, "notes", {"access": {verb: rule}}, dry_run=dry_run)
            assert all(detail.pointer.startswith(f"/access/{verb}") for detail in refusal.value.details)
        with pytest.raises(ValidationFailed):
            datapool.create_collection(acme, {**NOTES, "name": "others", "access": {verb: rule}})


def test_a_plan_shows_changed_rules(acme: TenantScope, teams: dict[str, str]) -> None:
    make_notes(acme, teams, list=OWN)
    plan = datapool.change_collection(acme, "notes", {"access": {"list": "allow", "view": OWN}}, dry_run=True)
    assert [(step["change"], step["message"]) for step in plan["steps"]] == [
        ("access", 'list changes from {"owner": "$actor.id"} to allow'),
        ("access", 'view changes from deny to {"owner": "$actor.id"}'),
    ]
    assert datapool.get_collection(acme, "notes")["access"]["list"] == OWN


def test_a_change_that_breaks_a_rule_elsewhere_is_refused(acme: TenantScope, teams: dict[str, str]) -> None:
    make_notes(acme, teams, list={"team": {"code": "north"}})
    with pytest.raises(ValidationFailed, match="list rule of notes"):
        datapool.change_collection(acme, "teams", {"fields": [{"name": "secret", "type": "text"}], "access": None}, allow_loss=True)
    assert titles(acme, NOBODY) == ["a1"]


def test_the_rules_of_the_manual_do_what_it_says(acme: TenantScope, teams: dict[str, str]) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "webapps.md").read_text()
    document = yaml12.load(manual.split("# collections/tickets.yaml\n")[1].split("```")[0])
    datapool.create_collection(acme, {"name": "tickets", **document})
    mine = create_allowed(acme, ANN, "tickets", {"title": "t", "owner": "u-ann", "team": teams["north"]})
    north = Requester("user", "u-cid", roles=("north",))
    assert [ticket["id"] for ticket in list_visible(acme, north, "tickets", {}).items] == [mine["id"]]
    assert list_visible(acme, BOB, "tickets", {}).items == []
    with pytest.raises(PolicyDenied):
        update_allowed(acme, ANN, "tickets", mine["id"], {"team": teams["south"]})
    with pytest.raises(PolicyDenied):
        delete_allowed(acme, ANN, "tickets", mine["id"])
    delete_allowed(acme, Requester("member", "u-mia"), "tickets", mine["id"])
