"""The schemas of bodies, queries and answers in the OpenAPI document, from their pydantic types."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

Mode = Literal["validation", "serialization"]
_REF = "#/components/schemas/{model}"


class AnswerSchemas(GenerateJsonSchema):
    """Makes members with a default optional, because answers omit members that are null, and keeps their descriptions on top."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        if self.mode == "serialization" and "default" in field["schema"]:
            return False
        return super().field_is_required(field, total)

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        """As inherited, with the description of a described type on the member itself, where explorers show it."""
        result = dict(super().nullable_schema(schema))
        choices = [dict(choice) for choice in result.get("anyOf", ())]
        described = [choice for choice in choices if "description" in choice]
        if len(choices) == 2 and len(described) == 1:
            result |= {"anyOf": choices, "description": described[0].pop("description")}
        return result


class _UntitledSchemas(AnswerSchemas):
    def field_title_should_be_set(self, schema: Any) -> bool:
        """Never: a title would only repeat the member's name."""
        return False


class Schemas:
    """The components of the document that are schemas: `initial` ones, and the models of what was referred to."""

    def __init__(self, initial: Mapping[str, Any]) -> None:
        self._schemas = dict(initial)
        self._answers: set[str] = set()
        self._requests: set[str] = set()

    def reference(self, kind: Any, mode: Mode) -> dict[str, Any]:
        """The schema of a type; of a model, a reference to its component."""
        schema = self.schema(kind, mode)
        if not is_model(kind):
            return schema
        self._add(kind.__name__, schema, mode)
        return reference_to(kind.__name__)

    def schema(self, kind: Any, mode: Mode) -> dict[str, Any]:
        """The schema of a type, whose inner models become components."""
        schema = TypeAdapter(kind).json_schema(ref_template=_REF, mode=mode, schema_generator=_UntitledSchemas)
        for name, definition in schema.pop("$defs", {}).items():
            self._add(name, definition, mode)
        return schema

    def add_once(self, name: str, make: Callable[[], dict[str, Any]]) -> None:
        """Add a component, unless there is one of this name."""
        if name not in self._schemas:
            self._schemas[name] = make()

    def _add(self, name: str, definition: Mapping[str, Any], mode: Mode) -> None:
        schema = {keyword: value for keyword, value in definition.items() if keyword != "title"}
        if self._schemas.setdefault(name, schema) != schema:
            raise ValueError(f"two models are called {name}; rename one, because both are in the OpenAPI document")
        (self._answers if mode == "serialization" else self._requests).add(name)

    def components(self) -> dict[str, Any]:
        """All schemas by name.  Members of answers are never null: those without a value are omitted."""
        return {
            name: _without_nulls(schema) if name in self._answers - self._requests else schema
            for name, schema in self._schemas.items()
        }


def is_model(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, BaseModel)


def reference_to(name: str) -> dict[str, Any]:
    return {"$ref": _REF.format(model=name)}


def _without_nulls(schema: Mapping[str, Any]) -> dict[str, Any]:
    if "properties" not in schema:
        return dict(schema)
    return {**schema, "properties": {name: _without_null(member) for name, member in schema["properties"].items()}}


def _without_null(member: Mapping[str, Any]) -> dict[str, Any]:
    if member.get("default", ...) is not None:
        return dict(member)
    choices = [choice for choice in member.get("anyOf", ()) if choice != {"type": "null"}]
    rest = {keyword: value for keyword, value in member.items() if keyword not in ("anyOf", "default")}
    if len(choices) == 1:
        return {**choices[0], **rest}
    return {"anyOf": choices, **rest} if choices else rest
