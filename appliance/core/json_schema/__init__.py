"""JSON Schema 2020-12 for everything that judges data from outside: inputs, answers of people, tools, connectors, models.

`schema` compiles and validates, and says what the library cannot bound; `graph` finds the subschemas, `patterns` and `costs`
what they cost, `values` how much work a value makes, and `checking` where it is done when that is much.
"""

from .checking import Findings, OutOfBounds, Question, Worker, register_worker, withdraw_worker
from .schema import Schema, SchemaInvalid, compile_schema, pointer_token

__all__ = [
    "Findings", "OutOfBounds", "Question", "Schema", "SchemaInvalid", "Worker", "compile_schema", "pointer_token",
    "register_worker", "withdraw_worker",
]  # fmt: skip
