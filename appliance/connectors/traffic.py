"""What one connector call came past on its way: hosts, requests and bytes, for its record."""

import threading
from typing import Any

import httpx

from appliance.connectors.contract import HttpAnswer, HttpRequest

_MOST_HOSTS = 8


class Traffic:
    """Counts; safe to use from several threads.  Bytes are those of HTTP bodies; of a dialled socket only the host is known."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: dict[str, None] = {}
        self._requests = self._sent = self._received = 0

    def note_dial(self, host: str, port: int) -> None:
        """A socket to this place was asked for."""
        with self._lock:
            self._note_host(f"{host}:{port}")

    def note_request(self, request: HttpRequest) -> None:
        """A request is about to be sent."""
        with self._lock:
            self._requests += 1
            self._sent += len(request.content)
            self._note_host(_host_of(request.url))

    def note_answer(self, answer: HttpAnswer) -> None:
        """An answer came, perhaps from where a redirect led."""
        with self._lock:
            self._received += len(answer.content)
            self._note_host(_host_of(answer.url))

    def _note_host(self, host: str) -> None:
        if host and len(self._hosts) < _MOST_HOSTS:
            self._hosts[host[:300]] = None

    def told(self) -> dict[str, Any] | None:
        """As it is recorded: `{hosts, requests?, sent_bytes?, received_bytes?}`; None when the call came past nothing."""
        with self._lock:
            if not self._hosts:
                return None
            told: dict[str, Any] = {"hosts": list(self._hosts)}
            if self._requests:
                told |= {"requests": self._requests, "sent_bytes": self._sent, "received_bytes": self._received}
            return told


def _host_of(url: str) -> str:
    try:
        return httpx.URL(url).netloc.decode("ascii", "replace")
    except httpx.InvalidURL:
        return ""
