"""`gos doctor`: what stands, and where a set-up falls short."""

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from appliance.backups import schedule
from appliance.blobs import MARKER, installation_id, owner_of, probe
from appliance.core import catalogues, clock, migrations
from appliance.core.catalogues import CatalogueInvalid, Languages, Reading
from appliance.core.config import Config
from appliance.core.crypto import Sealer, load_or_make_key
from appliance.core.database import db
from appliance.core.errors import ApplianceError, ConfigInvalid
from appliance.core.interface import ui_folder
from appliance.documents.contents import Scanner, check_command, eicar
from appliance.tenants import service
from appliance.tenants.grants import confirmations
from appliance.webapps.certificates import survey
from appliance.webapps.domains import is_public_suffix, list_every_domain

from .output import add_json, seen_store, show

EXPIRING_DAYS = 14
MOST_CONFIRMATIONS = 20


def add_commands(commands: Any) -> None:
    parser = commands.add_parser("doctor", help="check this installation")
    add_json(parser)
    parser.set_defaults(run=run_doctor)


def run_doctor(args: argparse.Namespace) -> int:
    config: Config = args.load()
    findings = []
    for level, text in checks(config):
        findings.append({"level": level, "text": text})
        if not args.json:
            print(f"{level:5} {text}", flush=True)
    if args.json:
        show(args, findings)
    return int(any(finding["level"] == "FAIL" for finding in findings))


def checks(config: Config) -> Iterator[tuple[str, str]]:
    """(ok | note | FAIL, sentence) for everything worth knowing."""
    yield from check_storage(config)
    yield from check_bucket(config)
    yield from _runtimes(config)
    yield from _exposure(config)
    yield from _scanner(config)
    yield from schedule.findings(config)
    yield from _translations(config)
    with seen_store(config):
        is_known = migrations.newer() is None and not migrations.pending()
    if not is_known:
        yield "note", "domains and certificates are looked at once the database has this release's schema"
        return
    yield from check_domains(config)
    with seen_store(config):
        yield from _clock()
        yield from certificate_findings(config)
        yield from authority_findings()


def check_storage(config: Config) -> Iterator[tuple[str, str]]:
    """The disk, the database as it is, and the key file."""
    free = shutil.disk_usage(config.data if config.data.exists() else config.data.parent).free >> 20
    yield ("ok" if free > 1024 else "FAIL", f"{free} MiB are free where the data lies ({config.data})")
    with seen_store(config):
        yield from _schema()
        if db.is_sqlite():
            found = db.rows("PRAGMA quick_check")[0][0]
            yield ("ok" if found == "ok" else "FAIL", f"SQLite's quick check says {found}")
    mode = (config.data / "key").stat().st_mode & 0o777
    yield ("ok" if mode == 0o600 else "FAIL", f"the key file has mode {mode:o}" + ("" if mode == 0o600 else "; make it 600"))


def _clock() -> Iterator[tuple[str, str]]:
    """Whether the clock was set back behind what has been written."""
    from appliance.processes.executions import newest_of_all
    from appliance.processes.scheduling import JUMP_MS

    behind = (newest_of_all() or 0) - clock.now_ms()
    if behind >= JUMP_MS:
        yield "note", (
            f"the clock is {behind // 1000} s behind the newest execution: it was set back, or is behind that of another machine; "
            "what waits until a point in time comes so much later, and schedules run again once the clock has passed what it "
            "showed before"
        )


def _schema() -> Iterator[tuple[str, str]]:
    """How the open database's schema stands to this release, which may not be the one that runs."""
    pending, newer = migrations.pending(), migrations.newer()
    if newer is not None:
        known = len(migrations.all_migrations())
        yield "FAIL", f"the database has migration {newer}, this release knows {known} and does not start: install the newer one"
    elif not migrations.is_begun():
        yield "note", "the database answers and is empty; the next start makes its schema"
    elif pending:
        told = f"the database answers, {pending} migrations are pending"
        yield "note", f"{told}: the next start of this release makes them, and there is no way back; make a backup before"
    else:
        yield "ok", f"the database answers, 0 migrations are pending, {len(service.list_tenants())} tenants"


