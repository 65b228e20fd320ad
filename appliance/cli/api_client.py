"""Calls a running appliance: the one of `--url` with GOS_API_KEY, or that of the data folder with the first run's key."""

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
    """An error response, with its status, of the appliance or of a proxy in front of it."""

    def __init__(self, answered: int, message: str, details: Sequence[Detail] = (), headers: Mapping[str, str] | None = None):
        super().__init__(message, details=details, headers=headers)
        self.answered = answered


def add_connection(parser: argparse.ArgumentParser, *more_names: str) -> None:
    """Add the flags of every command that calls an appliance."""
    parser.add_argument(
        "--url", *more_names, dest="url", help="the tenant's address (default: GOS_URL, or the appliance of the data folder)"
    )
    parser.add_argument("--ca-file", type=Path, help="a certificate authority to trust, besides the system's")


@dataclass(frozen=True)
class Event:
    """One server-sent event: its data, and its id, if any, with which to resume."""

    id: str
    data: Any


class Caller:
    """A client for one tenant's API."""

    def __init__(self, client: httpx.Client, extensions: Mapping[str, Any]) -> None:
        self._client = client
        self._extensions = dict(extensions)

    def call(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Call `/api/v1<path>`; Refused with the appliance's own message and details if it answers with an error."""
        try:
            response = self._client.request(method, f"/api/v1{path}", extensions=self._extensions, **request)
        except httpx.HTTPError as error:
            raise _unreachable(self._client, error) from error
        _raise_refused(response)
        return response

    def data(self, method: str, path: str, **request: Any) -> Any:
        """Call `/api/v1<path>` and return the `data` of the answer."""
        return self.call(method, path, **request).json()["data"]

    def events(self, path: str, params: Mapping[str, Any], last: str = "") -> Iterator["Event | None"]:
        """Yield server-sent events after the id `last` until the stream ends, and None for each heartbeat."""
        timeout = httpx.Timeout(SECONDS, read=60.0)  # the appliance sends a heartbeat every 15 s
        options: dict[str, Any] = {"params": dict(params), "headers": {"Last-Event-ID": last} if last else {}, "timeout": timeout}
        try:
            with self._client.stream("GET", f"/api/v1{path}", extensions=self._extensions, **options) as response:
                if response.is_error:
                    response.read()
                _raise_refused(response)
                yield from _read_events(response.iter_bytes())
        except httpx.HTTPError as error:
            raise _unreachable(self._client, error) from error


def _read_events(pieces: Iterable[bytes]) -> Iterator["Event | None"]:
    """Yield complete events.  Lines end only at \\n, as the appliance ends them: a text may contain other line endings."""
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


def _raise_refused(response: httpx.Response) -> None:
    if not response.is_error:
        return
    try:
        error = response.json()["error"]
        details = [Detail(each["pointer"], each["code"], each["message"]) for each in error.get("details", [])]
        retry_headers = {name: response.headers[name] for name in ("Retry-After",) if name in response.headers}
        raise Refused(response.status_code, error["message"], details, retry_headers)
    except (ValueError, KeyError, TypeError) as fault:
        status = response.status_code
        raise Refused(status, f"{response.url.host} answered {status}; check that this is the address of an appliance") from fault


@contextmanager
def connected(args: argparse.Namespace) -> Iterator[Caller]:
    """A caller for the appliance given by flags, environment or data folder."""
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
        raise MissingApiKey("GOS_API_KEY is not set; set it to a key of that tenant, which `gos key add` issues")
    base, headers, extensions = _address(url)
    # An appliance on this machine is reached directly, even if the environment configures a proxy.
    direct = urlsplit(base).hostname in ("127.0.0.1", "::1", "localhost")
    context = ssl.create_default_context(cafile=str(trusted) if trusted else None)
    sent = {"X-API-Key": key, **headers}
    with httpx.Client(base_url=base, headers=sent, verify=context, timeout=SECONDS, trust_env=not direct) as client:
        yield Caller(client, extensions)


def _first_run(config: Config) -> dict[str, str]:
    path = config.data / "first-run.json"
    if not path.is_file():
        raise MissingApiKey(f"there is no {path}; set --url and GOS_API_KEY, or --data to the folder of an appliance")
    first_run: dict[str, str] = json.loads(path.read_text("utf8"))
    return first_run


def _address(url: str) -> tuple[str, dict[str, str], dict[str, Any]]:
    """The base address, headers and extensions to connect with: *.localhost is this machine, but not every resolver knows it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidRequest(f"{url!r} is not an address such as https://acme.example.com")
    if not parts.hostname.endswith(".localhost"):
        return url.rstrip("/"), {}, {}
    port = f":{parts.port}" if parts.port else ""
    base = urlunsplit((parts.scheme, f"127.0.0.1{port}", "", "", ""))
    return base, {"Host": parts.netloc}, {"sni_hostname": parts.hostname}
