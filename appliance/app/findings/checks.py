"""Checks an installation and reports problems with the next step."""

import shutil
import ssl
import tempfile
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path

import httpx

from appliance import migrations
from appliance.app.inspection import inspected_store
from appliance.backups import list_jobs, schedule
from appliance.backups.points import findings as point_findings
from appliance.backups.rehearsal import findings as rehearsal_findings
from appliance.backups.rehearsal import list_rehearsals
from appliance.blobs import MARKER, AddressSigner, Download, owner_of, probe, read_installation
from appliance.core import catalogues, clock
from appliance.core.catalogues import CatalogueInvalid, Languages, Reading
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import ApplianceError, ConfigInvalid
from appliance.core.interface import ui_folder
from appliance.documents.contents import Scanner, check_command, eicar
from appliance.tenants import service, service_accounts
from appliance.tenants.grants import confirmations
from appliance.upgrade import findings as upgrade_findings
from appliance.webapps.certificates import list_host_certificates
from appliance.webapps.domains import is_public_suffix, list_every_domain

from .audit_trails import forwarding_findings
from .database_server import server_findings
from .master_key import master_key_findings
from .operation import (
    connector_findings,
    content_findings,
    mail_findings,
    permission_findings,
    queue_findings,
    tls_findings,
)
from .sign_in import account_findings, directory_findings, password_findings, provider_findings, proxy_findings

EXPIRING_DAYS = 14
MOST_CONFIRMATIONS = 20
Finding = tuple[str, str]
Inspect = Callable[[Config], AbstractContextManager[None]]
"""Opens the database for a check; a running appliance has it open."""


def checks(config: Config) -> Iterator[Finding]:
    """Run all checks and yield (ok | note | FAIL, sentence) for each finding."""
    return (finding for _, finding in name_findings(config))


def name_findings(config: Config, inspect: Inspect = inspected_store, skip: Container[str] = ()) -> Iterator[tuple[str, Finding]]:
    """Run all checks but those to skip, and yield the name of the check with each finding.  `inspect` opens the database."""
    ran: dict[str, Callable[[], Iterator[Finding]]] = {
        "storage": lambda: check_storage(config, inspect), "database-server": lambda: server_findings(config, inspect),
        "bucket": lambda: check_bucket(config),
        "permissions": lambda: permission_findings(config), "sandbox": lambda: _runtimes(config),
        "connectors": lambda: connector_findings(config), "mail": lambda: mail_findings(config),
        "exposure": lambda: _exposure(config), "scanner": lambda: _scanner(config),
        "sign-in": lambda: chain(
            provider_findings(config), directory_findings(config), proxy_findings(config), password_findings(config)
        ),
        "backups": lambda: _backups(config, inspect), "translations": lambda: _translations(config),
    }  # fmt: skip
    for name, check in ran.items():
        if name not in skip:
            yield from ((name, finding) for finding in check())
    with inspect(config):
        is_known = _is_schema_known()
    if not is_known:
        yield "schema", ("note", "domains and certificates are not checked until the database has this release's schema")
        return
    yield from (("domains", finding) for finding in check_domains(config, inspect))
    with inspect(config):
        yield from ((name, finding) for name, check in _OPENED.items() if name not in skip for finding in check(config))


def _is_schema_known() -> bool:
    return migrations.newer() is None and not migrations.pending()


def _backups(config: Config, inspect: Inspect) -> Iterator[Finding]:
    with inspect(config):
        is_known = _is_schema_known()
        backups, rehearsed = (list_jobs(), list_rehearsals()) if is_known else ([], [])
    yield from schedule.findings(config, backups)
    yield from rehearsal_findings(config, rehearsed)
    yield from upgrade_findings(config)
    yield from point_findings(config)


def check_storage(config: Config, inspect: Inspect = inspected_store) -> Iterator[Finding]:
    """Check the free disk space, the database and the mode of the key file."""
    free = shutil.disk_usage(config.data if config.data.exists() else config.data.parent).free >> 20
    yield ("ok" if free > 1024 else "FAIL", f"{free} MiB are free on the disk of the data folder ({config.data})")
    with inspect(config):
        yield from _schema()
        if db.is_sqlite():
            result = db.rows("PRAGMA quick_check")[0][0]
            yield ("ok" if result == "ok" else "FAIL", f"SQLite's quick check reports {result}")
    if config.master_key.source != "file":
        return
    mode = (config.data / "key").stat().st_mode & 0o777
    yield ("ok" if mode == 0o600 else "FAIL", f"the key file has mode {mode:o}" + ("" if mode == 0o600 else "; change it to 600"))


