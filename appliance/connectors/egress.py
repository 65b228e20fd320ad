"""Outbound network access: an HTTP client and a TCP dialler that resolve a name once, check every address and pin the one used."""

import contextlib
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property

import httpcore
import httpx

from appliance.connectors.contract import (
    AddressNotAllowed,
    ConfigError,
    ConnectorError,
    HttpAnswer,
    HttpRequest,
    Outcome,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.network.addresses import AllowRule, is_host_name, is_public, parse_address, parse_allow
from appliance.connectors.network.resolving import Resolver, ResolverThreads
from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

_MAX_REDIRECTS = 10
CLOSED = "none"  # an entry of `egress.allow` that overrides all others
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Marks every request that may reach a private network, so that endpoints open only to this machine can refuse integrations.
MARK = "Gos-Egress"
# The headers kept on a redirect to another origin: none of them can carry a credential.
_HARMLESS_HEADERS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
# Set by the client itself: accepting them from a connector would allow request smuggling.
_OWN_HEADERS = frozenset(
    {"accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "te", "trailer"}
    | {"transfer-encoding", "upgrade"}
)
# Servers keep idle connections for 5 s or longer; closing them earlier avoids sending a request on a connection that is closing.
_KEEP_IDLE_SECONDS = 3.0


def system_resolver(host: str, port: int) -> list[str]:
    """Return the addresses the operating system resolves a name to, in its order of preference."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


@dataclass(frozen=True)
class Egress:
    """The egress rules of one appliance, and connections within them.

    `ca_file` names a PEM file of certificate authorities trusted in addition to the public ones.  `closed` reaches nothing.
    """

    rules: tuple[AllowRule, ...] = ()
    resolver: Resolver = system_resolver
    max_answer_bytes: int = 10 * 1024 * 1024
    ca_file: str = ""
    closed: bool = False

    @classmethod
    def of(cls, allow: Iterable[str], ca_file: str = "") -> "Egress":
        """Parse the operator's `egress.allow`; ConfigInvalid names an entry or file that cannot be read."""
        allow = list(allow)
        if CLOSED in allow:
            return cls(ca_file=ca_file, closed=True)
        try:
            egress = cls(rules=parse_allow(allow), ca_file=ca_file)
        except ValueError as error:
            raise ConfigInvalid(Sentence("egress.allow: %(error)s", error=error)) from error
        if ca_file:
            _ = egress.tls
        return egress

    @cached_property
    def tls(self) -> ssl.SSLContext:
        """The TLS context that verifies certificates; cached, because building it takes tens of milliseconds."""
        context = httpx.create_ssl_context(trust_env=False)
        if self.ca_file:
            try:
                context.load_verify_locations(self.ca_file)
            except OSError as error:
                raise ConfigInvalid(Sentence(
                    "egress.ca_file: %(ca_file)s contains no readable certificates (%(error)s)", ca_file=self.ca_file, error=error
                )) from error
        return context

    def addresses(self, host: str, port: int, timeout: float | None) -> list[str]:
        """Resolve `host` once and return its addresses that may be reached on `port`.

        AddressNotAllowed when none may, TransientError when the name does not resolve in time.
        """
        if self.closed:
            raise AddressNotAllowed(Sentence(
                "The address %(host)s:%(port)s is not reachable from here: egress.allow is none.", host=host, port=port
            ))
        literal = parse_address(host)
        texts = [str(literal)] if literal is not None else self._resolve(host, port, timeout)
        allowed = [text for text in texts if self._is_allowed(host, text, port)]
        if not allowed:
            raise AddressNotAllowed(Sentence(
                "The address %(host)s:%(port)s is not reachable from here: it lies outside the public internet. If "
                "it is meant, the operator adds %(host)s:%(port)s to egress.allow.",
                host=host, port=port,
            ))
        return allowed

    def _is_allowed(self, host: str, text: str, port: int) -> bool:
        address = parse_address(text)
        if address is None:
            return False
        zoned = "%" in text
        return (is_public(address) and not zoned) or any(rule.matches(host, address, port) for rule in self.rules)

    def _resolve(self, host: str, port: int, timeout: float | None) -> list[str]:
        # The system's resolver takes no timeout; in a thread of its own, a silent name server delays the call only to its deadline.
        try:
            return _resolvers.resolve(self.resolver, host, port, timeout)
        except TimeoutError as error:
            raise TransientError(f"The name {host} was not resolved in time.") from error
        except (OSError, UnicodeError) as error:
            raise TransientError(f"The name {host} does not resolve; check the spelling and the name server.") from error

    def dial(self, host: str, port: int, timeout: float) -> socket.socket:
        """Connect a TCP socket to an allowed address of `host`; `timeout` in seconds covers the connection and is set on it."""
        until = time.monotonic() + timeout
        failure: OSError | None = None
        for address in self.addresses(host, port, timeout):
            try:
                return socket.create_connection((address, port), timeout=max(until - time.monotonic(), 0.001))
            except OSError as error:
                failure = error
        raise TransientError(f"{host}:{port} does not accept connections ({failure}).") from failure


_resolvers = ResolverThreads()
_deadline: ContextVar[float] = ContextVar("egress_deadline")
_sent: ContextVar[list[bool]] = ContextVar("egress_sent")


def _left(timeout: float | None) -> float:
    left = max(_deadline.get() - time.monotonic(), 0.001)
    return left if timeout is None else min(left, timeout)


class _DeadlineStream(httpcore.NetworkStream):
    """A connection whose reads and writes end at the running request's deadline, even when data arrives byte by byte."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if buffer:
            _sent.get()[0] = True
        self._inner.write(buffer, _left(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _DeadlineStream(self._inner.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> object:
        return self._inner.get_extra_info(info)


class _PinnedBackend(httpcore.NetworkBackend):
    """Connects to addresses that `Egress` resolved and checked, never to a name."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception | None = None
        for address in self._egress.addresses(host, port, _left(timeout)):
            try:
                return _DeadlineStream(self._backend.connect_tcp(address, port, _left(timeout), local_address, socket_options))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise TransientError(f"{host}:{port} does not accept connections ({failure}).") from failure

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        raise AddressNotAllowed("Connectors cannot use Unix sockets.")


class EgressClient:
    """The HTTP client of one integration; connections are not shared, so credentials cannot leak to another integration.

    Proxy settings and environment variables are ignored; cookies are not stored.
    """

    def __init__(self, egress: Egress) -> None:
        self._max_bytes = egress.max_answer_bytes
        self._marks = bool(egress.rules)
        self._pool = httpcore.ConnectionPool(
            ssl_context=egress.tls,
            max_connections=64,
            keepalive_expiry=_KEEP_IDLE_SECONDS,
            network_backend=_PinnedBackend(egress),
        )

    def send(self, request: HttpRequest, deadline: float, admit: Callable[[str], None] | None = None) -> HttpAnswer:
        """Send the request, follow redirects and return the response; ends at `deadline` (monotonic seconds).

        `admit` is called with each URL before anything is sent to it and raises one of the errors of `contract.Http` to refuse.
        """
        until = deadline if request.timeout is None else min(deadline, time.monotonic() + request.timeout)
        token = _deadline.set(until)
        performed = False
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                if admit is not None:
                    admit(request.url)
                answer = self._exchange(request)
                target = _redirect_target(request, answer)
                if target is None:
                    return answer
                following = _redirected(request, answer.status, target)
                performed = performed or following.method != request.method.upper()
                request = following
            raise SystemFailure(f"{request.url} redirects more than {_MAX_REDIRECTS} times.")
        except ConnectorError as error:
            # A POST answered with 303 See Other has been performed, even when following the redirect fails.
            error.outcome = "unknown" if performed else error.outcome
            raise
        finally:
            _deadline.reset(token)

    def _exchange(self, request: HttpRequest) -> HttpAnswer:
        built = build_request(request)
        cap = min(self._max_bytes, request.max_bytes or self._max_bytes)
        place = f"{built.url.scheme}://{built.url.netloc.decode('ascii')}"
        left = _left(None)
        token = _sent.set([False])
        try:
            with _transport_errors(place):
                answer = self._pool.handle_request(
                    httpcore.Request(
                        method=built.method,
                        url=_core_url(built.url),
                        headers=[*built.headers.raw, *self._mark(built.url)],
                        content=request.content,
                        extensions={"timeout": {"connect": left, "read": left, "write": left, "pool": left}},
                    )
                )
                with contextlib.closing(answer):
                    headers = {name.lower(): value for name, value in httpx.Headers(answer.headers).items()}
                    content = b"".join(_decoded(answer, headers.get("content-encoding", ""), cap, place))
        finally:
            _sent.reset(token)
        return HttpAnswer(answer.status, headers, content, str(built.url))

    def _mark(self, url: httpx.URL) -> list[tuple[bytes, bytes]]:
        address = parse_address(url.host)
        is_outside = not self._marks or (address is not None and is_public(address))
        return [] if is_outside else [(MARK.encode(), b"1")]

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


def _core_url(url: httpx.URL) -> httpcore.URL:
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def build_request(request: HttpRequest) -> httpx.Request:
    """Convert to an httpx request; ConfigError when it cannot be sent.

    The URL is parsed once, so the address that is checked is the one connected to.
    """
    url = _url(request)
    own = [name for name, _ in request.headers if name.lower() in _OWN_HEADERS or name.lower().startswith("proxy-")]
    if own:
        raise ConfigError(f"The header {own[0]} is set by the appliance itself; leave it out.")
    headers = [*request.headers, ("Accept-Encoding", "gzip")]
    if not any(name.lower() == "user-agent" for name, _ in headers):
        headers.append(("User-Agent", "gos-appliance"))
    try:
        return httpx.Request(request.method.upper(), url, headers=headers, content=request.content or None)
    except (UnicodeError, ValueError, TypeError) as error:
        raise ConfigError(f"The request cannot be sent: {error}") from error


def _url(request: HttpRequest) -> httpx.URL:
    try:
        url = httpx.URL(request.url)
        if request.params:
            url = url.copy_merge_params(list(request.params))
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise ConfigError(f"{request.url[:200]!r} is not a valid URL: {error}") from error
    host = url.raw_host.decode("ascii")
    if url.scheme not in ("http", "https") or url.userinfo or not (is_host_name(host) or parse_address(host)):
        raise ConfigError(f"{request.url[:200]!r} is not an http or https URL without user name and password.")
    return url


@contextlib.contextmanager
def _transport_errors(place: str) -> Iterator[None]:
    """Convert httpcore's exceptions to the contract's errors; once a byte has been sent, the outcome is unknown."""
    try:
        yield
    except httpcore.LocalProtocolError as error:
        raise ConfigError(f"The request to {place} cannot be sent: {error}") from error
    except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
        raise TransientError(f"{place} does not accept connections ({error}).") from error
    except httpcore.TimeoutException as error:
        raise TransientError(f"{place} did not answer in time.", outcome=_outcome()) from error
    except (httpcore.NetworkError, httpcore.ProtocolError) as error:
        raise TransientError(f"{place} closed the connection ({error}).", outcome=_outcome()) from error


def _outcome() -> Outcome:
    return "unknown" if _sent.get()[0] else "not_done"


def _decoded(answer: httpcore.Response, encoding: str, cap: int, place: str) -> Iterator[bytes]:
    """Yield the decompressed body in parts; SystemFailure when it exceeds `cap` bytes, TransientError after the deadline."""
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise SystemFailure(f"{place} responded in the unsupported encoding {encoding[:40]!r}.", outcome="unknown")
    inflater = zlib.decompressobj(wbits=31) if "gzip" in encoding else None
    left = cap
    for raw in answer.iter_stream():
        part = _inflate(inflater, raw, left + 1, place) if inflater else raw
        left -= len(part)
        if left < 0:
            raise SystemFailure(
                f"{place} responded with more than {cap // 1024} KiB. Request less data at once, with pages or a filter.",
                outcome="unknown",
                details={"status": answer.status},
            )
        if time.monotonic() > _deadline.get():
            raise TransientError(f"{place} did not finish its response in time.", outcome="unknown")
        yield part


def _inflate(inflater: "zlib._Decompress", raw: bytes, most: int, place: str) -> bytes:
    try:
        return inflater.decompress(raw, most)
    except zlib.error as error:
        raise SystemFailure(f"{place} sent a response that does not decompress.", outcome="unknown") from error


def _redirect_target(request: HttpRequest, answer: HttpAnswer) -> httpx.URL | None:
    location = answer.headers.get("location")
    if not request.follow_redirects or answer.status not in _REDIRECTS or not location:
        return None
    try:
        return httpx.URL(answer.url).join(location)
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise SystemFailure(f"{answer.url} redirects to an invalid address.", outcome="unknown") from error


def _redirected(request: HttpRequest, status: int, target: httpx.URL) -> HttpRequest:
    """Return the request for a redirect target (RFC 9110 § 15.4); its address is checked on connecting, like the first one."""
    source, method = _url(request), request.method.upper()
    if (source.scheme, target.scheme) == ("https", "http"):
        raise Rejected(Sentence("%(host)s redirects from https to http, which is refused.", host=source.host))
    headers, content = request.headers, request.content
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, content = "GET", b""
        headers = [pair for pair in headers if pair[0].lower() != "content-type"]
    if _origin(source) != _origin(target):
        if method not in ("GET", "HEAD"):
            raise Rejected(Sentence(
                "%(host)s redirects this %(method)s to %(host2)s; use that address directly.",
                host=source.host, method=method, host2=target.host,
            ))
        headers = [pair for pair in headers if pair[0].lower() in _HARMLESS_HEADERS]
    return replace(request, method=method, url=str(target), params=(), content=content, headers=headers)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)
