"""A GraphQL service on loopback that executes documents with graphql-core."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from gos_connector_graphql import GraphqlConnector
from graphql import GraphQLError, build_schema, graphql_sync

from appliance.connectors.contract import Context
from appliance.connectors.testing import Answer, LoopbackServer, Received, open_context

TOKEN = "very-secret-token"
SCHEMA = build_schema("""
"Something to sell"
type Product { id: ID! name: String! price: Float cost: Float! secret: String tags: [String!]! }
enum Size { SMALL LARGE }
input ProductFilter { name: String! = "Bolt", size: Size }
interface Named { name: String! }
type Query {
  "Products of a name"
  products(name: String!, limit: Int = 10): [Product!]!
  old: String @deprecated
  maybe: Product
}
type Mutation {
  addProduct(name: String!): Product
  must(name: String!): Product!
}
""")


class Shop:
    """The service's data and its resolvers."""

    def __init__(self) -> None:
        self.stock: list[dict[str, Any]] = [{"id": "1", "name": "Bolt", "price": 1.25}, {"id": "2", "name": "Nut", "price": 2}]
        self.server = LoopbackServer()
        self.server.answers["/graphql"] = self.answer

    @property
    def url(self) -> str:
        return f"{self.server.url}/graphql"

    def last(self) -> Received:
        return self.server.received[-1]

    def last_payload(self) -> dict[str, Any]:
        request: dict[str, Any] = json.loads(self.last().body)
        return request

    def answer(self, request: Received) -> Answer:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return graphql_answer({"errors": [{"message": "Who are you?"}]}, 401)
        payload = json.loads(request.body)
        result = graphql_sync(
            SCHEMA, payload["query"], self, variable_values=payload.get("variables"), operation_name=payload.get("operationName")
        )
        return graphql_answer(dict(result.formatted))

    # -- resolvers: graphql-core calls them with the request's context and the arguments

    def products(self, _: Any, name: str, limit: int) -> list[dict[str, Any]]:
        return [self._to_node(each) for each in self.stock if each["name"] == name][:limit]

    def old(self, _: Any) -> str:
        return "old"

    def maybe(self, _: Any) -> dict[str, Any]:
        return self._to_node(self.stock[0])

    def addProduct(self, _: Any, name: str) -> dict[str, Any]:  # noqa: N802 - a field's name
        if name == "taken":
            raise GraphQLError("This name is taken.", extensions={"code": "BAD_USER_INPUT"})
        if name == "broken":
            raise GraphQLError("The disk is full.", extensions={"code": "INTERNAL_SERVER_ERROR"})
        self.stock.append({"id": str(len(self.stock) + 1), "name": name, "price": None})
        return self._to_node(self.stock[-1])

    def must(self, info: Any, name: str) -> dict[str, Any]:
        return self.addProduct(info, name)

    def _to_node(self, product: dict[str, Any]) -> dict[str, Any]:
        def secret(_: Any) -> str:
            raise GraphQLError("You may not see this.", extensions={"code": "FORBIDDEN"})

        def cost(_: Any) -> float:
            raise GraphQLError("The cost is not known.")

        return {**product, "secret": secret, "cost": cost, "tags": []}


def graphql_answer(body: Any, status: int = 200) -> Answer:
    return Answer(status, {"Content-Type": "application/graphql-response+json"}, json.dumps(body).encode())


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.server.close()


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context(seconds=30) as ctx:
        yield ctx


@pytest.fixture
def it(shop: Shop) -> GraphqlConnector:
    return GraphqlConnector({"url": shop.url, "auth": {"kind": "bearer", "token": TOKEN}})
