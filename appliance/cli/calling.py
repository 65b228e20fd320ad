"""Calls to a running appliance: by `--url` and GOS_API_KEY, or with the first run's key of the data folder."""

import argparse
import json
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from appliance.core.config import Config, environment
from appliance.core.errors import ConnectorFailed, Detail, InvalidRequest, MissingApiKey

SECONDS = 90.0


class Refused(InvalidRequest):
    """What the appliance, or a proxy before it, answered instead of success, with this status."""

    def __init__(self, answered: int, message: str, details: Sequence[Detail] = (), headers: Mapping[str, str] | None = None):
        super().__init__(message, details=details, headers=headers)
        self.answered = answered


def add_connection(parser: argparse.ArgumentParser, *more_names: str) -> None:
    """The flags every command that calls an appliance has."""
    parser.add_argument(
        "--url", *more_names, dest="url", help="the tenant's address (default: GOS_URL, or the appliance of the data folder)"
    )
    parser.add_argument("--ca-file", type=Path, help="certificate authority to trust besides the system's")


@dataclass(frozen=True)
class Event:
    """One server-sent event: its JSON, and the id to go on behind, if it has one."""

    id: str
    data: Any


class Caller:
    """One tenant's API."""

    def __init__(self, client: httpx.Client, extensions: Mapping[str, Any]) -> None:
        self._client = client
        self._extensions = dict(extensions)

    def call(self, method: str, path: str, **request: Any) -> httpx.Response:
        """The answer of `/api/v1<path>`; Refused with the appliance's own sentence and details."""
        try:
            response = self._client.request(method, f"/api/v1{path}", extensions=self._extensions, **request)
        except httpx.HTTPError as error:
            raise _unreachable(self._client, error) from error
        _refuse(response)
        return response

    def data(self, method: str, path: str, **request: Any) -> Any:
        """`data` of the answer."""
        return self.call(method, path, **request).json()["data"]

    def events(self, path: str, params: Mapping[str, Any], last: str = "") -> Iterator["Event | None"]:
        """Server-sent events behind that with the id `last` until the stream ends; None for a sign of life between them."""
        timeout = httpx.Timeout(SECONDS, read=60.0)  # the appliance says something every 15 s
        asked: dict[str, Any] = {"params": dict(params), "headers": {"Last-Event-ID": last} if last else {}, "timeout": timeout}
        try:
            with self._client.stream("GET", f"/api/v1{path}", extensions=self._extensions, **asked) as response:
                if response.is_error:
                    response.read()
                _refuse(response)
                yield from _read_events(response.iter_bytes())
        except httpx.HTTPError as error:
            raise _unreachable(self._client, error) from error


def _read_events(pieces: Iterable[bytes]) -> Iterator["Event | None"]:
    """The events that are there whole.  Lines end where the appliance ends them: a text may hold other ends of lines."""
    rest, event_id, data = b"", "", b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            name, _, value = line.partition(b":")
            if name == b"id":
                event_id = value.strip().decode()
            elif name == b"data":
                data = value
            elif line and not name:
                yield None
            elif not line and data:
                yield Event(event_id, json.loads(data))
                event_id, data = "", b""


def _unreachable(client: httpx.Client, error: httpx.HTTPError) -> ConnectorFailed:
    reason = str(error) or type(error).__name__
    return ConnectorFailed(f"{client.base_url} does not answer ({reason}); `gos serve` starts the appliance of a data folder")


def _refuse(response: httpx.Response) -> None:
    if not response.is_error:
        return
    try:
        error = response.json()["error"]
        details = [Detail(each["pointer"], each["code"], each["message"]) for each in error.get("details", [])]
        again = {name: response.headers[name] for name in ("Retry-After",) if name in response.headers}
        raise Refused(response.status_code, error["message"], details, again)
    except (ValueError, KeyError, TypeError) as fault:
        status = response.status_code
        raise Refused(status, f"{response.url.host} answered {status}; is it the address of an appliance?") from fault


@contextmanager
def connected(args: argparse.Namespace) -> Iterator[Caller]:
    """A caller for the appliance the flags, the environment or the data folder name."""
    url = args.url or environment("GOS_URL")
    key = environment("GOS_API_KEY")
    trusted: Path | None = args.ca_file
    if not url:
        config: Config = args.load()
        first = _first_run(config)
        url, key = first["base_url"], key or first["api_key"]
        own = config.data / "tls" / "ca.pem"
        trusted = trusted or (own if own.exists() else None)
    if not key:
        raise MissingApiKey("set GOS_API_KEY to a key of that tenant; `gos key add` issues one")
    base, headers, extensions = _address(url)
    # An appliance on this machine is reached directly, whatever proxy the environment names for the world.
    direct = urlsplit(base).hostname in ("127.0.0.1", "::1", "localhost")
    context = ssl.create_default_context(cafile=str(trusted) if trusted else None)
    sent = {"X-API-Key": key, **headers}
    with httpx.Client(base_url=base, headers=sent, verify=context, timeout=SECONDS, trust_env=not direct) as client:
        yield Caller(client, extensions)


def _first_run(config: Config) -> dict[str, str]:
    path = config.data / "first-run.json"
    if not path.is_file():
        raise MissingApiKey(f"there is no {path}; give --url and GOS_API_KEY, or --data with the folder of an appliance")
    found: dict[str, str] = json.loads(path.read_text("utf8"))
    return found


def _address(url: str) -> tuple[str, dict[str, str], dict[str, Any]]:
    """Where to connect, with which Host: not every resolver knows *.localhost, which is always this machine."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(f"{url!r} is not an address such as https://acme.example.com")
    if not parts.hostname.endswith(".localhost"):
        return url.rstrip("/"), {}, {}
    port = f":{parts.port}" if parts.port else ""
    base = urlunsplit((parts.scheme, f"127.0.0.1{port}", "", "", ""))
    return base, {"Host": parts.netloc}, {"sni_hostname": parts.hostname}
