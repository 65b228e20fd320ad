"""Swagger 2.0: a pet store on loopback that uses every construct of the specification."""

import base64
import json
from typing import Any

import pytest
from gos_connector_openapi import importing
from gos_connector_openapi.document import UnusableDocument, parse
from gos_connector_openapi.operations import MAX_OPERATIONS, Reader

from appliance.connectors.contract import Action, Apart
from appliance.connectors.testing import Answer, open_context, schema_problems

Shop = Any
HEAD = {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}}
PET_STORE = """
swagger: 2.0
info: {title: Pets, version: "1"}
basePath: /v2
consumes: [application/xml, application/json]
produces: [application/json, application/xml]
security: [{key: []}]
tags: [{name: pets}]
securityDefinitions:
  login: {type: basic}
  key: {type: apiKey, in: header, name: X-Pet-Key}
  question: {type: apiKey, in: query, name: pet_key}
  implicit: {type: oauth2, flow: implicit, authorizationUrl: https://pets.test/a, scopes: {read: r}}
  password: {type: oauth2, flow: password, tokenUrl: https://pets.test/t, scopes: {}}
  application: {type: oauth2, flow: application, tokenUrl: https://pets.test/t, scopes: {}}
  code: {type: oauth2, flow: accessCode, authorizationUrl: https://pets.test/a, tokenUrl: https://pets.test/t, scopes: {}}
parameters:
  Page: {name: page, in: query, type: integer, minimum: 1, default: 1}
  Pet: {name: pet, in: body, required: true, schema: {$ref: "#/definitions/Pet"}}
responses:
  Pets: {description: Pets, schema: {type: array, items: {$ref: "#/definitions/Pet"}}}
definitions:
  Pet:
    type: object
    required: [name]
    discriminator: kind
    properties:
      id: {type: integer, format: int64, readOnly: true}
      name: {type: string}
      kind: {type: string, enum: [cat, dog]}
      owner: {type: string, x-nullable: true}
      tags: {type: array, items: {$ref: "#/definitions/Tag%5Bstring%5D"}}
  "Tag[string]": {type: object, properties: {name: {type: string}}}
paths:
  /pets:
    parameters: [{$ref: "#/parameters/Page"}, {name: X-Trace, in: header, type: string}]
    get:
      operationId: listPets
      tags: [pets]
      parameters:
        - {name: page, in: query, type: integer, maximum: 9, description: Which page}
        - {name: csv, in: query, type: array, items: {type: string}}
        - {name: ssv, in: query, type: array, items: {type: string}, collectionFormat: ssv}
        - {name: tsv, in: query, type: array, items: {type: string}, collectionFormat: tsv}
        - {name: pipes, in: query, type: array, items: {type: string}, collectionFormat: pipes}
        - {name: multi, in: query, type: array, items: {type: string, enum: [a, b]}, collectionFormat: multi}
        - {name: X-Ids, in: header, type: array, items: {type: integer}, collectionFormat: pipes}
      responses: {200: {$ref: "#/responses/Pets"}}
    post:
      operationId: addPet
      tags: [pets]
      security: [{login: []}, {code: [write]}]
      parameters: [{$ref: "#/parameters/Pet"}]
      responses: {201: {description: Made, schema: {$ref: "#/definitions/Pet"}}}
  /pets/{ids}:
    delete:
      operationId: deletePets
      tags: [pets, admin]
      security: []
      parameters: [{name: ids, in: path, required: true, type: array, items: {type: integer}, collectionFormat: pipes}]
      responses: {204: {description: Gone}}
    post:
      operationId: changePet
      parameters:
        - {name: ids, in: path, required: true, type: integer}
        - {name: name, in: formData, type: string, required: true, description: New name}
        - {name: many, in: formData, type: array, items: {type: string}, collectionFormat: multi}
        - {name: piped, in: formData, type: array, items: {type: string}, collectionFormat: pipes}
      responses: {default: {description: Whatever}}
  /pets/{ids}/image:
    post:
      operationId: uploadImage
      consumes: [application/x-www-form-urlencoded, multipart/form-data]
      produces: [image/png]
      parameters:
        - {name: ids, in: path, required: true, type: integer}
        - {name: file, in: formData, type: file, required: true}
        - {name: labels, in: formData, type: array, items: {type: string}}
      responses: {200: {description: The image, schema: {type: file}}}
  /notes:
    put:
      operationId: putNote
      schemes: [http]
      consumes: [text/plain]
      parameters: [{name: note, in: body, schema: {type: string}}]
      responses: {200: {description: Untold}}
  /first:
    get:
      operationId: first
      security: [{question: []}, {implicit: []}, {password: []}, {application: []}]
      responses: {200: {description: One, schema: {$ref: "#/paths/~1pets/post/responses/201/schema"}}}
"""


