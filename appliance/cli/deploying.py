"""`gos deploy`: upload a folder as a version of a WebApp; only contents the appliance does not have are sent."""

import argparse
import hashlib
import json
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from appliance.core.errors import NotFound, ValidationFailed
from appliance.core.pools import DEPLOY, open_pool
from appliance.webapps import FileSpec, Settings
from appliance.webapps.files import MANIFEST, PUBLIC, read_settings

from .api_client import Caller, Refused, add_connection, connected
from .content_uploads import Content, Progress, gather_contents, retry, send_contents

WAIT_SECONDS, ACCEPTED = 60, 202
_pause = threading.Event()  # Never set: used to wait, and Ctrl-C ends the wait.


def add_commands(commands: Any) -> None:
    deploy = commands.add_parser("deploy", help="upload a folder as a version of a WebApp, and publish it with --publish")
    deploy.add_argument("app", help="the WebApp's id")
    deploy.add_argument("dir", type=Path, help="the folder of the built files, or a folder with public/ and an optional app.yaml")
    deploy.add_argument("--spa", action="store_true", help="answer unknown paths with index.html, as `spa: true` in app.yaml does")
    deploy.add_argument("--create", action="store_true", help="create the WebApp if it does not exist")
    deploy.add_argument("--publish", action="store_true", help="publish this version")
    deploy.add_argument("--if-current", type=int, help="publish only if this version (0: none) is still the published one")
    deploy.add_argument("--message", default="", help="the version's message")
    deploy.add_argument("--commit", default="", help="the commit the version was built from")
    deploy.add_argument("--ci-url", default="", help="the address of the build")
    deploy.add_argument("--json", action="store_true", help="print JSON")
    add_connection(deploy, "--to")
    deploy.set_defaults(run=run_deploy)


def run_deploy(args: argparse.Namespace) -> int:
    files, settings = read_files(args.dir)
    settings = replace(settings, spa=settings.spa or args.spa)
    with connected(args) as caller, open_pool(DEPLOY) as threads:
        progress = Progress(is_shown=not args.json)
        specs = dict(zip(files, threads.map(partial(_digest, progress), files.values()), strict=True))
        app = _find_app(caller, args)
        path = f"/webapps/{args.app}/versions"
        manifest = {name: asdict(spec) for name, spec in specs.items()}
        about = {"message": args.message, "source": {"commit": args.commit, "ci_url": args.ci_url}, **asdict(settings)}
        if (same := _find_same(caller, path, manifest, settings)) is not None:
            print(f"nothing has changed since version {same['version']}", file=sys.stderr)
            if args.publish and (same["state"] != "published" or args.if_current is not None):
                same |= _publish(caller, f"{path}/{same['version']}", args.if_current)
            _show(args, app, same)
            return 1 if args.publish and same["state"] != "published" else 0
        created = caller.data("POST", path, json={"files": manifest, **about})
        contents = {specs[name].sha256: file for name, file in files.items()}
        sizes = {spec.sha256: spec.size for spec in specs.values()}
        missing = [Content(sha256, sizes[sha256], contents[sha256]) for sha256 in created["required"]]
        progress.begin_sending(len(missing), sum(content.size for content in missing))
        send = partial(send_contents, caller, f"{path}/{created['version']}/blobs", progress)
        for _ in threads.map(send, gather_contents(missing)):
            pass
        version = retry(partial(caller.data, "POST", f"{path}/{created['version']}/finalize"), "making the version ready")
        version["uploaded"] = len(created["required"])
        if args.publish:
            version |= _publish(caller, f"{path}/{created['version']}", args.if_current)
    _show(args, app, version)
    return 1 if args.publish and version["state"] != "published" else 0


