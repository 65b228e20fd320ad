"""Random access rules, entities and requesters: the database lets through exactly what the rule says."""

from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appliance.core.errors import PolicyDenied
from appliance.core.scope import TenantScope
from appliance.datapool import service as datapool
from appliance.datapool.access import Requester, create_allowed, delete_allowed, list_visible

WORDS = ["", "a", "b", "ab", "Ä"]
PLACEHOLDERS = ["$actor.id", "$actor.email", "$request.app"]
words, counts = st.sampled_from(WORDS), st.integers(-1, 2)
requesters = st.builds(
    Requester,
    id=words,
    email=words,
    app=words,
    roles=st.lists(words, max_size=2).map(tuple),
    kind=st.sampled_from(["user", "agent"]),
)
operands = words | st.sampled_from(PLACEHOLDERS)


def of_text(name: str) -> st.SearchStrategy[dict[str, Any]]:
    one = st.one_of([st.fixed_dictionaries({op: operands}) for op in ("_eq", "_neq", "_lt", "_gte", "_contains", "_starts_with")])
    listed = st.lists(operands, max_size=2) | st.just("$actor.roles")
    several = st.fixed_dictionaries({"_in": listed}) | st.fixed_dictionaries({"_nin": listed})
    return st.fixed_dictionaries({name: one | several | st.fixed_dictionaries({"_null": st.booleans()})})


of_count = st.fixed_dictionaries(
    {"count": st.one_of([st.fixed_dictionaries({op: counts}) for op in ("_eq", "_neq", "_lt", "_gte")])}
)
of_actor: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"$actor.kind": "user"}, {"$actor.email": {"_neq": "a"}}, {"$actor.roles": {"_contains": "a"}}, {"$actor.id": {"_null": True}}]
)


def grouped(leaves: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.fixed_dictionaries({"_and": st.lists(inner, min_size=1, max_size=2)})
            | st.fixed_dictionaries({"_or": st.lists(inner, min_size=1, max_size=2)})
        ),
        max_leaves=4,
    )


def related(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.sampled_from(["_some", "_none"]).flatmap(
        lambda op: st.fixed_dictionaries({"team": st.fixed_dictionaries({op: inner})})
    )


rules = grouped(of_text("word") | of_count | of_actor | related(grouped(of_text("code"))))

ABSENT = object()


class Reference:
    """A reference evaluation of a rule, independent of the product's; `absent` records that a value was missing."""

    def __init__(self, who: Requester) -> None:
        self.values: Mapping[str, Any] = {
            "$actor.id": who.id, "$actor.email": who.email, "$actor.kind": who.kind, "$request.app": who.app,
            "$actor.roles": list(who.roles),
        }  # fmt: skip
        self.absent = False

    def holds(self, rule: Mapping[str, Any], entity: Mapping[str, Any]) -> bool:
        parts = [self.member(name, value, entity) for name, value in rule.items()]  # all of them, to learn what is absent
        return all(parts)

    def member(self, name: str, value: Any, entity: Mapping[str, Any]) -> bool:
        if name in ("_and", "_or"):
            parts = [self.holds(part, entity) for part in value]
            return all(parts) if name == "_and" else any(parts)
        tests = value if isinstance(value, dict) else {"_eq": value}
        parts = [self.test(name, operator, operand, entity) for operator, operand in tests.items()]
        return all(parts)

    def test(self, name: str, operator: str, operand: Any, entity: Mapping[str, Any]) -> bool:
        if operator in ("_some", "_none"):
            outer, self.absent = self.absent, False
            matches = entity[name] is not None and self.holds(operand, entity[name])
            if entity[name] is None:
                self.holds(operand, {"code": None})  # only to learn what is absent
            hidden, self.absent = self.absent, outer or self.absent
            return matches if operator == "_some" else not matches and not hidden
        left = self.values[name] or None if name in self.values else entity[name]
        if operator == "_null":
            return (left is None) is operand
        right = [self.value(each) for each in operand] if isinstance(operand, list) else self.value(operand)
        if right is ABSENT or (isinstance(right, list) and ABSENT in right) or (name in self.values and left is None):
            self.absent = True
            return False
        return compared(operator, left, right)

    def value(self, operand: Any) -> Any:
        return (self.values[operand] or ABSENT) if operand in self.values else operand


def compared(operator: str, left: Any, right: Any) -> bool:
    if left is None:
        return operator in ("_neq", "_nin")
    answers = {"_eq": left == right, "_neq": left != right}
    if operator in ("_in", "_nin"):
        return (left in right) is (operator == "_in")
    if operator in ("_lt", "_gte"):
        return (left < right) is (operator == "_lt")
    if operator == "_starts_with":
        return bool(left.startswith(right))
    return bool(right in left) if operator == "_contains" else answers[operator]


def make_entities(scope: TenantScope) -> list[dict[str, Any]]:
    datapool.create_collection(scope, {"name": "teams", "fields": [{"name": "code", "type": "text"}]})
    fields = [
        {"name": "word", "type": "text"},
        {"name": "count", "type": "integer"},
        {"name": "team", "type": "relation", "collection": "teams"},
    ]
    datapool.create_collection(scope, {"name": "rows", "fields": fields})
    teams = [datapool.create_entity(scope, "teams", {"code": code}) for code in ("a", "Ä", None)]
    rows = []
    for index, (word, count) in enumerate(zip([*WORDS, None, "a"], [0, 1, 2, None, -1, 1, 0], strict=True)):
        team = teams[index % 4] if index % 4 < 3 else None
        created = datapool.create_entity(scope, "rows", {"word": word, "count": count, "team": team["id"] if team else None})
        rows.append(created | {"team": team})
    return rows


def test_the_database_and_the_rule_agree(acme: TenantScope) -> None:
    rows = make_entities(acme)

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(rule=rules, who=requesters, index=st.integers(0, len(rows) - 1))
    def agree(rule: dict[str, Any], who: Requester, index: int) -> None:
        access = {"list": rule, "create": rule, "delete": "allow"}
        datapool.change_collection(acme, "rows", {"access": None})
        datapool.change_collection(acme, "rows", {"access": access})
        listed = [row["id"] for row in list_visible(acme, who, "rows", {"sort": "id"}).items]
        assert listed == sorted(row["id"] for row in rows if Reference(who).holds(rule, row))
        row = rows[index]
        values = {"word": row["word"], "count": row["count"], "team": row["team"] and row["team"]["id"]}
        if Reference(who).holds(rule, row):
            delete_allowed(acme, who, "rows", create_allowed(acme, who, "rows", values)["id"])
        else:
            try:
                create_allowed(acme, who, "rows", values)
            except PolicyDenied:
                return
            raise AssertionError("an entity that the rule refuses was created")

    agree()
