"""Hypercorn's settings: timeouts, listeners, and HTTPS with a certificate per host that is reloaded without a restart."""

import logging
import os
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hypercorn.config import Config as HypercornConfig

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.scheduling import PeriodicJob, Scheduler
from appliance.webapps.certificates import Certificate, Certificates, Pair, internal_certificate

from .request_heads import MOST_HEAD_BYTES

log = logging.getLogger(__name__)
RELOAD_SECONDS = 3.0


@dataclass(frozen=True)
class TlsOffer:
    """The certificate and TLS context for a host."""

    certificate: Certificate
    context: ssl.SSLContext


class ServerConfig(HypercornConfig):
    """Hypercorn's settings, extended with the certificates of all hosts and a fallback for the others."""

    fallback: Callable[[], tuple[Path, Path]] | None = None
    certificates: Certificates | None = None

    def __init__(self) -> None:
        super().__init__()
        self._context: ssl.SSLContext | None = None
        self._loaded: tuple[int, int] | None = None
        self._offers: dict[str, TlsOffer] = {}  # by name as sent by clients, including wildcards
        self._names_by_host: dict[str, tuple[str, ...]] = {}  # names by host
        self._stamps: dict[str, str] = {}
        self._lock = threading.Lock()

    @property
    def ssl_enabled(self) -> bool:
        return self.fallback is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        if self.fallback is None:
            return None
        with self._lock:
            context = self._new_context()
            self._load_fallback(context)
            self._load_changed()
            context.sni_callback = self._choose
            self._context = context
        return context

    def _new_context(self) -> ssl.SSLContext:
        context = super().create_ssl_context()  # sets ciphers, TLS 1.2 as the minimum, and ALPN
        if context is None:
            raise RuntimeError("TLS is off")
        return context

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        """Choose the certificate of the host named in the handshake (SNI), or the fallback."""
        offer = self.offer(name or "")
        if offer is not None:
            connection.context = offer.context

    def offer(self, name: str) -> TlsOffer | None:
        """The certificate for this name, unless it has expired; None for the fallback."""
        host = name.lower().removesuffix(".")
        offers = (self._offers.get(pattern) for pattern in (host, f"*.{host.partition('.')[2]}"))
        return next((offer for offer in offers if offer is not None and offer.certificate.facts.not_after > clock.now_ms()), None)

    @contextmanager
    def keep_current(self, scheduler: Scheduler, tasks: Sequence[PeriodicJob] = ()) -> Iterator[None]:
        """Within the block, load new certificates (those of other processes within RELOAD_SECONDS) and run `tasks`. The tasks
        run here because only a serving process has the built-in authority's key and answers ACME challenges."""
        reloading = PeriodicJob("certificates", RELOAD_SECONDS, self.reload)
        with ExitStack() as stack:
            if self.certificates is not None:
                stack.callback(self.certificates.on_change(reloading.hasten))
            for task in (reloading, *tasks):
                task.start(scheduler)
                stack.callback(task.stop)
            yield

    def reload(self) -> None:
        """Load what changed: a renewed fallback, and new, changed or deleted certificates of hosts."""
        with self._lock:
            if self._context is None:
                return
            try:
                self._load_fallback(self._context)
            except (OSError, ssl.SSLError):
                log.exception("the certificate of server.tls could not be loaded; the previous one stays in use")
            self._load_changed()

    def _load_changed(self) -> None:
        if self.certificates is None:
            return
        changed, removed = self.certificates.load_changed(self._stamps)
        offers = dict(self._offers)
        for host in [*removed, *changed]:
            self._stamps.pop(host, None)
            for name in self._names_by_host.pop(host, ()):
                offers.pop(name, None)
        for host, certificate in changed.items():
            self._stamps[host] = certificate.certificate.stamp
            if certificate.pair is None:
                continue
            context = self._new_context()
            try:
                load_pair(context, certificate.pair)
            except ssl.SSLError:
                log.exception("the certificate of %s cannot be served", host)
                continue
            self._names_by_host[host] = certificate.hosts
            offers |= dict.fromkeys(certificate.hosts, TlsOffer(certificate.certificate, context))
        self._offers = offers  # handshakes see all changes at once

    def _load_fallback(self, context: ssl.SSLContext) -> None:
        """Load the fallback certificate if its files changed; existing connections keep the previous one."""
        if self.fallback is None:
            raise RuntimeError("TLS is off")
        certificate, key = self.fallback()
        modified = (certificate.stat().st_mtime_ns, key.stat().st_mtime_ns)
        if modified != self._loaded:
            self._new_context().load_cert_chain(certificate, key)  # a bad pair fails here and does not affect the context in use
            context.load_cert_chain(certificate, key)
            self._loaded = modified


def load_pair(context: ssl.SSLContext, pair: Pair) -> None:
    """Load a chain and its key from memory: Python's ssl module reads files only, and a key must not be written to disk."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(pair.private_key + pair.chain)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def build_server_config(config: Config, certificates: Certificates) -> ServerConfig:
    """Addresses, limits and certificates of the HTTP server."""
    server = ServerConfig()
    server.certificates = certificates
    host = f"[{config.server.host}]" if ":" in config.server.host else config.server.host
    server.bind = [f"{host}:{config.server.port}"]
    server.keep_alive_timeout = 30.0
    server.keep_alive_max_requests = 100_000  # the default makes busy clients and proxies reconnect every second
    server.read_timeout = 120  # between requests only, see `hypercorn_adapter.Connection`
    server.graceful_timeout = float(config.server.shutdown_seconds)
    server.shutdown_timeout = float(config.server.shutdown_seconds)
    server.h11_max_incomplete_size = MOST_HEAD_BYTES
    server.h2_max_concurrent_streams = 100
    server.backlog = 1024
    server.accesslog = None
    server.errorlog = None
    server.include_server_header = False
    if config.tls_mode == "files":
        server.fallback = lambda: (Path(config.server.certificate), Path(config.server.private_key))
    elif config.tls_mode == "internal":
        server.fallback = lambda: internal_certificate(config)
    if server.fallback is not None and config.tls.http_port:
        server.insecure_bind = [f"{host}:{config.tls.http_port}"]
    return server
