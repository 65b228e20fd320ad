"""Typical refusals of operations where the usual ones (an unknown id, an unknown member) say less."""

from collections.abc import Callable

from tests.api.example import Example
from tests.api.resources import Resources

REFUSALS: dict[str, Callable[[Resources, Example], Example]] = {
    "create_entity": lambda tenant, example: Example(example.path, {"total": "five"}),
    "update_entity": lambda tenant, example: Example(example.path, {"total": "seven"}),
    "execute_process": lambda tenant, example: Example(example.path, example.body, {"expires_in": "soon"}),
    "list_executions": lambda tenant, example: Example(example.path, query={"since": "yesterday"}),
    "list_entities": lambda tenant, example: Example(example.path, query={"filter": '{"total": {"_above": 100}}'}),
    "query_entities": lambda tenant, example: Example(example.path, {"filter": {"amount": {"_gt": 0}}}),
    "issue_key": lambda tenant, example: Example(body={**example.body, "scopes": ["logs.read", "everything"]}),
}
