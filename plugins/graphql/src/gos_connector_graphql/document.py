"""Parses documents before they are sent, so that a read action cannot send a mutation."""

from dataclasses import dataclass

from appliance.connectors.contract import ConfigError

_MAX_TOKENS = 20_000


@dataclass(frozen=True)
class Operation:
    """The operation to run; `kind` is query, mutation or subscription."""

    kind: str
    name: str | None


def parse_operation(text: str, name: str | None) -> Operation:
    """The document's only operation, or the one called `name`; ConfigError when the document is invalid or ambiguous."""
    from graphql import GraphQLError, OperationDefinitionNode, Source, parse  # imported on use: it takes 4 MB

    try:
        document = parse(Source(text, "document"), no_location=False, max_tokens=_MAX_TOKENS)
    except GraphQLError as error:
        place = error.locations[0] if error.locations else None
        where = f" (line {place.line}, column {place.column})" if place else ""
        raise ConfigError(f"The document is not valid GraphQL{where}: {error.message}") from error
    except RecursionError as error:
        raise ConfigError("The document is nested too deeply.") from error
    operations = [
        Operation(node.operation.value, node.name.value if node.name else None)
        for node in document.definitions
        if isinstance(node, OperationDefinitionNode)
    ]
    matches = [each for each in operations if name is None or each.name == name]
    if not matches:
        raise ConfigError(f"The document has no operation {name!r}." if name else "The document has no operation.")
    if len(matches) > 1:
        raise ConfigError("The document has several operations; give the name of the one to run in `operation`.")
    return matches[0]
