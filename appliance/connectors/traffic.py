"""Counts the network traffic of one connector call, for its record: hosts, requests and bytes."""

import threading
from typing import Any

import httpx

from appliance.connectors.contract import HttpAnswer, HttpRequest

_MOST_HOSTS = 8


class Traffic:
    """Traffic counters, safe for several threads.  Bytes are those of HTTP bodies; for a TCP socket only the host is recorded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: dict[str, None] = {}
        self._requests = self._sent = self._received = 0

    def note_dial(self, host: str, port: int) -> None:
        """Record that a TCP connection was requested."""
        with self._lock:
            self._note_host(f"{host}:{port}")

    def note_request(self, request: HttpRequest) -> None:
        """Record a request that is about to be sent."""
        with self._lock:
            self._requests += 1
            self._sent += len(request.content)
            self._note_host(_host_of(request.url))

    def note_answer(self, answer: HttpAnswer) -> None:
        """Record a response, whose host may differ from the request's after a redirect."""
        with self._lock:
            self._received += len(answer.content)
            self._note_host(_host_of(answer.url))

    def _note_host(self, host: str) -> None:
        if host and len(self._hosts) < _MOST_HOSTS:
            self._hosts[host[:300]] = None

    def to_record(self) -> dict[str, Any] | None:
        """Return `{hosts, requests?, sent_bytes?, received_bytes?}` for the record; None when the call used no network."""
        with self._lock:
            if not self._hosts:
                return None
            record: dict[str, Any] = {"hosts": list(self._hosts)}
            if self._requests:
                record |= {"requests": self._requests, "sent_bytes": self._sent, "received_bytes": self._received}
            return record


def _host_of(url: str) -> str:
    try:
        return httpx.URL(url).netloc.decode("ascii", "replace")
    except httpx.InvalidURL:
        return ""
