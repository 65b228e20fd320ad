"""Server-sent events of an appliance, followed over lost connections."""

import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from appliance.core.errors import ConnectorFailed

from .calling import Caller, Refused
from .output import tell_error

RETRY_SECONDS = 2.0
# What an appliance that starts or stops, or a proxy before it, answers for a while.
_LATER = (429, 502, 503, 504)
_pause = threading.Event()


def follow(caller: Caller, path: str, params: Mapping[str, Any]) -> Iterator[Any]:
    """The data of each event; a stream that breaks or ends goes on behind the last one that came.

    What is in the way is told once on standard error, and so is its end.  Refused when the appliance turns the caller away,
    such as when its key has ended.
    """
    last, said = "", ""
    while True:
        try:
            for event in caller.events(path, params, last):
                if said:
                    print("gos: connected again", file=sys.stderr, flush=True)
                    said = ""
                if event is not None:
                    last = event.id or last
                    yield event.data
        except (ConnectorFailed, Refused) as error:
            if isinstance(error, Refused) and error.answered not in _LATER:
                raise
            if not said:
                tell_error(error)
            said = error.message
        _pause.wait(RETRY_SECONDS)
