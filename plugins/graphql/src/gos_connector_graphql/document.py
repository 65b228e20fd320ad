"""What a document would do, known before it is sent: a reading call must not carry something that changes."""

from dataclasses import dataclass

from appliance.connectors.contract import ConfigError

_MOST_TOKENS = 20_000


@dataclass(frozen=True)
class Operation:
    """The operation that would run; `kind` is query, mutation or subscription."""

    kind: str
    name: str | None


def operation_of(text: str, name: str | None) -> Operation:
    """The document's operation, or the one of that name; ConfigError when the document is wrong or leaves it open."""
    from graphql import GraphQLError, OperationDefinitionNode, Source, parse  # 4 MB, for those who speak GraphQL

    try:
        document = parse(Source(text, "document"), no_location=False, max_tokens=_MOST_TOKENS)
    except GraphQLError as error:
        place = error.locations[0] if error.locations else None
        where = f" (line {place.line}, column {place.column})" if place else ""
        raise ConfigError(f"The document is not GraphQL{where}: {error.message}") from error
    except RecursionError as error:
        raise ConfigError("The document is nested too deep.") from error
    found = [
        Operation(node.operation.value, node.name.value if node.name else None)
        for node in document.definitions
        if isinstance(node, OperationDefinitionNode)
    ]
    named = [each for each in found if name is None or each.name == name]
    if not named:
        raise ConfigError(f"The document has no operation {name!r}." if name else "The document has no operation.")
    if len(named) > 1:
        raise ConfigError("The document has several operations; name the one to run in `operation`.")
    return named[0]
