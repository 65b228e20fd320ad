"""The contract suite, and documents executed by a real implementation."""

from typing import Any

import pytest
from gos_connector_graphql import GraphqlConnector

from appliance.connectors.contract import AuthError, ConfigError, Context, Rejected, SystemFailure
from appliance.connectors.testing import ConnectorContract, schema_problems

Shop = Any
TOKEN = "very-secret-token"
FIND = "query Find($name: String!) { products(name: $name) { id name } }"
ADD = "mutation Add($name: String!) { addProduct(name: $name) { id } }"
DANGER = "} mutation { addProduct(name: \\"


class TestContract(ConnectorContract):
    connector = GraphqlConnector

    @pytest.fixture
    def settings(self, shop: Shop) -> dict[str, Any]:
        return {"url": shop.url, "auth": {"kind": "bearer", "token": TOKEN}}

    @pytest.fixture
    def broken_settings(self) -> dict[str, Any]:
        return {"url": "http://127.0.0.1:1/graphql"}


def test_a_query_runs_with_its_variables(it: GraphqlConnector, shop: Shop, ctx: Context) -> None:
    assert it.call("query", {"document": FIND, "variables": {"name": "Bolt"}}, ctx) == {
        "data": {"products": [{"id": "1", "name": "Bolt"}]}
    }
    assert shop.last_payload() == {"query": FIND, "variables": {"name": "Bolt"}, "operationName": "Find"}
    assert shop.last().headers["authorization"] == f"Bearer {TOKEN}"


def test_a_variable_cannot_inject_a_mutation(it: GraphqlConnector, shop: Shop, ctx: Context) -> None:
    assert it.call("query", {"document": FIND, "variables": {"name": DANGER}}, ctx) == {"data": {"products": []}}
    assert len(shop.stock) == 2


def test_a_mutation_changes_data(it: GraphqlConnector, shop: Shop, ctx: Context) -> None:
    assert it.call("mutate", {"document": ADD, "variables": {"name": "Nail"}}, ctx) == {"data": {"addProduct": {"id": "3"}}}
    assert shop.stock[-1]["name"] == "Nail"


@pytest.mark.parametrize(
    "document",
    [
        ADD,
        'mutation { addProduct(name: "x") { id } }',
        "# query { products }\nmutation A { old }",
        'query A { old } mutation B { addProduct(name: "x") { id } }',
        "fragment F on Mutation { old } mutation { ...F }",
        '"""query { old }"""\nmutation { old }',
        "subscription { old }",
    ],
)
def test_query_refuses_documents_that_change_something(it: GraphqlConnector, shop: Shop, ctx: Context, document: str) -> None:
    params = {"document": document, **({"operation": "B"} if "query A" in document else {})}
    with pytest.raises(ConfigError):
        it.call("query", params, ctx)
    assert shop.server.received == []