def _clock() -> Iterator[Finding]:
    """Check whether the clock is behind the newest execution, because it was set back."""
    from appliance.processes.executions import newest_created_at
    from appliance.processes.scheduling import JUMP_MS

    behind = (newest_created_at() or 0) - clock.now_ms()
    if behind >= JUMP_MS:
        yield "note", (
            f"the clock is {behind // 1000} s behind the newest execution: it was set back, or is behind that of another machine; "
            "timers fire that much later, and schedules run again once the clock has passed its previous time"
        )


def _schema() -> Iterator[Finding]:
    """Compare the open database's schema with this release, which may not be the one that runs."""
    try:
        migrations.refuse_unsupported()
    except ConfigInvalid as error:
        yield "FAIL", str(error.message)
        return
    pending = migrations.pending()
    if not migrations.is_begun():
        yield "note", "the database works and is empty; the next start creates its schema"
    elif pending:
        count = "1 migration is pending" if pending == 1 else f"{pending} migrations are pending"
        yield "note", (
            f"the database works, {count}: stop the appliance and run `gos upgrade`, which can be rolled back; the next start of "
            "this release upgrades it without a way back"
        )
    else:
        yield "ok", f"the database works, 0 migrations are pending, {len(service.list_tenants())} tenants"


def _bucket_owner(config: Config) -> Iterator[Finding]:
    """Check whether the bucket belongs to this installation, without marking it."""
    if not (own := read_installation(config)):
        return
    owner = owner_of(config.blobs)
    if owner is None:
        yield "note", f"the bucket has no owner yet; the next start marks it as that of this installation, {own}"
    elif owner == own:
        yield "ok", f"the bucket is marked as that of this installation, {own}"
    else:
        yield "FAIL", (
            f"the bucket belongs to another installation: its object {MARKER!r} says {owner}, this one is {own}; give this one its "
            "own blobs.bucket or blobs.prefix, or see docs/install.md for taking the bucket over"
        )


def _direct_downloads(config: Config) -> Iterator[Finding]:
    """Check that a signed address is answered, with the headers that make a browser save the file: that of the marker."""
    if not config.blobs.direct_from_mb or owner_of(config.blobs) is None:
        return
    name, trust = 'attachment; filename="doctor"', ssl.create_default_context(cafile=config.blobs.ca_file or None)
    address = AddressSigner(config.blobs).address(MARKER, Download(name, "text/csv"))
    try:
        response = httpx.get(address, verify=trust, timeout=10, trust_env=False)
    except httpx.HTTPError as error:
        yield "FAIL", f"direct downloads: the server does not answer at blobs.public_endpoint ({error})"
        return
    sent = response.headers.get("Content-Disposition"), response.headers.get("Content-Type", "").partition(";")[0]
    if response.status_code != 200:
        yield "FAIL", f"direct downloads: the server answers {response.status_code} to a signed address; check its clock and name"
    elif sent != (name, "text/csv"):
        yield "FAIL", "direct downloads: the server ignores the name and type of a signed address; set blobs.direct_from_mb to 0"
    else:
        yield "ok", f"documents of {config.blobs.direct_from_mb} MB and more can be downloaded from the bucket by signed addresses"
    if str(response.url).startswith("http://"):
        yield "note", "direct downloads are unencrypted; use https in blobs.public_endpoint"


def check_bucket(config: Config) -> Iterator[Finding]:
    """Check that the bucket for contents, if configured, can be written, read and deleted from."""
    if config.blobs.store != "s3":
        return
    try:
        probe(config.blobs, config.data / "blobs")
    except ApplianceError as error:
        cause = f" ({' '.join(str(error.__cause__).split())[:300]})" if error.__cause__ else ""
        yield "FAIL", f"{error.message}{cause}"
        return
    yield "ok", f"contents can be written to, read from and deleted in the bucket {config.blobs.bucket}"
    yield from _bucket_owner(config)
    if config.blobs.ca_file:
        yield "ok", f"the certificate of blobs.endpoint is trusted, also with the authorities of {config.blobs.ca_file}"
    if config.blobs.endpoint.startswith("http://"):
        yield "note", "contents are sent to blobs.endpoint unencrypted; use https"
    yield from _direct_downloads(config)