def _find_same(caller: Caller, path: str, manifest: Mapping[str, Any], settings: Settings) -> dict[str, Any] | None:
    """The newest version, if it is ready and has exactly these files and settings; None if a new one is needed."""
    newest = caller.data("GET", path, params={"limit": 1})
    if not newest or newest[0]["state"] in ("uploading", "failed"):
        return None
    version: dict[str, Any] = caller.data("GET", f"{path}/{newest[0]['version']}")
    expected = json.loads(json.dumps({"contents": manifest, **asdict(settings)}))
    return version | {"uploaded": 0} if all(version[name] == value for name, value in expected.items()) else None


def _publish(caller: Caller, path: str, if_current: int | None) -> dict[str, Any]:
    """Publish the version and return its new members, with its `publication` if the checks took long or failed."""
    body = {} if if_current is None else {"if_current": if_current}
    try:
        answer = caller.call("POST", f"{path}/publish", params={"wait": WAIT_SECONDS}, json=body)
    except Refused as error:
        if not any(detail.code == "smoke_failed" for detail in error.details):
            raise
        return {"publication": caller.data("GET", f"{path}/publication")}
    if answer.status_code != ACCEPTED:
        published: dict[str, Any] = answer.json()["data"]
        return published
    while (publication := caller.data("GET", f"{path}/publication"))["state"] in ("checking", "switched"):
        _pause.wait(1.0)
    now = caller.data("GET", path)
    return {"publication": publication, "state": now["state"], "published_at": now.get("published_at")}


def _show(args: argparse.Namespace, app: Mapping[str, Any], version: Mapping[str, Any]) -> None:
    if args.json:
        print(json.dumps({**version, "app": app["id"], "url": app["url"]}, ensure_ascii=False, indent=2))
        return
    publication = version.get("publication")
    state = "not published" if publication else "ready; --publish serves it"
    state = f"published at {app['url']}/" if version["state"] == "published" else state
    print(f"{app['id']} version {version['version']}: {version['files']} files, {version['uploaded']} uploaded, {state}")
    if publication and publication["state"] != "published":
        print(publication["reason"], file=sys.stderr)
        for check in publication["checks"]:
            print(f"  {check['phase']} {check['method']} {check['path']}: {check.get('problem', 'passed')}", file=sys.stderr)
            for line in check.get("seen", "").splitlines():
                print(f"    | {line}", file=sys.stderr)


def read_files(folder: Path) -> tuple[dict[str, Path], Settings]:
    """The files to deploy by path, and the settings of `app.yaml`; names that begin with a dot are skipped, except .well-known.

    NotFound if there are none; ValidationFailed for a symbolic link, which could point anywhere.
    """
    about, root = folder / MANIFEST, folder
    settings = read_settings(about.read_bytes()) if about.is_file() else Settings()
    if (folder / PUBLIC).is_dir():
        root = folder / PUBLIC
    files: dict[str, Path] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if any(part.startswith(".") and part != ".well-known" for part in name.split("/")) or (root is folder and name == MANIFEST):
            continue
        if path.is_symlink():
            raise ValidationFailed(f"{name} is a symbolic link; replace it with the file itself")
        if path.is_file():
            files[name] = path
    if not files:
        raise NotFound(f"there are no files to deploy in {folder}; give the folder of the built files")
    return files, settings


def _digest(progress: Progress, path: Path) -> FileSpec:
    with path.open("rb") as file:
        spec = FileSpec(hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size)
    progress.count(1, spec.size)
    return spec


def _find_app(caller: Caller, args: argparse.Namespace) -> dict[str, Any]:
    apps = {app["id"]: app for app in caller.data("GET", "/webapps", params={"limit": 500})}
    if args.app in apps:
        app: dict[str, Any] = apps[args.app]
        return app
    if not args.create:
        near = f"; there are {', '.join(sorted(apps)[:10])}" if apps else ""
        raise NotFound(f"there is no WebApp {args.app!r}{near}; create it with --create")
    created: dict[str, Any] = caller.data("POST", "/webapps", json={"id": args.app})
    return created