@pytest.mark.parametrize(
    ("document", "operation", "reason"),
    [
        ("query {", None, r"line 1, column 8"),
        ("\n\n query { a(b: ) }", None, r"line 3"),
        ("query A { old } query B { old }", None, "several operations"),
        ("query A { old } query B { old }", "C", "no operation 'C'"),
        ("fragment F on Query { old }", None, "has no operation"),
        ("{" * 5000 + "a" + "}" * 5000, None, "nested too deeply|line 1"),
        ("{ " + "a " * 30_000 + "}", None, "tokens"),
    ],
)
def test_an_invalid_document_is_refused_before_it_is_sent(
    it: GraphqlConnector, shop: Shop, ctx: Context, document: str, operation: str | None, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        it.call("query", {"document": document, **({"operation": operation} if operation else {})}, ctx)
    assert shop.server.received == []


def test_one_of_several_operations_runs(it: GraphqlConnector, shop: Shop, ctx: Context) -> None:
    params = {"document": 'query A { old } query B { maybe { id } } mutation C { must(name: "x") { id } }', "operation": "B"}
    assert it.call("query", params, ctx) == {"data": {"maybe": {"id": "1"}}}
    with pytest.raises(ConfigError, match="use the action mutate"):
        it.call("query", {**params, "operation": "C"}, ctx)
    with pytest.raises(ConfigError, match="use the action query"):
        it.call("mutate", params, ctx)


def test_an_unknown_field_is_rejected_with_the_services_message(it: GraphqlConnector, ctx: Context) -> None:
    with pytest.raises(Rejected, match="Cannot query field 'colour' on type 'Product'") as caught:
        it.call("mutate", {"document": 'mutation { must(name: "x") { colour } }'}, ctx)
    assert caught.value.outcome == "not_done"


def test_errors_contain_their_paths(it: GraphqlConnector, shop: Shop, ctx: Context) -> None:
    with pytest.raises(Rejected, match=r"The service refused the request: This name is taken\. at addProduct$") as caught:
        it.call("mutate", {"document": ADD, "variables": {"name": "taken"}}, ctx)
    assert caught.value.outcome == "not_done"
    assert caught.value.details["errors"] == [{"message": "This name is taken.", "path": ["addProduct"], "code": "BAD_USER_INPUT"}]
    assert len(shop.stock) == 2


def test_partial_data_is_refused_or_returned(it: GraphqlConnector, ctx: Context) -> None:
    params = {"document": "{ maybe { id secret } }"}
    with pytest.raises(AuthError, match=r"You may not see this\. at maybe\.secret"):
        it.call("query", params, ctx)
    result = it.call("query", {**params, "partial": "keep"}, ctx)
    assert result["data"] == {"maybe": {"id": "1", "secret": None}}
    assert result["errors"] == [{"message": "You may not see this.", "path": ["maybe", "secret"], "code": "FORBIDDEN"}]
    assert schema_problems(next(each for each in it.actions if each.name == "query").output, result) == []
    with pytest.raises(Rejected, match="Cannot query"):
        it.call("query", {"document": "{ nothing }", "partial": "keep"}, ctx)


@pytest.mark.parametrize(
    ("document", "error", "outcome"),
    [
        # Refused, or the top-level fields failed: nothing changed.
        ('mutation { addProduct(name: "taken") { id } }', Rejected, "not_done"),
        ('mutation { a: addProduct(name: "taken") { id } b: addProduct(name: "taken") { id } }', Rejected, "not_done"),
        # The change was made, then a nested field failed: once with a null in its place, once nulling the whole result.
        ('mutation { addProduct(name: "x") { secret } }', AuthError, "unknown"),
        ('mutation { addProduct(name: "x") { cost } }', Rejected, "unknown"),
        # One of two changes was made.
        ('mutation { a: addProduct(name: "x") { id } b: addProduct(name: "taken") { id } }', Rejected, "unknown"),
        # The null of the second field hides the result of the first.
        ('mutation { a: addProduct(name: "x") { id } b: must(name: "taken") { id } }', Rejected, "unknown"),
        # The service reports an internal error.
        ('mutation { addProduct(name: "broken") { id } }', SystemFailure, "unknown"),
    ],
)
def test_the_outcome_of_a_mutation_with_errors(
    it: GraphqlConnector, ctx: Context, document: str, error: type[Exception], outcome: str
) -> None:
    with pytest.raises(error) as caught:
        it.call("mutate", {"document": document}, ctx)
    assert type(caught.value) is error
    assert getattr(caught.value, "outcome", None) == outcome


def test_mutations_send_the_idempotency_key(shop: Shop, ctx: Context) -> None:
    settings = {"url": shop.url, "auth": {"kind": "bearer", "token": TOKEN}, "idempotency": {"header": "X-Once", "honoured": True}}
    it = GraphqlConnector(settings)
    it.call("mutate", {"document": ADD, "variables": {"name": "Nail"}}, ctx)
    assert shop.last().headers["x-once"] == ctx.idempotency_key
    it.call("query", {"document": FIND, "variables": {"name": "Nail"}}, ctx)
    assert "x-once" not in shop.last().headers
    effects = {action.name: it.effect_of(action, {}) for action in it.actions}
    assert effects == {"query": "read", "mutate": "idempotent", "describe": "read"}
    assert GraphqlConnector({"url": shop.url}).effect_of(it.actions[1], {}) == "write"


def test_describe_lists_operations(it: GraphqlConnector, ctx: Context) -> None:
    result = it.call("describe", {}, ctx)
    assert result["queries"][0] == {
        "name": "products",
        "type": "[Product!]!",
        "description": "Products of a name",
        "arguments": [{"name": "name", "type": "String!"}, {"name": "limit", "type": "Int", "default": "10"}],
    }
    assert [each["name"] for each in result["mutations"]] == ["addProduct", "must"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Size", {"name": "Size", "kind": "enum", "values": ["SMALL", "LARGE"]}),
        (
            "ProductFilter",
            {
                "name": "ProductFilter",
                "kind": "input_object",
                "takes": [{"name": "name", "type": "String!", "default": '"Bolt"'}, {"name": "size", "type": "Size"}],
            },
        ),
    ],
)
def test_describe_returns_the_parts_of_a_type(it: GraphqlConnector, ctx: Context, name: str, expected: dict[str, Any]) -> None:
    assert it.call("describe", {"type": name}, ctx) == {"type": expected}
    product = it.call("describe", {"type": "Product"}, ctx)["type"]
    assert product["description"] == "Something to sell"
    assert product["fields"][-1] == {"name": "tags", "type": "[String!]!", "arguments": []}
    with pytest.raises(ConfigError, match="no type 'Nothing'"):
        it.call("describe", {"type": "Nothing"}, ctx)


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        ({"kind": "basic", "username": "gos", "password": "pä"}, ("authorization", "Basic Z29zOnDDpA==")),
        ({"kind": "header", "name": "X-Key", "value": "k"}, ("x-key", "k")),
    ],
)
def test_credentials_are_sent(shop: Shop, ctx: Context, auth: dict[str, str], header: tuple[str, str]) -> None:
    it = GraphqlConnector({"url": shop.url, "auth": auth, "headers": {"X-Shop": "1"}})
    with pytest.raises(AuthError):
        it.check(ctx)
    assert shop.last().headers[header[0]] == header[1]
    assert shop.last().headers["x-shop"] == "1"
