"""The REST views for other transports, such as MCP: their JSON Schemas and the functions that build them."""

from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter

from appliance.agents.tools import Shape, Shapes

from .documents.document_views import DocumentView, document_view
from .frame.routing import View
from .frame.schemas import AnswerSchemas
from .integrations.integration_views import PreviewView, preview_view
from .monitor.log_views import LineView, line_view
from .processes.execution_views import ExecutionView, execution_view
from .webapps.publishing import WebAppPublicationView, publication_view
from .webapps.webapp_views import WebAppVersionView, version_view


def make_shapes() -> Shapes:
    """The shapes in which the tools of docs/contract.md § 12 answer."""
    return Shapes(
        execution=_shape(ExecutionView, execution_view), line=_shape(LineView, line_view),
        document=_shape(DocumentView, document_view), version=_shape(WebAppVersionView, version_view),
        publication=_shape(WebAppPublicationView, publication_view), preview=_shape(PreviewView, preview_view),
    )  # fmt: skip


def _shape(view: type[View], build: Callable[..., View | None]) -> Shape:
    adapter = TypeAdapter(view)

    def show(*arguments: Any) -> dict[str, Any]:
        result = build(*arguments)
        if result is None:
            raise ValueError(f"{view.__name__} has no view of this value")
        document: dict[str, Any] = adapter.dump_python(result, mode="json", exclude_none=True)
        return document

    return Shape(adapter.json_schema(mode="serialization", schema_generator=AnswerSchemas), show)