def _runtimes(config: Config) -> Iterator[Finding]:
    from appliance.app.sandboxes import runtimes_folder
    from appliance.sandbox import Pool, Program, Settings

    pool = Pool(Settings(1, 1, runtimes_folder(config), first_user=config.sandbox.first_user))
    pool.start()
    try:
        result = pool.run(Program("javascript", "s.js", {"s.js": "export default () => 6 * 7"}), {})
        good = result.failure is None and result.output == 42
        yield ("ok" if good else "FAIL", f"the sandbox {'runs' if good else 'does not run'} step code")
        protections = pool.protections()
        for holds, text in protections.lines() if protections is not None else ():
            yield ("ok" if holds else "note", text)
    finally:
        pool.stop()


def _exposure(config: Config) -> Iterator[Finding]:
    if not config.on_loopback and config.scheme == "http":
        yield "FAIL", "the console needs HTTPS except on loopback: set server.tls, or list your proxy in server.trusted_proxies"
    if config.domains.content.endswith(f".{config.domains.base}"):
        where = f"{config.domains.content} is a subdomain of {config.domains.base}"
        why = "in production, use another registrable domain for WebApps, because sibling hosts count as the same site"
        yield "note", f"{where}, which is fine for evaluation; {why}"
    if "." in config.domains.content and not is_public_suffix(config.domains.content):
        where = f"browsers let a WebApp set cookies for {config.domains.content}, which other WebApps can then read"
        yield "note", f"{where}; add it to the Public Suffix List, or use custom domains for WebApps where people sign in"
    if config.webapps.addresses == "full":
        period = f"for {config.retention.logs_days} days"
        addresses = f"the full addresses of WebApps' visitors are kept {period} (webapps.addresses)"
        yield "note", f"{addresses}; mention it in your privacy notice"
    for entry in config.egress.allow:
        yield "note", f"connectors may reach {entry} (egress.allow); remove it unless an integration needs it"
    for entry in config.folders.allow:
        yield "note", f"connectors may use {entry} (folders.allow); remove it unless an integration needs it"
    if config.demo.order_system:
        yield "note", "the demo order system is on (demo.order_system) and its egress rule with it; turn both off in production"


def check_domains(config: Config, inspect: Inspect = inspected_store) -> Iterator[Finding]:
    """Report custom domains that fail, and whether domains can be pointed here."""
    with inspect(config):
        domains = list_every_domain()
    if domains and not config.domains.public_addresses:
        yield "note", "custom domains cannot be pointed here: set domains.public_addresses to the appliance's public addresses"
    for each in domains:
        domain = each.domain
        if domain.state == "failed" or domain.failing_since is not None:
            # A domain that was never verified serves nothing, so an abandoned claim is not a fault of the installation.
            level = "note" if domain.verified_at is None and domain.failing_since is None else "FAIL"
            yield level, f"the domain {domain.host} of {each.tenant} is {domain.state}: {domain.error or 'see its page'}"


def _scanner(config: Config) -> Iterator[Finding]:
    """Check that the scanner reports the EICAR test file, and passes a harmless file."""
    if not config.scan.command:
        yield "note", "documents are not scanned for malware (scan.command); configure a scanner if strangers may upload"
        return
    try:
        check_command(config.scan.command)
    except ConfigInvalid as error:
        yield "FAIL", error.message
        return
    scanner = Scanner(config.scan.command, config.scan.timeout_s)
    with tempfile.TemporaryDirectory(prefix="doctor-", dir=config.data) as folder:
        for name, content, expected in (("harmless", b"nothing but text\n", "clean"), ("eicar", eicar(), "infected")):
            path = Path(folder) / name
            path.write_bytes(content)
            result = scanner.scan(path)
            if result.state != expected:
                description = f"{result.state} ({result.finding})" if result.finding else result.state
                yield "FAIL", (
                    f"the scanner reports {'an infected' if expected == 'infected' else 'a harmless'} file as {description}; "
                    "check scan.command, and that it may read our files"
                )
                return
    yield "ok", "the scanner tells malware from harmless files"


