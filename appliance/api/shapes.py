"""The shapes of answers for those who answer by another road than HTTP: their schemas, and what makes them."""

from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter

from appliance.agents.tools import Shape, Shapes

from .documents.documents import DocumentView, document_view
from .frame.openapi import AnswerSchemas
from .frame.routing import View
from .integrations.integrations import PreviewView, preview_view
from .monitor.logs import LineView, line_view
from .processes.execution_views import ExecutionView, execution_view
from .webapps.publishing import WebAppPublicationView, publication_view
from .webapps.webapps import WebAppVersionView, version_view


def make_shapes() -> Shapes:
    """What the tools of CONTRACT § 12 answer in."""
    return Shapes(
        execution=_shape(ExecutionView, execution_view), line=_shape(LineView, line_view),
        document=_shape(DocumentView, document_view), version=_shape(WebAppVersionView, version_view),
        publication=_shape(WebAppPublicationView, publication_view), preview=_shape(PreviewView, preview_view),
    )  # fmt: skip


def _shape(view: type[View], make: Callable[..., View | None]) -> Shape:
    adapter = TypeAdapter(view)

    def show(*given: Any) -> dict[str, Any]:
        made = make(*given)
        if made is None:
            raise ValueError(f"there is no {view.__name__} of this")
        shown: dict[str, Any] = adapter.dump_python(made, mode="json", exclude_none=True)
        return shown

    return Shape(adapter.json_schema(mode="serialization", schema_generator=AnswerSchemas), show)
