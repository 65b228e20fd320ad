"""Around the content hosts: what goes wrong before an answer has begun is told with its code, not as a failure of the server."""

from appliance.core.errors import ApplianceError

from .answers import Answering, App, Receive, Scope, Send, refuse


class CodedErrors:
    """Passes requests on; an error with a code (a blob store that does not answer, a damaged content) becomes the answer.

    One that comes when bytes have left already ends the connection, so that nobody takes a part for the whole.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answering = Answering(send)
        try:
            await self._app(scope, receive, answering)
        except ApplianceError as error:
            if answering.begun:
                raise
            await refuse(send, error, scope["gos.request_id"])
