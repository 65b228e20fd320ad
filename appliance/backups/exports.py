"""Tenant exports created in the console: only the newest of each tenant is stored, for a day."""

import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from appliance.blobs import Places
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.errors import NotFound
from appliance.core.scope import TenantScope
from appliance.monitor import audit

from .parts import is_sealed
from .problems import JobControl
from .tenant_exports import export_tenant

FOLDER = "exports"
RETENTION_MS = 24 * 3_600_000
_STAMP = r"-(\d{8}T\d{6})Z\.gost"


@dataclass(frozen=True)
class Export:
    """An export that can be downloaded until `ends_at` (epoch ms)."""

    name: str
    path: Path
    size: int
    made_at: int
    is_sealed: bool

    @property
    def ends_at(self) -> int:
        return self.made_at + RETENTION_MS


def make_export(config: Config, places: Places, scope: TenantScope, passphrase: str | None, course: JobControl) -> dict[str, Any]:
    """Exports the tenant into a file that is stored for a day and replaces the previous one; returns the manifest."""
    folder = config.data / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    stamp = clock.rfc3339(clock.now_ms())[:19].replace("-", "").replace(":", "")
    target = folder / f"{scope.tenant_id}-{stamp}Z.gost"
    manifest = export_tenant(scope, places, target, passphrase, course)
    details = {"file": target.name, "rows": sum(manifest["tables"].values()), "encrypted": manifest["encrypted"]}
    db.write(partial(audit.record, scope, "tenant.export", scope.tenant_id, details))
    for each in list_exports(config, scope):
        if each.path != target:
            each.path.unlink(missing_ok=True)
    return manifest


def list_exports(config: Config, scope: TenantScope) -> list[Export]:
    """The tenant's exports that have not expired, newest first."""
    folder = config.data / FOLDER
    pattern = re.compile(re.escape(scope.tenant_id) + _STAMP)
    exports = []
    for path in folder.glob("*.gost"):
        if match := pattern.fullmatch(path.name):
            with suppress(FileNotFoundError):  # it may just have been deleted
                exports.append(_export(path, match[1]))
    return sorted((each for each in exports if each.ends_at > clock.now_ms()), key=lambda each: each.made_at, reverse=True)


def _export(path: Path, stamp: str) -> Export:
    return Export(path.name, path, path.stat().st_size, _parse_stamp(stamp), is_sealed(path))


def _parse_stamp(stamp: str) -> int:
    day, time = stamp.split("T")
    return clock.parse_rfc3339(f"{day[:4]}-{day[4:6]}-{day[6:]}T{time[:2]}:{time[2:4]}:{time[4:]}Z")


def get_export(config: Config, scope: TenantScope, name: str) -> Export:
    """An export of the tenant; raises NotFound."""
    export = next((each for each in list_exports(config, scope) if each.name == name), None)
    if export is None:
        raise NotFound("this export has expired or was deleted; create a new one")
    return export


def delete_export(config: Config, scope: TenantScope, name: str) -> None:
    """Deletes an export before it expires; raises NotFound."""
    get_export(config, scope, name).path.unlink(missing_ok=True)
    db.write(lambda: audit.record(scope, "tenant.delete-export", scope.tenant_id, {"file": name}))


def delete_expired(config: Config) -> None:
    """Deletes expired exports, also of deleted tenants, and the remains of killed processes."""
    folder, before = config.data / FOLDER, clock.now_ms() - RETENTION_MS
    for path in folder.iterdir() if folder.is_dir() else ():
        with suppress(OSError):
            if path.stat().st_mtime * 1000 < before:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
