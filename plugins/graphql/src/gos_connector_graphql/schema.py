"""Descriptions of a service's schema from introspection (GraphQL specification, October 2021, § 4), for people to read."""

from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import SystemFailure

# Seven levels: types such as [[[T!]!]!]! are the deepest in practice.
_REFERENCE = "kind name" + " ofType { kind name" * 6 + " }" * 6
_ARGUMENT = f"name description defaultValue type {{ {_REFERENCE} }}"
_FIELD = f"name description isDeprecated type {{ {_REFERENCE} }} args {{ {_ARGUMENT} }}"

OPERATIONS = f"query Operations {{ __schema {{ queryType {{ fields {{ {_FIELD} }} }} mutationType {{ fields {{ {_FIELD} }} }} }} }}"
TYPE = (
    f"query Type($name: String!) {{ __type(name: $name) {{ kind name description fields {{ {_FIELD} }} "
    f"inputFields {{ {_ARGUMENT} }} enumValues {{ name }} possibleTypes {{ name }} }} }}"
)


def describe_operations(data: Mapping[str, Any]) -> dict[str, Any]:
    """`{queries, mutations}`, each a list of described fields."""
    try:
        schema = data["__schema"]
        return {
            "queries": [_field(each) for each in (schema["queryType"] or {}).get("fields") or ()],
            "mutations": [_field(each) for each in (schema["mutationType"] or {}).get("fields") or ()],
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise _invalid_introspection() from error


def describe_type(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """A type with its fields, input fields (`takes`), enum values or members; None when it does not exist."""
    try:
        source = data["__type"]
        if source is None:
            return None
        view: dict[str, Any] = {"name": source["name"], "kind": source["kind"].lower(), **_description(source)}
        if source.get("fields"):
            view["fields"] = [_field(each) for each in source["fields"]]
        if source.get("inputFields"):
            view["takes"] = [_argument(each) for each in source["inputFields"]]
        if source.get("enumValues"):
            view["values"] = [each["name"] for each in source["enumValues"]]
        if source.get("possibleTypes"):
            view["members"] = [each["name"] for each in source["possibleTypes"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise _invalid_introspection() from error
    return view


def _field(source: Mapping[str, Any]) -> dict[str, Any]:
    view = {"name": source["name"], "type": _format_type(source["type"]), "arguments": [_argument(each) for each in source["args"]]}
    return {**view, **_description(source), **({"deprecated": True} if source.get("isDeprecated") else {})}


def _argument(source: Mapping[str, Any]) -> dict[str, Any]:
    view = {"name": source["name"], "type": _format_type(source["type"])}
    default = source.get("defaultValue")
    return {**view, **_description(source), **({"default": default} if default is not None else {})}


def _description(source: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": str(source["description"])[:2000]} if source.get("description") else {}


def _format_type(reference: Mapping[str, Any]) -> str:
    """A type reference in GraphQL notation: `[Product!]!`."""
    match reference["kind"]:
        case "NON_NULL":
            return f"{_format_type(reference['ofType'])}!"
        case "LIST":
            return f"[{_format_type(reference['ofType'])}]"
    return str(reference["name"])


def _invalid_introspection() -> SystemFailure:
    return SystemFailure("The service's introspection response does not follow the GraphQL specification.")