@pytest.fixture
def store(shop: Shop) -> Shop:
    shop.publish_bytes(PET_STORE.encode())
    return shop


def settings(shop: Shop) -> dict[str, Any]:
    """Settings as in production: the base address of the API, and credentials under the document's scheme names."""
    return {"base_url": f"{shop.url}/v2", "credentials": {"key": "k1", "login": "ann:pw"}}


def perform(shop: Shop, name: str, arguments: Any) -> Any:
    action: Action = shop.actions()[name]
    assert schema_problems(action.input, arguments) == []
    output = shop.perform(name, arguments, **settings(shop))
    return output["body"]


def test_every_operation_becomes_an_action(store: Shop) -> None:
    actions = store.actions()
    assert set(actions) == {"list_pets", "add_pet", "delete_pets", "change_pet", "upload_image", "put_note", "first"}
    effects = {name: each.effect for name, each in actions.items()}
    assert (effects["list_pets"], effects["delete_pets"], effects["add_pet"]) == ("read", "idempotent", "write")
    assert {each.plan["server"] for name, each in actions.items() if name != "put_note"} == {f"{store.url}/v2"}


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("csv", ["a", "b"], "csv=a%2Cb"),
        ("ssv", ["a", "b"], "ssv=a+b"),
        ("tsv", ["a", "b"], "tsv=a%09b"),
        ("pipes", ["a", "b"], "pipes=a%7Cb"),
        ("multi", ["a", "b"], "multi=a&multi=b"),
        ("page", 3, "page=3"),
    ],
)
def test_a_list_is_written_in_its_collection_format(store: Shop, name: str, value: Any, written: str) -> None:
    received = perform(store, "list_pets", {name: value})
    assert received["path"].replace("%20", "+") == f"/v2/pets?{written}"


def test_parameters_keep_their_bounds_and_include_those_of_the_path(store: Shop) -> None:
    members = store.actions()["list_pets"].input["properties"]
    assert members["page"] == {"type": "integer", "maximum": 9, "description": "Which page"}, "the operation's own, whole"
    assert members["multi"]["items"] == {"type": "string", "enum": ["a", "b"]}
    assert store.actions()["add_pet"].input["properties"]["page"] == {"type": "integer", "minimum": 1}
    headers = perform(store, "list_pets", {"X-Trace": "t", "X-Ids": [1, 2]})["headers"]
    assert (headers["x-trace"], headers["x-ids"], headers["x-pet-key"]) == ("t", "1|2", "k1")
    assert perform(store, "delete_pets", {"ids": [1, 2]})["path"] == "/v2/pets/1%7C2"


def test_a_body_is_json_where_that_is_possible(store: Shop) -> None:
    pet = store.actions()["add_pet"].input["properties"]["body"]
    assert pet["required"] == ["name"]
    assert "id" not in pet["properties"], "the system gives it"
    assert pet["properties"]["owner"]["type"] == ["string", "null"]
    assert pet["properties"]["tags"]["items"] == {"type": "object", "properties": {"name": {"type": "string"}}}
    received = perform(store, "add_pet", {"body": {"name": "Rex", "kind": "dog"}})
    assert (received["headers"]["content-type"], received["body"]) == ("application/json", '{"name":"Rex","kind":"dog"}')
    assert received["headers"]["authorization"] == "Basic " + base64.b64encode(b"ann:pw").decode()
    note = perform(store, "put_note", {"body": "hello"})
    assert (note["headers"]["content-type"], note["body"]) == ("text/plain", "hello")


def test_fields_of_a_form_are_sent_as_a_form(store: Shop) -> None:
    schema = store.actions()["change_pet"].input
    assert schema["properties"]["body"]["required"] == ["name"]
    assert set(schema["required"]) == {"ids", "body"}
    received = perform(store, "change_pet", {"ids": 1, "body": {"name": "x y", "many": ["1", "2"], "piped": ["1", "2"]}})
    assert received["headers"]["content-type"] == "application/x-www-form-urlencoded"
    assert received["body"] == "name=x+y&many=1&many=2&piped=1%7C2"


