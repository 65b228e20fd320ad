"""Builds the parts of the appliance that depend only on the configuration."""

import shutil
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from appliance.agents.skills import service as skills
from appliance.backups.jobs import PLACE_TABLES as JOB_PLACE_TABLES
from appliance.blobs import CACHE_FOLDER, Blobs, LocalPlaces, Places
from appliance.connectors import AllowedFolders
from appliance.connectors.egress import Egress
from appliance.connectors.registry import CONNECTORS, load_connector, load_registry
from appliance.core.config import Config
from appliance.core.config.directories import server_of
from appliance.core.crypto import Sealer
from appliance.core.database.presence import ServerCount
from appliance.core.errors import Overloaded
from appliance.datapool import BLOB_TABLES as IMPORT_BLOB_TABLES
from appliance.documents import service as documents
from appliance.formats import Formats
from appliance.formats import Settings as FormatSettings
from appliance.integrations import Connections, Integrations, TokenStore
from appliance.integrations.calls import Calls
from appliance.llm import LanguageModels
from appliance.sandbox import USERS
from appliance.solutions import find_broken_routes
from appliance.tenants import StreamLimits, Streams
from appliance.tenants import service as tenants
from appliance.tenants.sign_in import set_breached_passwords
from appliance.webapps import service as webapps
from appliance.webapps.certificates import ca_certificate, internal_certificate
from appliance.webapps.traffic import Quotas
from appliance.webapps.traffic import request_log as traffic

if TYPE_CHECKING:
    from appliance.backups.points import PointShipper


def make_points(config: Config, places: Places) -> "PointShipper | None":
    """What ships every change to `backup.points_to`; None without it."""
    if not config.backup.points_to:
        return None
    from appliance.backups.points import PointShipper

    return PointShipper(config, places)


def make_places(config: Config, installation: str) -> Places:
    """The storage of blobs: incoming data always in the data folder, the rest there or in the configured bucket.

    BucketNotOwned when the bucket belongs to another installation; if it does not respond now, it is checked before first use.
    """
    folder = config.data / "blobs"
    if config.blobs.store != "s3":
        return LocalPlaces(folder)
    from appliance.blobs import AddressSigner, S3Places, open_bucket  # its library takes 5 MB, and most appliances have no bucket

    signer = AddressSigner(config.blobs) if config.blobs.direct_from_mb else None
    places = S3Places(open_bucket(config.blobs), folder, installation, signer)
    with suppress(Overloaded):  # Already logged.
        places.claim()
    return places


def make_cached_places(config: Config, places: Places) -> Places:
    """The same storage with a cache in the data folder, if it is a bucket and `blobs.cache_mb` is set; else without its folder."""
    if config.blobs.store == "s3" and config.blobs.cache_mb:
        from appliance.blobs import CachedPlaces, ContentCache

        return CachedPlaces(places, ContentCache(config.data / CACHE_FOLDER, config.blobs.cache_mb << 20))
    shutil.rmtree(config.data / CACHE_FOLDER, ignore_errors=True)  # other processes may be using it
    return places


def make_integrations(config: Config, sealer: Sealer) -> Integrations:
    """Build the integrations with every installed connector, loaded when first needed, and the egress rules."""
    folders = AllowedFolders.of(config.folders.allow, quota=config.folders.quota_mb << 20, never=[config.data])
    connections = Connections(Egress.of(config.egress.allow, authorities(config)), folders)
    load, calls = partial(load_registry, folder=config.data / CONNECTORS), Calls(connections, TokenStore(sealer))
    return Integrations(load, sealer, lambda scope, name: tenants.unseal_secret(scope, sealer, name), calls, load_connector)


def blob_holders() -> list[str]:
    """The tables that refer to blobs: what one of them names is not collected."""
    return [*documents.BLOB_TABLES, *webapps.BLOB_TABLES, *skills.HOLDERS, *IMPORT_BLOB_TABLES]


def place_holders() -> list[str]:
    """The tables that name files in the store by their place: these are not collected."""
    return [*JOB_PLACE_TABLES]


def make_streams(config: Config, servers: ServerCount) -> Streams:
    """Build the limiter of event streams from the configuration."""
    limits = config.limits
    return Streams(StreamLimits(limits.streams_per_key, limits.streams_per_tenant, limits.streams), servers)


def make_language_models(config: Config, sealer: Sealer) -> LanguageModels:
    """Build the language models, which follow the same egress rules as integrations."""
    egress = Egress.of(config.egress.allow, authorities(config))
    return LanguageModels(egress, sealer, lambda scope, name: tenants.unseal_secret(scope, sealer, name))


def make_webapps(config: Config, blobs: Blobs) -> webapps.WebApps:
    """Build the WebApps with the configured limits for archives, uploads and storage."""
    limits, stored = config.limits, config.webapps.stored_mb << 20
    apps = webapps.WebApps(blobs, webapps.Limits(limits.archive_files, limits.archive_mb << 20, limits.upload_mb << 20, stored))
    apps.set_route_check(find_broken_routes)
    return apps


def make_request_log(config: Config, servers: ServerCount) -> traffic.RequestLog:
    """Build the log of requests to WebApps, which also enforces their quotas."""
    own = config.webapps
    return traffic.RequestLog(own.addresses, Quotas(own.requests_per_minute, own.egress_mb_per_day << 20, servers))


def make_formats(config: Config) -> Formats:
    """Build the worker processes for file formats; as root they run under user ids following those of the sandbox."""
    first, settings, limits = config.sandbox.first_user, config.formats, config.limits
    return Formats(
        FormatSettings(
            config.data / "formats", processes=settings.processes, queue_seconds=settings.queue_seconds,
            first_user=first + USERS if first else 0, files=limits.archive_files, memory_mb=settings.memory_mb,
            written_bytes=limits.archive_mb << 20,
        )
    )  # fmt: skip


def identity_egress(config: Config) -> Egress:
    """The rules for identity providers and directories of the console: those of connectors, and what the operator has named here.

    Unlike `egress.allow`, this does not let tenants' connectors reach them.
    """
    issuers = [urlsplit(each.issuer) for each in config.sign_in.providers]
    targets = [f"{_bracketed(each.hostname or '')}:{each.port or (443 if each.scheme == 'https' else 80)}" for each in issuers]
    servers = [server_of(url) for each in config.sign_in.directories for url in each.urls]
    targets += [f"{_bracketed(host)}:{port}" for host, port, _ in servers]
    return Egress.of([*config.egress.allow, *targets], authorities(config))


def compare_new_passwords(config: Config) -> None:
    """Have new passwords compared with the list of `passwords.breaches`, if there is one."""
    place = config.passwords.breaches
    if not place:
        set_breached_passwords(None)
        return
    from appliance.tenants.sign_in import breached_passwords  # few appliances have a list

    set_breached_passwords(breached_passwords.open_breach_list(place, breach_egress(config)))


def breach_egress(config: Config) -> Egress:
    """The rules for the service of breached passwords: those of connectors, and what the operator has named here."""
    parts = urlsplit(config.passwords.breaches)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    own = [f"{_bracketed(parts.hostname)}:{port}"] if parts.hostname else []
    return Egress.of([*config.egress.allow, *own], authorities(config))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def authorities(config: Config) -> str:
    """The CA file that connectors trust in addition: the configured one, or the built-in CA if it signs this appliance."""
    if config.egress.ca_file:
        return config.egress.ca_file
    if config.tls_mode == "internal":
        internal_certificate(config)
        return str(ca_certificate(config))
    return ""
