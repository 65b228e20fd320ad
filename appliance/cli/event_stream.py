"""Follows server-sent events of an appliance, reconnecting after lost connections."""

import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from appliance.core.errors import ConnectorFailed

from .api_client import Caller, Refused
from .output import print_error

RETRY_SECONDS = 2.0
# Statuses that an appliance which is starting or stopping, or a proxy in front of it, answers temporarily.
_LATER = (429, 502, 503, 504)
_pause = threading.Event()


def follow(caller: Caller, path: str, params: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the data of each event; after a stream breaks or ends, a new one resumes after the last event.

    A connection problem is printed once on standard error, and so is its end.  Refused when the appliance rejects the caller,
    such as after its key has ended.
    """
    last, problem = "", ""
    while True:
        try:
            for event in caller.events(path, params, last):
                if problem:
                    print("gos: connected again", file=sys.stderr, flush=True)
                    problem = ""
                if event is not None:
                    last = event.id or last
                    yield event.data
        except (ConnectorFailed, Refused) as error:
            if isinstance(error, Refused) and error.answered not in _LATER:
                raise
            if not problem:
                print_error(error)
            problem = error.message
        _pause.wait(RETRY_SECONDS)