def test_a_file_is_sent_as_multipart(store: Shop) -> None:
    store.server.answers["/v2/pets/1/image"] = lambda request: Answer(
        200, {"Content-Type": "image/png", "X-Sent": request.headers["content-type"], "X-Accept": request.headers["accept"]},
        request.body,
    )  # fmt: skip
    arguments = {"ids": 1, "body": {"file": {"base64": "iVA=", "filename": "a.png"}, "labels": ["a", "b"]}}
    assert schema_problems(store.actions()["upload_image"].input, arguments) == []
    output = store.perform("upload_image", arguments, **settings(store))
    assert output["headers"]["x-sent"].startswith("multipart/form-data; boundary=")
    assert output["headers"]["x-accept"] == "image/png"
    sent = base64.b64decode(output["body"])
    assert b'name="file"; filename="a.png"' in sent
    assert b'name="labels"\r\n\r\na,b\r\n' in sent


def test_outputs_are_those_of_the_document(store: Shop) -> None:
    actions = store.actions(answers="checked")
    pets = actions["list_pets"].output["properties"]["body"]
    assert pets["items"]["required"] == ["name"]
    body = actions["add_pet"].output["properties"]["body"]
    assert actions["first"].output["properties"]["body"] == body, "by reference into paths"
    assert actions["delete_pets"].output["properties"]["body"] == {"type": "null"}
    assert actions["put_note"].output["properties"]["body"] == {}, "a schema that is left out forbids no answer"


def test_security_schemes_are_those_of_the_document(store: Shop) -> None:
    plans = {name: each.plan["security"] for name, each in store.actions().items()}
    assert plans["list_pets"] == [[{"scheme": "key", "kind": "header", "name": "X-Pet-Key"}]]
    assert plans["add_pet"] == [[{"scheme": "login", "kind": "basic"}], [{"scheme": "code", "kind": "bearer"}]]
    assert plans["delete_pets"] == []
    first = [alternative[0] for alternative in plans["first"]]
    assert first[0] == {"scheme": "question", "kind": "query", "name": "pet_key"}
    assert [each["kind"] for each in first[1:]] == ["bearer"] * 3


@pytest.mark.parametrize(
    ("head", "server"),
    [
        ({"host": "pets.test", "basePath": "/v2", "schemes": ["http", "https"]}, "https://pets.test/v2"),
        ({"host": "pets.test:8080", "schemes": ["ws", "http"]}, "http://pets.test:8080"),
        ({"host": "pets.test", "basePath": "v2/"}, "http://pets.test/v2"),
        ({"basePath": "/"}, "http://docs.test"),
        ({"host": "{region}.pets.test"}, ""),
        ({"host": "https://pets.test", "schemes": ["http"]}, "https://pets.test"),
    ],
)
def test_the_server_address_comes_from_the_document(head: dict[str, Any], server: str) -> None:
    content = json.dumps({"swagger": "2.0", "paths": {"/t": {"get": {"responses": {}}}}, **head}).encode()
    (action,) = Reader(parse(content), {"document_url": "http://docs.test/a/swagger.json"}).read()
    assert action["plan"]["server"] == server


def test_without_a_document_url_the_server_is_https(store: Shop) -> None:
    content = json.dumps({"swagger": "2.0", "host": "pets.test", "paths": {"/t": {"get": {"responses": {}}}}}).encode()
    (action,) = Reader(parse(content), {}).read()
    assert action["plan"]["server"] == "https://pets.test"


BODY = {"name": "b", "in": "body", "schema": {}}
FIELD = {"name": "f", "in": "formData", "type": "string"}
LISTS = {"name": "l", "in": "query", "type": "array", "items": {"type": "array", "items": {"type": "string"}}}


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ([BODY, {**BODY, "name": "c"}], "a second body at /paths/~1a~0b/post/parameters/1"),
        ([FIELD, BODY], "both a form and a body at /paths/~1a~0b/post/parameters/1"),
        ([LISTS], "a list of lists at /paths/~1a~0b/post/parameters/0/items"),
        ([{"$ref": "#/parameters/None"}], "refers to '#/parameters/None'"),
    ],
)
def test_unsupported_constructs_are_refused_with_a_pointer(parameters: list[Any], sentence: str) -> None:
    content = json.dumps({"swagger": "2.0", "paths": {"/a~b": {"post": {"parameters": parameters, "responses": {}}}}}).encode()
    with pytest.raises(UnusableDocument, match=sentence):
        list(Reader(parse(content), {}).read())


