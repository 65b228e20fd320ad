"""Surface: searches that cost far more than they are worth, and searches that ask for what is not theirs."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from appliance.core.database import db
from appliance.core.errors import TimedOut
from appliance.datapool import service as datapool
from appliance.tenants import service as tenants
from tests.api.resources import PREFIX, Resources, fresh
from tests.redteam.attempts import attempts

ROWS = 500
FIELDS = [
    {"name": "number", "type": "text", "unique": True, "required": True}, {"name": "note", "type": "text"},
    {"name": "total", "type": "integer"}, {"name": "more", "type": "json"},
]  # fmt: skip


@pytest.fixture
def crowded(two_tenants: None) -> Iterator[tuple[Any, str]]:
    """A tenant with a collection whose entities lead to each other."""
    scope = tenants.system_scope("acme")
    datapool.create_collection(scope, {"name": "crowd", "fields": FIELDS, "search": ["note"]})
    operations = [
        {"op": "create", "collection": "crowd", "values": {"number": str(n), "note": "ab" * 200, "total": n}} for n in range(ROWS)
    ]
    db.write(lambda: datapool.run_batch(scope, operations))
    yield scope, "crowd"
    datapool.configure(entity_kb=1024, query_rows=500)


COSTLY = {"filter": {"_or": [{"note": {"_icontains": f"{'ab' * 150}{number}"}} for number in range(199)]}, "count": True}
GROUPED = {"filter": COSTLY["filter"], "group": ["number"], "aggregate": {"n": {"fn": "count"}}}


@pytest.mark.parametrize("query", [COSTLY, GROUPED])
def test_a_costly_query_is_cancelled_and_the_next_one_answered(crowded: tuple[Any, str], query: dict[str, Any]) -> None:
    scope, name = crowded
    assert datapool.query_entities(scope, name, query).items == [], "the control: it is allowed, and finds nothing"
    datapool.configure(entity_kb=1024, query_rows=500, query_seconds=0.005)
    with pytest.raises(TimedOut, match="took longer than"):
        datapool.query_entities(scope, name, query)
    assert len(datapool.query_entities(scope, name, {"filter": {"number": "7"}}).items) == 1
    with pytest.raises(TimedOut):
        db.write(lambda: datapool.query_entities(scope, name, query))
    entity = db.write(lambda: datapool.create_entity(scope, name, {"number": "after"}))
    datapool.configure(entity_kb=1024, query_rows=500)
    assert datapool.query_entities(scope, name, query).items == [], "no deadline stays behind on a connection"
    assert datapool.get_entity(scope, name, entity["id"])["number"] == "after"


def nested(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = {"_or": [leaf]}
    return leaf


LONG = [{"number": {"_contains": f"x{n}"}} for n in range(500)]
REFUSED: dict[str, Callable[[], Any]] = {
    "a wildcard for a field": lambda: {"filter": {"%": "x"}},
    "a column of the table": lambda: {"filter": {"tenant_id": "globex"}},
    "a column by its number": lambda: {"filter": {"c1": "x"}},
    "SQL as a field": lambda: {"filter": {"number) OR 1=1 --": "x"}},
    "SQL as an operator": lambda: {"filter": {"number": {"_eq OR 1=1": "x"}}},
    "a regular expression": lambda: {"filter": {"number": {"_regex": "(a+)+$"}}},
    "201 comparisons": lambda: {"filter": {"_or": LONG[:201]}},
    "nested deeper": lambda: {"filter": nested(13, {"number": "x"})},
    "a text of a hundred thousand letters": lambda: {"filter": {"note": {"_contains": "a" * 100_000}}},
    "a list of a thousand and one": lambda: {"filter": {"number": {"_in": ["x"] * 1_001}}},
    "a NUL": lambda: {"filter": {"number": "a\0b"}},
    "sorted by JSON": lambda: {"sort": "more"},
    "sorted by JSON inside": lambda: {"sort": "more.a"},
    "sorted by SQL": lambda: {"sort": "number; DROP TABLE tenant"},
    "51 sort keys": lambda: {"sort": ["number"] * 51},
    "expanded by itself": lambda: {"expand": "friend.friend.friend"},
    "expanded by a text": lambda: {"expand": "number"},
    "search of eleven words": lambda: {"search": "a b c d e f g h i j k"},
    "search of a long word": lambda: {"search": "a" * 101},
    "search of a novel": lambda: {"search": "a " * 8_000},
    "grouped by many": lambda: {"group": [f"f{n}" for n in range(51)]},
    "grouped by the same": lambda: {"group": ["number", "number"]},
    "a hundred aggregates": lambda: {"aggregate": {f"a{n}": {"fn": "count"} for n in range(101)}},
    "an aggregate of ours": lambda: {"aggregate": {"x": {"fn": "load_extension", "field": "number"}}},
    "an aggregate named by SQL": lambda: {"aggregate": {'x" FROM tenant --': {"fn": "count"}}},
    "a page of 501": lambda: {"limit": 501},
    "a page of nothing": lambda: {"limit": 0},
    "a page of a fraction": lambda: {"limit": 1.5},
    "count in words": lambda: {"count": "estimated"},
    "a member of ours": lambda: {"raw": "SELECT 1"},
    "having without groups": lambda: {"having": {"n": {"_gt": 1}}},
    "a forged cursor": lambda: {"cursor": "eyJhIjoxfQ"},
    "a cursor of SQL": lambda: {"cursor": "' OR 1=1"},
}

ALLOWED: dict[str, tuple[Any, int]] = {
    "a percent sign is a letter": ({"filter": {"number": {"_contains": "%"}}}, 0),
    "an underscore is a letter": ({"filter": {"number": {"_starts_with": "_"}}}, 0),
    "a star is a letter": ({"filter": {"number": {"_icontains": "*"}}}, 0),
    "a bracket is a letter": ({"filter": {"number": {"_icontains": "[a-z]"}}}, 0),
    "a backslash is a letter": ({"filter": {"number": {"_contains": "\\"}}}, 0),
    "a quote is a letter": ({"filter": {"number": {"_contains": "' OR '1'='1"}}}, 0),
    "a search for operators": ({"search": 'note:* OR "a" NEAR b'}, 0),
    "200 alternatives": ({"filter": {"_or": [*LONG[:199], {"number": "r-0"}]}}, 1),
    "200 conditions": ({"filter": {"_and": [{"number": {"_starts_with": "r"}}] * 200}}, 3),
    "twelve levels of both": ({"filter": nested(11, {"_and": [{"number": "r-1"}, {"total": 1}]})}, 1),
    "all fields as sort keys, page by page": (
        {"sort": ["total", "note", "number", "created_at", "updated_at", "id"], "limit": 1},
        1,
    ),
    "friends of friends": ({"filter": {"friend": {"_some": {"friend": {"_some": {"number": "r-2"}}}}}}, 1),
    "a friend that leads in a circle": ({"expand": "friend"}, 3),
}


@pytest.fixture
def circle(ours: Resources) -> str:
    """A collection of three whose records lead to each other in a circle."""
    name = fresh("circle")
    relation = {"name": "friend", "type": "relation", "collection": name}
    ours.ask("POST", "/datapool", {"name": name, "fields": FIELDS, "search": ["note"]})
    ours.ask("PATCH", f"/datapool/{name}", {"fields": [*ours.ask("GET", f"/datapool/{name}")["fields"], relation]})
    ids = [ours.ask("POST", f"/datapool/{name}/entities", {"number": f"r-{n}", "total": n})["id"] for n in range(3)]
    for each, friend in zip(ids, [*ids[1:], ids[0]], strict=True):
        ours.ask("PATCH", f"/datapool/{name}/entities/{each}", {"friend": friend})
    return name


def test_searches_are_bounded_and_stay_within_their_tenant(ours: Resources, theirs: Resources, circle: str) -> None:
    theirs.ask("POST", "/datapool", {"name": circle, "fields": FIELDS, "search": ["note"]})
    theirs.ask("POST", f"/datapool/{circle}/entities", {"number": "theirs", "total": 1})
    with attempts(least=50) as table:
        for name, make in REFUSED.items():
            answer = query(ours.client, circle, make())
            table.check(name, answer.status_code in (400, 422), (answer.status_code, answer.text))
        for name, (body, expected) in ALLOWED.items():
            answer = query(ours.client, circle, body)
            result = answer.json().get("data", answer.text)
            table.check(name, answer.status_code == 200 and len(result) == expected, (answer.status_code, result))
        for name, body in {
            "without a filter": {},
            "with a filter that holds for all": {"filter": {"_or": [{"total": {"_gte": 0}}]}},
        }.items():
            result = query(ours.client, circle, body).text
            table.check(f"others' records, {name}", "theirs" not in result and "r-0" in result, result)
        first = query(theirs.client, circle, {"limit": 1, "sort": "number"})
        theirs.ask("POST", f"/datapool/{circle}/entities", {"number": "more", "total": 1})
        cursor = query(theirs.client, circle, {"limit": 1, "sort": "number"}).json()["meta"]["next_cursor"]
        seen = query(ours.client, circle, {"limit": 1, "sort": "number", "cursor": cursor}).text
        table.check("another tenant's cursor", first.status_code == 200 and "theirs" not in seen, seen)
        _by_address(ours, table, circle)


def _by_address(ours: Resources, table: Any, circle: str) -> None:
    """The same by a GET, whose parameters are texts."""
    for name, params in {
        "a filter that is no JSON": {"filter": "{"}, "a filter that is a list": {"filter": "[]"},
        "a filter by its depth": {"filter": "[" * 100},
        "a filter that is a bomb": {"filter": json.dumps({"_or": LONG})}, "a parameter we do not know": {"where": "1=1"},
    }.items():  # fmt: skip
        answer = ours.client.get(f"{PREFIX}/datapool/{circle}/entities", params=params)
        table.check(f"by GET: {name}", answer.status_code in (400, 413, 422), (answer.status_code, answer.text))


def query(client: httpx.Client, collection: str, body: Any) -> httpx.Response:
    return client.post(f"{PREFIX}/datapool/{collection}/query", json=body)
