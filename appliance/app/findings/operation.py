"""What `gos doctor` says about operation: permissions, connectors, the queue, stored contents, TLS files."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from appliance.app.parts import make_places
from appliance.blobs import sample_contents
from appliance.connectors.registry import CONNECTORS, load_registry
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.errors import ApplianceError
from appliance.core.mail import Mailer, MailFailed
from appliance.processes.scheduling import backlog
from appliance.tenants import service
from appliance.webapps.certificates import check_pair

Finding = tuple[str, str]

LONG_WAIT_MS = 60_000
SAMPLE, LARGEST = 50, 16 << 20
EXPIRING_DAYS = 14


def permission_findings(config: Config) -> Iterator[Finding]:
    """Check that nobody else on the machine can open the data folder."""
    mode, path = config.data.stat().st_mode & 0o777, shlex.quote(str(config.data.absolute()))
    if mode & 0o077:
        yield "FAIL", f"other users of this machine can open the data folder (mode {mode:o}); run: chmod 700 {path}"
    else:
        yield "ok", f"only the appliance's user can open the data folder (mode {mode:o})"


def connector_findings(config: Config) -> Iterator[Finding]:
    """Check that every installed connector can be used."""
    registry = load_registry(folder=config.data / CONNECTORS)
    for problem in registry.problems:
        yield "FAIL", (
            f"the connector {problem.name} ({problem.distribution}) cannot be used: {problem.message}; "
            "update or remove it, then restart the appliance"
        )
    yield "ok", f"{len(registry.installed)} connectors can be used"


def tls_findings(config: Config) -> Iterator[Finding]:
    """Check the certificate files of `server.tls: files`: pair, chain, period, and each host of the console; the store must be
    open."""
    if config.server.tls != "files":
        return
    try:
        chain, key = Path(config.server.certificate).read_text(), Path(config.server.private_key).read_text()
    except (OSError, UnicodeDecodeError) as error:
        yield "FAIL", f"server.certificate and server.private_key cannot be read ({error}); check the paths and the file's owner"
        return
    base = config.domains.base
    for host in (base, *(f"{tenant.id}.{base}" for tenant in service.list_tenants())):
        try:
            _, details = check_pair(host, chain, key)
        except ApplianceError as error:
            reason = error.details[0].message if error.details else error.message
            yield "FAIL", f"server.certificate does not work for {host}: {reason}"
            return
    days = (details.not_after - clock.now_ms()) // 86_400_000
    if days < EXPIRING_DAYS:
        yield "note", f"server.certificate expires in {days} days; replace the files, which needs no restart"
    else:
        yield "ok", f"server.certificate works for {base} and the hosts of tenants until {clock.rfc3339(details.not_after)}"


def mail_findings(config: Config) -> Iterator[Finding]:
    """Check that the mail server accepts the sign-in; nothing is sent."""
    mailer = Mailer(config.mail)
    if not mailer.is_on:
        yield "note", "links for forgotten passwords are not sent (mail.server); they are replaced with `gos user password LOGIN`"
        return
    try:
        mailer.check()
    except MailFailed as error:
        yield "FAIL", f"the mail server cannot be used: {error}; check mail.server, mail.user, its password and mail.ca_file"
    else:
        yield "ok", f"the mail server can be used ({config.mail.server})"


def queue_findings() -> Iterator[Finding]:
    """Check that executions which may run do not wait for long; the store must be open."""
    waits = {tenant.id: backlog.oldest_wait_ms(service.system_scope(tenant.id)) for tenant in service.list_tenants()}
    tenant, longest = max(waits.items(), key=lambda each: each[1], default=("", 0))
    if longest >= LONG_WAIT_MS:
        yield "FAIL", (
            f"an execution of the tenant {tenant} has waited for {longest // 1000} s although it may run: is `gos serve` or "
            "`gos worker` running, and is queue.workers large enough?"
        )
    else:
        yield "ok", "no execution that may run has waited for more than a minute"


def content_findings(config: Config) -> Iterator[Finding]:
    """Read some stored contents and compare them with their hashes; the store must be open."""
    places = make_places(config, installation="")  # which therefore does not mark the bucket
    damaged, count = [], 0
    for tenant_id, content in sample_contents(places, SAMPLE, LARGEST):
        count += 1
        try:
            for _ in content.pieces():
                pass
        except ApplianceError:
            damaged.append((tenant_id, content.sha256))
    for tenant_id, sha256 in damaged:
        yield "FAIL", (
            f"a content of the tenant {tenant_id} is damaged or missing (sha256 {sha256}); check the disk, and take its file "
            "from a backup (docs/backup.md)"
        )
    if not damaged:
        yield "ok", f"{count} stored contents, chosen at random, have their hashes"
