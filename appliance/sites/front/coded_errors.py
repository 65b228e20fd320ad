"""Turns coded errors on the content hosts into responses, as long as the response has not started."""

from appliance.core.errors import ApplianceError
from appliance.web import App, Receive, Scope, Send, TrackedSend

from .readers import Readers


class CodedErrors:
    """Passes requests on; a coded error (blob store not reachable, damaged content) becomes the response.

    An error after the response has started closes the connection, so that a truncated body is not taken for a complete one.
    """

    def __init__(self, app: App, readers: Readers) -> None:
        self._app = app
        self._readers = readers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tracked = TrackedSend(send)
        try:
            await self._app(scope, receive, tracked)
        except ApplianceError as error:
            if tracked.started:
                raise
            await self._readers.refuse(error, scope, send)
