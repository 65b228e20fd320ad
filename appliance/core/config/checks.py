"""Checks of settings that a type cannot express, or that concern several of them."""

import ipaddress
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

from .backup import check_backup
from .durations import check_duration
from .mail import check_mail
from .master_key import check_master_key
from .passwords import check_passwords
from .sign_in import check_second_factor, check_sign_in

if TYPE_CHECKING:
    from .loading import Config

LONGEST_DRAIN_SECONDS = 600
SHORTEST_QUEUE_MS, LONGEST_QUEUE_MS = 10, 60_000
LARGEST_CACHE_MB = 1 << 20
LONGEST_EXPIRY_DAYS = 3650
_COLLECTOR = re.compile(r"https?://[^\s/@?#]+(/[^\s?#]*)?")
_HEADER = re.compile(r"[A-Za-z0-9_-]+:[ -~]+")


def check(config: "Config") -> None:
    """Check all settings; ConfigInvalid."""
    if config.server.tls == "files" and not (config.server.certificate and config.server.private_key):
        raise ConfigInvalid("server.tls is files, so server.certificate and server.private_key must be set to PEM files")
    _check_networks("server.trusted_proxies", config.server.trusted_proxies)
    _check_range("server.drain_seconds", config.server.drain_seconds, 0, LONGEST_DRAIN_SECONDS)
    _check_range("server.queue_ms", config.server.queue_ms, SHORTEST_QUEUE_MS, LONGEST_QUEUE_MS)
    _check_range("console.sign_in_days", config.console.sign_in_days, 1, 365)
    for name in ("days", "grace_days"):
        _check_range(f"sandbox_tenants.{name}", getattr(config.sandbox_tenants, name), 1, LONGEST_EXPIRY_DAYS)
    _check_networks("metrics.allow", config.metrics.allow)
    if config.metrics.token and (config.metrics.token_file or not re.fullmatch(r"[!-~]{16,}", config.metrics.token)):
        raise ConfigInvalid(
            "metrics.token must have at least 16 characters and no spaces, and cannot be combined with metrics.token_file"
        )
    _check_numbers(config)
    for name in ("confirm_wider_within", "confirm_departed_within"):
        check_duration(f"authority.{name}", getattr(config.authority, name))
    if config.tls.http_port and config.tls_mode == "off":
        raise ConfigInvalid("tls.http_port has no effect while server.tls is off; set it to 0, or enable server.tls")
    if config.acme.directory:
        _check_acme(config)
    if config.blobs.store == "s3":
        _check_bucket(config)
    if config.blobs.keep_deleted:
        check_duration("blobs.keep_deleted", config.blobs.keep_deleted)
    check_backup(config.backup, config.blobs)
    if config.backup.points_to and config.storage.database and not config.storage.database.startswith("sqlite:"):
        raise ConfigInvalid(
            "backup.points_to ships the log of SQLite; archive that of PostgreSQL by its own means (docs/backup.md), and leave "
            "backup.points_to empty"
        )
    _check_audit(config)
    if config.otlp.endpoint:
        _check_otlp(config)
    check_sign_in(config.sign_in)
    check_mail(config.mail)
    check_master_key(config.master_key)
    check_second_factor(config.second_factor)
    check_passwords(config.passwords)
    if config.domains.base == config.domains.content:
        raise ConfigInvalid("domains.base and domains.content must differ, because WebApps must not share the console's host")


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigInvalid(
            Sentence("%(name)s is %(value)s; it must be from %(least)s to %(most)s", name=name, value=value, least=least, most=most)
        )


def _check_numbers(config: "Config") -> None:
    asking = config.approvals
    if asking.open_per_tenant < 1 or asking.open_per_requester < 1 or asking.letter_seconds < 0:
        raise ConfigInvalid(
            "approvals.open_per_tenant and open_per_requester must be at least 1, and letter_seconds at least 0"
        )
    if config.blobs.direct_from_mb and config.blobs.store != "s3":
        raise ConfigInvalid("blobs.direct_from_mb is set, but blobs.store is local: set it to 0, or use a bucket")
    if config.blobs.cache_mb > LARGEST_CACHE_MB:
        raise ConfigInvalid(
            Sentence(
                "blobs.cache_mb is %(size)s; it must be at most %(most)s, or 0 for no cache",
                size=config.blobs.cache_mb, most=LARGEST_CACHE_MB,
            )
        )  # fmt: skip
    if config.storage.writers < 1:
        raise ConfigInvalid("storage.writers must be at least 1")


