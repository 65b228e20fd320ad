"""What a service says of itself by introspection (GraphQL specification, October 2021, § 4), for people to read."""

from collections.abc import Mapping
from typing import Any

from appliance.connectors.contract import SystemFailure

# Seven wrappings: [[[T!]!]!]! is as deep as types go in practice.
_REFERENCE = "kind name" + " ofType { kind name" * 6 + " }" * 6
_ARGUMENT = f"name description defaultValue type {{ {_REFERENCE} }}"
_FIELD = f"name description isDeprecated type {{ {_REFERENCE} }} args {{ {_ARGUMENT} }}"

OPERATIONS = f"query Operations {{ __schema {{ queryType {{ fields {{ {_FIELD} }} }} mutationType {{ fields {{ {_FIELD} }} }} }} }}"
TYPE = (
    f"query Type($name: String!) {{ __type(name: $name) {{ kind name description fields {{ {_FIELD} }} "
    f"inputFields {{ {_ARGUMENT} }} enumValues {{ name }} possibleTypes {{ name }} }} }}"
)


def operations_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """`{queries, mutations}`, each a list of fields."""
    try:
        schema = data["__schema"]
        return {
            "queries": [_field(each) for each in (schema["queryType"] or {}).get("fields") or ()],
            "mutations": [_field(each) for each in (schema["mutationType"] or {}).get("fields") or ()],
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise _strange() from error


def type_of(data: Mapping[str, Any]) -> dict[str, Any] | None:
    """One type: its fields, what it takes, its values or its members; None when there is none of that name."""
    try:
        found = data["__type"]
        if found is None:
            return None
        told: dict[str, Any] = {"name": found["name"], "kind": found["kind"].lower(), **_described(found)}
        if found.get("fields"):
            told["fields"] = [_field(each) for each in found["fields"]]
        if found.get("inputFields"):
            told["takes"] = [_argument(each) for each in found["inputFields"]]
        if found.get("enumValues"):
            told["values"] = [each["name"] for each in found["enumValues"]]
        if found.get("possibleTypes"):
            told["members"] = [each["name"] for each in found["possibleTypes"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise _strange() from error
    return told


def _field(given: Mapping[str, Any]) -> dict[str, Any]:
    told = {"name": given["name"], "type": _written(given["type"]), "arguments": [_argument(each) for each in given["args"]]}
    return {**told, **_described(given), **({"deprecated": True} if given.get("isDeprecated") else {})}


def _argument(given: Mapping[str, Any]) -> dict[str, Any]:
    told = {"name": given["name"], "type": _written(given["type"])}
    return {**told, **_described(given), **({"default": given["defaultValue"]} if given.get("defaultValue") is not None else {})}


def _described(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": str(given["description"])[:2000]} if given.get("description") else {}


def _written(reference: Mapping[str, Any]) -> str:
    """A type as a document writes it: `[Product!]!`."""
    match reference["kind"]:
        case "NON_NULL":
            return f"{_written(reference['ofType'])}!"
        case "LIST":
            return f"[{_written(reference['ofType'])}]"
    return str(reference["name"])


def _strange() -> SystemFailure:
    return SystemFailure("The service's answer about itself is not what GraphQL's introspection gives.")