def _translations(config: Config) -> Iterator[Finding]:
    """Check the translation files: which cannot be used, and which of their messages are skipped."""
    readings = list(catalogues.survey([folder / catalogues.FOLDER for folder in (ui_folder(), config.data)]))
    for reading in readings:
        problems = [reading.message] if isinstance(reading, CatalogueInvalid) else reading.problems
        for problem in problems:
            yield "FAIL", f"translation problem: {problem}"
    good = [each.language for each in readings if isinstance(each, Reading)]
    try:
        Languages(lambda: good, config.console.language)
    except ConfigInvalid as error:
        yield "FAIL", error.message
    yield "ok", f"the pages are available in {', '.join(['English', *(each.name for each in good)])}"


def authority_findings() -> Iterator[Finding]:
    """Report what waits for owners' confirmation, by tenant; the store must be open."""
    for tenant in service.list_tenants():
        waiting = confirmations.list_open(service.system_scope(tenant.id))
        for each in waiting[:MOST_CONFIRMATIONS]:
            ends = f"; it ends at {clock.rfc3339(each.deadline)}" if each.deadline else ""
            if each.deadline and each.deadline <= clock.now_ms():
                ends = f"; it was suspended at {clock.rfc3339(each.deadline)}"
            where = "an owner can allow or refuse it in the console, under Confirmations"
            yield "note", f"the tenant {tenant.id} has a {each.kind} that waits for an owner: {each.subject}{ends}; {where}"
        if len(waiting) > MOST_CONFIRMATIONS:
            yield "note", f"the tenant {tenant.id} has {len(waiting) - MOST_CONFIRMATIONS} more that wait for an owner"


def responsibility_findings() -> Iterator[Finding]:
    """Report service accounts for which nobody is responsible, by tenant; the store must be open."""
    for tenant in service.list_tenants():
        unattended = service_accounts.list_without_responsible(service.system_scope(tenant.id))
        if unattended:
            listed = ", ".join(each.id for each in unattended[:MOST_CONFIRMATIONS])
            more = f" and {len(unattended) - MOST_CONFIRMATIONS} more" if len(unattended) > MOST_CONFIRMATIONS else ""
            yield "note", (
                f"nobody is responsible for these service accounts of the tenant {tenant.id}, because the person left or is "
                f"disabled: {listed}{more}; their keys still work, and an owner can choose another person in the console, under "
                "Service accounts"
            )


def certificate_findings(config: Config) -> Iterator[Finding]:
    """Report certificates that could not be issued, have expired or will soon; the store must be open."""
    now = clock.now_ms()
    for host, not_after, problem, next_try in list_host_certificates():
        days = None if not_after is None else (not_after - now) // 86_400_000
        if problem is not None:
            failure = f"the certificate for {host} could not be issued: {problem.detail} ({problem.type})"
            retry = f"; the next attempt is at {clock.rfc3339(next_try)}"
            yield ("note" if days is not None and days >= EXPIRING_DAYS else "FAIL", failure + retry)
        elif days is not None and days < 0:
            yield "FAIL", f"the certificate for {host} has expired; upload a new one, or set acme.directory"
        elif days is not None and days < EXPIRING_DAYS:
            yield "note", f"the certificate for {host} expires in {days} days"
    if config.acme.directory and not config.acme.dns_hook and config.tls.http_port != 80:
        yield (
            "note",
            f"certificate authorities use port 80; forward it to port {config.tls.http_port} of this machine (tls.http_port)",
        )


_OPENED: dict[str, Callable[[Config], Iterator[Finding]]] = {
    "master-key": master_key_findings, "clock": lambda _: _clock(), "certificates": certificate_findings,
    "confirmations": lambda _: authority_findings(),
    "service-accounts": lambda _: responsibility_findings(), "accounts": account_findings, "tls": tls_findings,
    "queue": lambda _: queue_findings(), "contents": content_findings, "audit-trails": forwarding_findings,
}  # fmt: skip
"""The checks of an open database with this release's schema."""