def _check_networks(name: str, networks: Sequence[str]) -> None:
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise ConfigInvalid(
                Sentence("%(name)s: %(network)s is not a network such as 10.0.0.0/8", name=name, network=repr(network))
            ) from error


def _check_acme(config: "Config") -> None:
    acme = config.acme
    if not re.fullmatch(r"https://\S+|http://(127\.0\.0\.1|\[::1\]|localhost)[:/]\S*", acme.directory):
        raise ConfigInvalid("acme.directory must be the https address of the authority's directory")
    if not acme.agree_terms:
        raise ConfigInvalid("acme.agree_terms must be true; read the authority's terms of service and set it to agree")
    if config.tls_mode == "off":
        raise ConfigInvalid("acme.directory is set but server.tls is off; enable server.tls, or get certificates at your proxy")
    if not config.tls.http_port and not acme.dns_hook:
        raise ConfigInvalid("ACME needs a challenge: set tls.http_port to 80 (HTTP-01), or acme.dns_hook (DNS-01)")
    if bool(acme.eab_key_id) != bool(acme.eab_hmac_key):
        raise ConfigInvalid("acme.eab_key_id and acme.eab_hmac_key must be set together")
    if acme.own_hosts and (not acme.dns_hook or "." not in config.domains.base):
        raise ConfigInvalid("acme.own_hosts orders wildcard certificates, which needs acme.dns_hook and a public domains.base")


def _check_audit(config: "Config") -> None:
    audit = config.audit
    match = re.fullmatch(r"(?:udp|tcp|tls)://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", audit.syslog)
    if audit.syslog and (match is None or not 1 <= int(match[1]) <= 65_535):
        raise ConfigInvalid("audit.syslog must be the address of a syslog server with its port, such as tls://logs.example.com:6514")
    if audit.otlp and not _COLLECTOR.fullmatch(audit.otlp):
        raise ConfigInvalid("audit.otlp must be the address of the collector, such as https://siem.example.com:4318")
    if not all(map(_HEADER.fullmatch, audit.otlp_headers)):
        raise ConfigInvalid("audit.otlp_headers: each header must be written as Name: value, in plain ASCII")
    if audit.ca_file and not (audit.syslog.startswith("tls:") or audit.otlp.startswith("https:")):
        raise ConfigInvalid("audit.ca_file has no effect unless audit.syslog begins with tls://, or audit.otlp with https://")
    if audit.ca_file and not Path(audit.ca_file).is_file():
        raise ConfigInvalid(Sentence("audit.ca_file: the file %(ca_file)s does not exist", ca_file=audit.ca_file))
    if audit.checkpoint_minutes < 1:
        raise ConfigInvalid("audit.checkpoint_minutes must be at least 1")


def _check_otlp(config: "Config") -> None:
    otlp = config.otlp
    if not _COLLECTOR.fullmatch(otlp.endpoint):
        raise ConfigInvalid("otlp.endpoint must be the address of the collector, such as http://127.0.0.1:4318")
    if not all(map(_HEADER.fullmatch, otlp.headers)):
        raise ConfigInvalid("otlp.headers: each header must be written as Name: value, in plain ASCII")
    if otlp.sample_percent > 100:
        raise ConfigInvalid("otlp.sample_percent must be a number from 0 to 100")
    if otlp.ca_file and not Path(otlp.ca_file).is_file():
        raise ConfigInvalid(Sentence("otlp.ca_file: the file %(ca_file)s does not exist", ca_file=otlp.ca_file))


def _check_bucket(config: "Config") -> None:
    blobs = config.blobs
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", blobs.bucket):
        raise ConfigInvalid("blobs.store is s3, so blobs.bucket must be a valid bucket name")
    if blobs.endpoint and not re.fullmatch(r"https?://[^\s/@?#]+/?", blobs.endpoint):
        raise ConfigInvalid("blobs.endpoint must be the address of the server, such as https://s3.example.com")
    if blobs.ca_file and not blobs.endpoint.startswith("https://"):
        raise ConfigInvalid("blobs.ca_file needs a blobs.endpoint that starts with https://")
    if blobs.public_endpoint and not re.fullmatch(r"https?://[^\s/@?#]+/?", blobs.public_endpoint):
        raise ConfigInvalid("blobs.public_endpoint must be the address of the server for clients, such as https://files.example.com")
    if blobs.direct_from_mb and not blobs.key_id:
        raise ConfigInvalid("blobs.direct_from_mb needs blobs.key_id and blobs.secret_key, with which addresses are signed")
    if bool(blobs.key_id) != bool(blobs.secret_key):
        raise ConfigInvalid("blobs.key_id and blobs.secret_key must be set together")