def _bucket_owner(config: Config) -> Iterator[tuple[str, str]]:
    """Whether the bucket is this installation's; nothing is marked by asking."""
    key = config.data / "key"
    if not key.exists():
        return
    owner, own = owner_of(config.blobs), installation_id(Sealer(load_or_make_key(key)))
    if owner is None:
        yield "note", f"the bucket is nobody's yet; the next start marks it as that of this installation, {own}"
    elif owner == own:
        yield "ok", f"the bucket is marked as that of this installation, {own}"
    else:
        yield "FAIL", (
            f"the bucket belongs to another installation: its object {MARKER!r} says {owner}, this one is {own}; set blobs.bucket "
            "or blobs.prefix to a place of its own, or see docs/install.md for taking it over"
        )


def check_bucket(config: Config) -> Iterator[tuple[str, str]]:
    """Whether the bucket of contents takes, gives and deletes, if there is one."""
    if config.blobs.store != "s3":
        return
    try:
        probe(config.blobs, config.data / "blobs")
    except ApplianceError as error:
        cause = f" ({' '.join(str(error.__cause__).split())[:300]})" if error.__cause__ else ""
        yield "FAIL", f"{error.message}{cause}"
        return
    yield "ok", f"the bucket {config.blobs.bucket} takes, gives and deletes contents"
    yield from _bucket_owner(config)
    if config.blobs.ca_file:
        yield "ok", f"the certificate of blobs.endpoint is trusted, with the authorities of {config.blobs.ca_file} too"
    if config.blobs.endpoint.startswith("http://"):
        yield "note", "contents travel to blobs.endpoint in the clear; have it speak https"


def _runtimes(config: Config) -> Iterator[tuple[str, str]]:
    from appliance.app.parts import runtimes_folder
    from appliance.sandbox import Pool, Program, Settings

    pool = Pool(Settings(1, 1, runtimes_folder(config), first_user=config.sandbox.first_user))
    pool.start()
    try:
        outcome = pool.run(Program("javascript", "s.js", {"s.js": "export default () => 6 * 7"}), {})
        good = outcome.failure is None and outcome.output == 42
        yield ("ok" if good else "FAIL", f"the sandbox {'runs' if good else 'does not run'} step code")
        for holds, text in pool.protections().lines():
            yield ("ok" if holds else "note", text)
    finally:
        pool.stop()


def _exposure(config: Config) -> Iterator[tuple[str, str]]:
    if not config.on_loopback and config.scheme == "http":
        yield "FAIL", "the console needs HTTPS off loopback: set server.tls, or name your proxy in server.trusted_proxies"
    if config.domains.content.endswith(f".{config.domains.base}"):
        where = f"{config.domains.content} lies under {config.domains.base}"
        why = "in production give WebApps another registrable domain, because sibling hosts count as the same site"
        yield "note", f"{where}: fine for trying out; {why}"
    if "." in config.domains.content and not is_public_suffix(config.domains.content):
        where = f"browsers let a WebApp set cookies for {config.domains.content}, which its siblings then read"
        yield "note", f"{where}; have it put on the Public Suffix List, or give WebApps that sign people in domains of their own"
    if config.webapps.addresses == "full":
        kept = f"for {config.retention.logs_days} days"
        yield "note", f"the addresses of WebApps' visitors are kept whole {kept} (webapps.addresses); say so in your privacy notice"
    for entry in config.egress.allow:
        yield "note", f"connectors may reach {entry} (egress.allow); remove it unless an integration needs it"
    for entry in config.folders.allow:
        yield "note", f"connectors may use {entry} (folders.allow); remove it unless an integration needs it"
    if config.demo.order_system:
        yield "note", "the demo order system is on (demo.order_system) and its egress rule with it; turn both off in production"


def check_domains(config: Config) -> Iterator[tuple[str, str]]:
    """What is wrong with custom domains."""
    with seen_store(config):
        found = list_every_domain()
    if found and not config.domains.public_addresses:
        yield "note", "custom domains cannot be told to lead here: set domains.public_addresses to where the world reaches you"
    for each in found:
        domain = each.domain
        if domain.state == "failed" or domain.failing_since is not None:
            # What nobody has ever proven serves nothing: a claim that was given up is no fault of the set-up.
            level = "note" if domain.verified_at is None and domain.failing_since is None else "FAIL"
            yield level, f"the domain {domain.host} of {each.tenant} is {domain.state}: {domain.error or 'see its page'}"


