"""`gos tenant export`, `gos tenant import` and `gos tenant reset`."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from appliance.agents.skills import service as skills
from appliance.app.parts import blob_holders, make_integrations, make_places, make_webapps
from appliance.backups import ImportRequest, ImportResult, SecretReplacement, tenant_exports, tenant_imports
from appliance.backups.jobs import JobRunner
from appliance.blobs import Blobs, installation_id
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.database.presence import open_presence
from appliance.core.errors import AlreadyExists, InvalidRequest
from appliance.datapool import measure_tenant
from appliance.quotas import limits
from appliance.solutions import SolutionServices, Transfers, read_folder, read_solution
from appliance.tenants import service
from appliance.webapps.publishing import Publisher

from .backup import passphrase_of
from .output import opened_store, print_result, read_store
from .tenants.quotas import parse_pairs


def run_export(args: argparse.Namespace) -> int:
    config: Config = args.load()
    passphrase = passphrase_of(args, config)
    with read_store(config) as sealer:
        service.get_tenant(args.id)
        places = make_places(config, installation_id(sealer))
        manifest = tenant_exports.export_tenant(service.system_scope(args.id), places, args.file.absolute(), passphrase)
    rows, contents = sum(manifest["tables"].values()), manifest["contents"]
    print_result(
        args, f"{args.file}: {rows} rows and {contents['count']} contents of {args.id}, without secrets", path=str(args.file),
        **manifest,
    )
    for place in contents["damaged"]:
        print(f"gos: the content {place} is damaged or missing, and is not in the export", file=sys.stderr)
    return 1 if contents["damaged"] else 0


def run_import(args: argparse.Namespace) -> int:
    config: Config = args.load()
    quotas = parse_pairs(args.quota)
    request = ImportRequest(args.file, passphrase_of(args, config), args.name, args.active, quotas=quotas)
    limits.configure(config)
    with opened_store(config, create=True) as sealer:
        places = make_places(config, installation_id(sealer))
        try:
            done = tenant_imports.import_tenant(places, SecretReplacement(sealer), request, config.data)
        except AlreadyExists as error:
            raise AlreadyExists(f"{error.message} by --as NAME") from error
    again = {
        "secrets": done.manifest["secrets"], "people": list(done.unknown_logins), "domains": done.manifest["domains"],
        "paused_processes": done.paused,
    }  # fmt: skip
    summary = f"tenant {done.tenant_id}: {done.rows} rows and {done.manifest['contents']['count']} contents"
    print_result(args, summary, tenant=done.tenant_id, rows=done.rows, give_again=again)
    if not args.json:
        _print_missing(done)
    return 0


def _print_missing(done: ImportResult) -> None:
    """Print what was not imported and must be set up again."""
    tenant = done.tenant_id
    print(f"  API keys: none; gos key add --tenant {tenant} --name first")
    for name in done.manifest["secrets"]:
        print(f"  secret {name}: gos secret set {name} --tenant {tenant}")
    for login in done.unknown_logins:
        print(f"  {login} has no account here: gos user add {login} --tenant {tenant}")
    for host in done.manifest["domains"]:
        print(f"  domain {host}: verify it again")
    if done.paused:
        print(f"  {done.paused} processes with triggers are paused: resume them once the exported tenant's triggers no longer fire")


def run_reset(args: argparse.Namespace) -> int:
    files = read_folder(args.to)
    solution = read_solution(files)
    config: Config = args.load()
    limits.configure(config)
    if not args.yes and not _confirm(args.id):
        raise InvalidRequest("nothing was deleted; type the tenant's id, or use --yes")
    with opened_store(config) as sealer:
        service.get_tenant(args.id)
        measure_tenant(service.system_scope(args.id))
        with _transfers(config, sealer) as transfers:
            deleted = transfers.resets.reset(service.system_scope(args.id), files, force=args.force).deleted
    print_result(args, f"tenant {args.id}: {deleted} rows deleted, {solution.name} applied", tenant=args.id, deleted=deleted)
    return 0


@contextmanager
def _transfers(config: Config, sealer: Sealer) -> Iterator[Transfers]:
    """Jobs on tenants in this process, which the running appliance or the next start continues if it is interrupted."""
    presence = open_presence(config.data / "workers")
    places = make_places(config, installation_id(sealer))
    runner = JobRunner(sealer, presence.instance, presence.is_alive)
    try:
        yield Transfers(config, places, sealer, _tools(config, sealer), runner)
    finally:
        runner.stop()
        presence.close()


def _tools(config: Config, sealer: Sealer) -> SolutionServices:
    """The tools to apply a solution in this process.  WebApp versions with checks are published by the running appliance."""
    blobs = Blobs(make_places(config, installation_id(sealer)), blob_holders())
    apps = make_webapps(config, blobs)
    publishing = Publisher(apps, "cli", lambda _: False)
    publishing.stop()  # the running appliance continues publications started here
    return SolutionServices(None, make_integrations(config, sealer), apps, publishing, skills.Skills(blobs))


def _confirm(tenant_id: str) -> bool:
    question = f"Delete all data of {tenant_id} except people, keys and secrets? Type its id: "
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == tenant_id
