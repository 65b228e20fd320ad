"""Creates a version from an archive: `app.yaml` holds its settings, and `public/` (else everything else) is served."""

from collections.abc import Mapping
from typing import Any, BinaryIO

from appliance.blobs import ArchiveLimits, Blobs, read_members
from appliance.core import yaml12
from appliance.core.errors import DefinitionInvalid, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.webapps.access.access import parse_access
from appliance.webapps.publishing.smoke import parse_smoke
from appliance.webapps.records import FileSpec, NewVersion, Settings
from appliance.webapps.routes.routes import check_reachable, parse_routes

from .limits import Limits

MANIFEST = "app.yaml"
PUBLIC = "public/"


def read_version(scope: TenantScope, blobs: Blobs, file: BinaryIO, limits: Limits) -> NewVersion:
    """Store the files of an archive and describe the version; a single folder around everything is stripped."""
    files: dict[str, FileSpec] = {}
    with blobs.batch(scope) as batch:
        for member in read_members(file, ArchiveLimits(limits.files, limits.bytes)):
            received = blobs.receive(member.pieces)
            batch.add(received)
            files[member.path] = FileSpec(received.sha256, received.size)
    files = _strip_wrapper(files)
    manifest = files.pop(MANIFEST, None)
    settings = Settings()
    if manifest is not None:
        if manifest.size > 1 << 18:
            raise DefinitionInvalid(Sentence("%(about)s has at most 256 KiB", about=MANIFEST))
        settings = read_settings(blobs.read_whole(scope, manifest.sha256, 1 << 18))
    public = {path.removeprefix(PUBLIC): spec for path, spec in files.items() if path.startswith(PUBLIC)}
    return NewVersion(public or files, settings)


def _strip_wrapper(files: dict[str, FileSpec]) -> dict[str, FileSpec]:
    top_names = {path.partition("/")[0] for path in files}
    if len(top_names) == 1 and top_names != {"public"} and all("/" in path for path in files):
        return {path.partition("/")[2]: spec for path, spec in files.items()}
    return files


def read_settings(data: bytes) -> Settings:
    """Parse the settings in `app.yaml`; DefinitionInvalid."""
    try:
        document = yaml12.load(data.decode("utf8")) or {}
    except UnicodeDecodeError as error:
        raise DefinitionInvalid(Sentence("%(about)s is not UTF-8 text", about=MANIFEST)) from error
    except yaml12.YamlInvalid as error:
        raise DefinitionInvalid(
            Sentence("%(about)s line %(line)s: %(message)s", about=MANIFEST, line=error.line, message=error.message)
        ) from error
    if not isinstance(document, dict):
        raise DefinitionInvalid(Sentence("%(about)s must be a mapping", about=MANIFEST))
    return validate_settings(document)


def validate_settings(members: Mapping[str, Any]) -> Settings:
    """Validate the settings of a version: `spa`, `redirects`, `headers`, `routes`, `smoke` and `access`; ValidationFailed for
    unknown or invalid ones."""
    for name in members:
        if name not in ("spa", "redirects", "headers", "routes", "smoke", "access"):
            raise ValidationFailed(
                Sentence("%(name)s is not a setting of %(about)s", name=repr(str(name)[:60]), about=MANIFEST),
                pointer=f"/{str(name)[:60]}",
            )
    spa = members.get("spa", False)
    if not isinstance(spa, bool):
        raise ValidationFailed("spa must be true or false", pointer="/spa")
    texts = {}
    for name in ("redirects", "headers"):
        text = members.get(name) or ""
        if not isinstance(text, str) or "\0" in text:
            raise ValidationFailed(Sentence("%(name)s must be text as in the file _%(name)s", name=name), pointer=f"/{name}")
        texts[name] = text
    routes = members.get("routes") or ()
    access = members.get("access") or "public"
    check_reachable(parse_routes(routes), parse_access(access).kind)
    return Settings(spa, **texts, routes=tuple(routes), smoke=parse_smoke(members.get("smoke")), access=access)