def _scanner(config: Config) -> Iterator[tuple[str, str]]:
    """The scanner must know the harmless file that stands for malware, and nothing against a file that is none."""
    if not config.scan.command:
        yield "note", "no scanner looks at documents for malware (scan.command); set one where strangers may upload"
        return
    try:
        check_command(config.scan.command)
    except ConfigInvalid as error:
        yield "FAIL", error.message
        return
    scanner = Scanner(config.scan.command, config.scan.timeout_s)
    with tempfile.TemporaryDirectory(prefix="doctor-", dir=config.data) as folder:
        for name, content, wanted in (("harmless", b"nothing but text\n", "clean"), ("eicar", eicar(), "infected")):
            path = Path(folder) / name
            path.write_bytes(content)
            verdict = scanner.look_at(path)
            if verdict.state != wanted:
                told = f"{verdict.state} ({verdict.finding})" if verdict.finding else verdict.state
                yield "FAIL", f"the scanner calls a file that is {wanted} {told}: see scan.command; may it read our files?"
                return
    yield "ok", "the scanner knows malware from what is none"


def _translations(config: Config) -> Iterator[tuple[str, str]]:
    """Files of translations that cannot be used, and messages in them that are left out."""
    readings = list(catalogues.survey([folder / catalogues.FOLDER for folder in (ui_folder(), config.data)]))
    for found in readings:
        problems = [found.message] if isinstance(found, CatalogueInvalid) else found.problems
        for problem in problems:
            yield "FAIL", f"a translation: {problem}"
    good = [found.language for found in readings if isinstance(found, Reading)]
    try:
        Languages(good, config.console.language)
    except ConfigInvalid as error:
        yield "FAIL", error.message
    yield "ok", f"the pages can be read in {', '.join(['English', *(each.name for each in good)])}"


def authority_findings() -> Iterator[tuple[str, str]]:
    """What waits for owners, by tenant; the store is open."""
    for tenant in service.list_tenants():
        waiting = confirmations.open_confirmations(service.system_scope(tenant.id))
        for each in waiting[:MOST_CONFIRMATIONS]:
            ends = f"; it ends at {clock.rfc3339(each.deadline)}" if each.deadline else ""
            if each.deadline and each.deadline <= clock.now_ms():
                ends = f"; it was suspended at {clock.rfc3339(each.deadline)}"
            where = "an owner allows or refuses it in the console, under Confirmations"
            yield "note", f"the tenant {tenant.id} has a {each.kind} that waits for an owner: {each.subject}{ends}; {where}"
        if len(waiting) > MOST_CONFIRMATIONS:
            yield "note", f"the tenant {tenant.id} has {len(waiting) - MOST_CONFIRMATIONS} more that wait for an owner"


def certificate_findings(config: Config) -> Iterator[tuple[str, str]]:
    """What is wrong, or soon will be, with the certificates of hosts; the store is open."""
    now = clock.now_ms()
    for host, not_after, problem, next_try in survey():
        days = None if not_after is None else (not_after - now) // 86_400_000
        if problem is not None:
            told = f"the certificate for {host} could not be got: {problem.detail} ({problem.type})"
            again = f"; it is tried again at {clock.rfc3339(next_try)}"
            yield ("note" if days is not None and days >= EXPIRING_DAYS else "FAIL", told + again)
        elif days is not None and days < 0:
            yield "FAIL", f"the certificate for {host} has expired; upload another, or set acme.directory"
        elif days is not None and days < EXPIRING_DAYS:
            yield "note", f"the certificate for {host} expires in {days} days"
    if config.acme.directory and not config.acme.dns_hook and config.tls.http_port != 80:
        yield (
            "note",
            f"authorities ask at port 80; see that it leads to port {config.tls.http_port} of this machine (tls.http_port)",
        )
