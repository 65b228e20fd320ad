"""Defects that the long fuzz must notice."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.documents import Documents
from appliance.tenants import service


@contextmanager
def _replaced(replacement: Callable[..., Any]) -> Iterator[None]:
    original = Documents.get_document
    Documents.get_document = replacement  # type: ignore[method-assign]
    try:
        yield
    finally:
        Documents.get_document = original  # type: ignore[method-assign]


def leak() -> AbstractContextManager[None]:
    """A document is looked up at the other tenant, too."""
    original = Documents.get_document

    def get_anyones(self: Documents, scope: TenantScope, document_id: str) -> Any:
        try:
            return original(self, scope, document_id)
        except NotFound:
            return original(self, service.system_scope("globex"), document_id)

    return _replaced(get_anyones)


def fault() -> AbstractContextManager[None]:
    """A document that is unknown ends in an error that nobody expected."""
    original = Documents.get_document

    def divide(self: Documents, scope: TenantScope, document_id: str) -> Any:
        try:
            return original(self, scope, document_id)
        except NotFound:
            return 1 // 0

    return _replaced(divide)


@contextmanager
def none() -> Iterator[None]:
    """No defect."""
    yield


CONTROLS: dict[str, Callable[[], AbstractContextManager[None]]] = {"none": none, "leak": leak, "fault": fault}