def test_valid_parts_of_invalid_documents_are_read() -> None:
    odd = {
        "parameters": [7, {"in": "body"}, {"in": "query"}, {"name": "q", "in": "query", "type": "array", "items": 7}],
        "responses": {"200": 7, "x-note": "n"}, "consumes": 7, "produces": [7], "schemes": 7, "security": 7,
    }  # fmt: skip
    head = {"swagger": "2.0", "host": 7, "basePath": None, "securityDefinitions": [], "consumes": {}}
    content = json.dumps({**head, "paths": {"/t": {"post": odd, "parameters": {}}, "/u": {"get": {"responses": []}}}}).encode()
    operations = list(Reader(parse(content), {}).read())
    assert [set(each["input"]["properties"]) for each in operations] == [{"q", "body"}, set()]


# -- choosing operations


def large(count: int) -> bytes:
    paths = {
        f"/{'users' if n % 3 else 'groups'}/{n}": {"get": {"tags": [f"t{n % 10}"], "responses": {}}} for n in range(count)
    }
    return json.dumps({**HEAD, "paths": paths}).encode()


def test_too_many_operations_are_refused_with_their_tags(shop: Shop) -> None:
    shop.publish_bytes(large(MAX_OPERATIONS + 1))
    with pytest.raises(UnusableDocument) as refused:
        shop.actions()
    assert str(refused.value) == (
        "5001 operations are selected; an integration can have at most 5000: choose the operations you need with the "
        "settings only_tags and only_paths. Their tags: t0 (501), t1 (500), t2 (500), t3 (500), "
        "t4 (500), t5 (500), t6 (500), t7 (500) and 2 more."
    )


def test_schemas_of_very_many_operations_are_shorter() -> None:
    members = {f"m{n}": {"type": "string"} for n in range(300)}
    content = {"application/json": {"schema": {"type": "object", "properties": members}}}
    paths = {f"/t/{n}": {"get": {"responses": {"200": {"description": "", "content": {"$ref": "#/x"}}}}} for n in range(3000)}
    document = parse(json.dumps({**HEAD, "paths": paths, "x": content}).encode())
    few, many = (len(json.dumps(next(Reader(document, chosen).read())["output"])) for chosen in ({"only_paths": ["/t/0"]}, {}))
    assert many < few, "what goes beyond the bound suits any value"


def test_the_refusal_comes_before_any_operation_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: Any) -> Any:
        raise AssertionError("an operation was read")

    monkeypatch.setattr(Reader, "_action", read)
    with pytest.raises(UnusableDocument, match="5001 operations"):
        next(Reader(parse(large(MAX_OPERATIONS + 1)), {}).read())


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        ({"only_tags": ["t1"]}, 600),
        ({"only_tags": ["t1", "t2", "none"]}, 1200),
        ({"only_paths": ["/groups/"]}, 2000),
        ({"only_paths": ["/groups/0", "/users/1"]}, 2),
        ({"only_tags": ["t1"], "only_paths": ["/groups"]}, 200),
    ],
)
def test_operations_are_chosen_by_tags_and_paths(shop: Shop, chosen: dict[str, Any], count: int) -> None:
    shop.publish_bytes(large(6000))
    assert len(shop.actions(**chosen)) == count


def test_a_choice_without_operations_is_refused() -> None:
    with pytest.raises(UnusableDocument, match=r"leave none of the document's 20 operations. Their tags: t0 \(2\)"):
        list(Reader(parse(large(20)), {"only_tags": ["none"]}).read())
    content = json.dumps({**HEAD, "paths": {"/a": {"get": {}}}}).encode()
    with pytest.raises(UnusableDocument, match="They have no tags"):
        list(Reader(parse(content), {"only_paths": ["/b"]}).read())


def test_a_choice_avoids_what_cannot_be_converted() -> None:
    paths = {"/a": {"get": {"parameters": [LISTS]}}, "/b": {"get": {}}}
    content = json.dumps({"swagger": "2.0", "paths": paths}).encode()
    assert [each["name"] for each in Reader(parse(content), {"only_paths": ["/b"]}).read()] == ["get_b"]


def test_the_worker_gets_the_chosen_tags_and_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {}

    def run(_: str, settings_sent: dict[str, Any], *__: Any) -> Apart:
        options.update(settings_sent)
        return Apart(b'{"end": true, "memory_kb": 1}', False, "")

    monkeypatch.setattr(importing, "run_apart", run)
    with open_context(seconds=60) as ctx:
        importing.import_actions(b"{}", {"only_tags": ["a"], "only_paths": ["/b"], "credentials": {"key": "secret"}}, ctx)
    assert options == {"only_tags": ["a"], "only_paths": ["/b"]}
