"""JSON Schema 2020-12 validation of all outside data: inputs, people's answers, tools, connectors and models.

`schema` compiles and validates, and lists what the library does not bound; `graph` finds the subschemas, `patterns` and `costs`
estimate what they cost, `values` how much work a value causes, and `checking` hands expensive checks to a worker process.
"""

from .checking import Findings, OutOfBounds, Question, Worker, register_worker, withdraw_worker
from .schema import Schema, SchemaInvalid, compile_schema, pointer_token

__all__ = [
    "Findings", "OutOfBounds", "Question", "Schema", "SchemaInvalid", "Worker", "compile_schema", "pointer_token",
    "register_worker", "withdraw_worker",
]  # fmt: skip
