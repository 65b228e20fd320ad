"""Operations on WebApps. Every function takes a TenantScope first.

A version is created with the sha256 of each of its files. The missing contents are uploaded, and `finalize_version` makes the
version ready once all of them have arrived.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from peewee import fn

from appliance.blobs import Blobs, ReceivedFile
from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import AlreadyExists, ApplianceError, Conflict, Detail, PayloadTooLarge, ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.monitor import audit, webhooks
from appliance.tenants.grants import grants, secret_bindings

from . import changes, versions
from .access.access import parse_access
from .access.secret_use import bind_access
from .domains import service as domains
from .files import archive, uploads
from .files.limits import Limits, check_files, validate_texts
from .files.preparation import Prepared, prepare_contents
from .files.rules import RULE_FILES, parse_rules, read_rule_file
from .models import FormRow, VersionRow, WebAppRow
from .publishing import publications
from .records import Difference, FileSpec, NewVersion, ServedFile, ServedVersion, Settings, Source, Version, WebApp
from .routes.authority import require_routes, subject_of
from .routes.routes import Route, parse_routes

__all__ = [
    "BLOB_TABLES", "Difference", "FileSpec", "Limits", "NewVersion", "ServedFile", "ServedVersion", "Settings", "Source", "Version",
    "WebApp", "WebApps",
]  # fmt: skip

BLOB_TABLES = ("webapp_file", "webapp_form")  # tables that refer to blobs
MOST_APPS = 200
LONGEST_ID = 24
FindBrokenRoutes = Callable[[TenantScope, Sequence[Route]], list[Detail]]


@dataclass(frozen=True)
class NewApp:
    id: str
    name: str = ""
    description: str = ""


class WebApps:
    """The WebApps of every tenant."""

    def __init__(self, blobs: Blobs, limits: Limits) -> None:
        self._blobs = blobs
        self._limits = limits
        self._find_broken_routes: FindBrokenRoutes = lambda _scope, _routes: []

    def set_route_check(self, find: FindBrokenRoutes) -> None:
        """Use `find` to report routes whose target does not exist before a version is published."""
        self._find_broken_routes = find

    # -- apps

    def create_app(self, scope: TenantScope, new: NewApp) -> WebApp:
        """Create a WebApp; nothing is published yet. AlreadyExists, ValidationFailed."""
        ids.check_slug(new.id, pointer="/id", longest=LONGEST_ID)
        name, description = validate_texts(new.name or new.id, new.description)
        now = clock.now_ms()

        def insert() -> WebApp:
            if scope.find(WebAppRow, id=new.id) is not None:
                raise AlreadyExists(Sentence("the WebApp %(id)s already exists", id=repr(new.id)), pointer="/id")
            if scope.select(WebAppRow).count() >= MOST_APPS:
                raise Conflict(
                    Sentence("a tenant has at most %(most_apps)s WebApps; delete one that is not used", most_apps=MOST_APPS)
                )
            scope.insert(WebAppRow, id=new.id, name=name, description=description, last_version=0, created_at=now, updated_at=now)
            audit.record(scope, "webapp.create", new.id)
            changes.notify_after_commit(scope, new.id)
            return self.get_app(scope, new.id)

        return db.write(insert)

    def get_app(self, scope: TenantScope, app_id: str) -> WebApp:
        """Get the WebApp; NotFound."""
        return _to_webapp(scope.get(WebAppRow, id=app_id))

    def list_apps(self, scope: TenantScope, request: PageRequest) -> Page[WebApp]:
        """The tenant's WebApps, sorted by id."""
        fields = {name: getattr(WebAppRow, name) for name in ("id", "name", "created_at", "updated_at")}
        return paginate(scope.select(WebAppRow), request, fields, default="id").map(_to_webapp)

    def change_app(self, scope: TenantScope, app_id: str, name: str | None, description: str | None) -> WebApp:
        """Change the name or description; None keeps the current one."""

        def change() -> WebApp:
            row = scope.get(WebAppRow, id=app_id)
            new = validate_texts(row.name if name is None else name, row.description if description is None else description)
            values = {"name": new[0], "description": new[1], "updated_at": max(clock.now_ms(), row.updated_at)}
            scope.update(WebAppRow, **values).where(WebAppRow.id == app_id).execute()
            before = {"name": row.name, "description": row.description}
            audit.record(scope, "webapp.change", app_id, audit.compare(before, {"name": new[0], "description": new[1]}))
            return self.get_app(scope, app_id)

        return db.write(change)

    def delete_app(self, scope: TenantScope, app_id: str, *, force: bool = False) -> None:
        """Delete the app and its versions; Conflict while one is published, unless `force`."""

        def delete() -> None:
            row = scope.get(WebAppRow, id=app_id)
            if row.published_version is not None and not force:
                raise Conflict("the WebApp is published; unpublish it first or delete it with ?force=true")
            domains.release_all(scope, app_id)
            scope.delete(WebAppRow).where(WebAppRow.id == app_id).execute()
            grants.delete_grants(scope, subject_of(app_id))
            secret_bindings.delete_bindings_to(scope, app_id, "webapp")
            audit.record(scope, "webapp.delete", app_id)
            changes.notify_after_commit(scope, app_id)

        db.write(delete)

    # -- versions

    def create_version(self, scope: TenantScope, app_id: str, new: NewVersion) -> Version:
        """Create a version to be uploaded; `required` lists the contents to send. PayloadTooLarge, ValidationFailed."""
        check_files(new, self._limits)

        def insert() -> Version:
            number = versions.insert_version(scope, app_id, new)
            audit.record(scope, "webapp.version", app_id, {"version": number, "files": len(new.files)})
            versions.purge_old(scope, app_id, publications.versions_in_use(scope, app_id))
            limit = self._limits.stored_bytes
            if limit and (stored := versions.stored_bytes(scope, app_id)) > limit:
                raise PayloadTooLarge(Sentence(
                    "with this version the app would store %(stored)s MiB; the limit is %(most)s MiB",
                    stored=stored >> 20, most=limit >> 20,
                ))
            return self.get_version(scope, app_id, number)

        return db.write(insert)

    def stored_bytes(self, scope: TenantScope, app_id: str) -> int:
        """Bytes of the contents of all versions, each counted once."""
        return versions.stored_bytes(scope, app_id)

    def put_content(self, scope: TenantScope, app_id: str, number: int, sha256: str, received: ReceivedFile) -> Version:
        """Store one content of a version being uploaded; can be repeated. ValidationFailed for other bytes than announced;
        ApiKeyLeaked, which also fails the version."""
        row = versions.get_row(scope, app_id, number)
        uploads.put_content(scope, self._blobs, row, sha256, received)
        return versions.to_version(row, None)

    def put_contents(self, scope: TenantScope, app_id: str, number: int, file: BinaryIO) -> list[FileSpec]:
        """Store the members of an archive as contents of a version; those before an invalid one are kept."""
        return uploads.put_contents(scope, self._blobs, versions.get_row(scope, app_id, number), file, self._limits)

    def finalize_version(self, scope: TenantScope, app_id: str, number: int) -> Version:
        """Make the version ready; can be repeated. Conflict while contents are missing, DefinitionInvalid for its rules,
        ApiKeyLeaked. Problems with the files fail the version permanently."""
        row = versions.get_row(scope, app_id, number)
        if row.state != "uploading":
            if row.reason is not None:
                raise Conflict(Sentence("version %(number)s failed: %(reason)s", number=number, reason=row.reason))
            return self.get_version(scope, app_id, number)
        versions.check_complete(scope, app_id, number)
        try:
            files = versions.read_files(scope, app_id, number)
            rules = parse_rules(Settings(**row.settings), lambda name: read_rule_file(scope, self._blobs, files, name))
            forms = prepare_contents(scope, self._blobs, versions.new_contents(scope, app_id, number))
        except (ValidationFailed, ApplianceError) as error:
            if error.status == 422:
                versions.fail(scope, row, error.message)
            raise

        def save() -> Version:
            if versions.get_same(scope, row).state == "uploading":
                versions.mark_ready(scope, self._blobs, row, rules, forms)
                audit.record(scope, "webapp.ready", app_id, {"version": number})
            return self.get_version(scope, app_id, number)

        return db.write(save)

    def prepare_version(self, scope: TenantScope, files: Mapping[str, bytes], settings: Settings, message: str = "") -> Prepared:
        """Store the contents of a version without its rows, which `add_version` creates. Slow; raises what `create_version` and
        `finalize_version` raise. Contents that stay unused are garbage collected."""
        new = NewVersion(uploads.put_files(scope, self._blobs, files), settings, message)
        check_files(new, self._limits)
        rules = parse_rules(settings, lambda name: read_rule_file(scope, self._blobs, new.files, name))
        contents = {spec.sha256: (path, spec) for path, spec in new.files.items()}
        return Prepared(new, rules, prepare_contents(scope, self._blobs, list(contents.values())))

    def add_version(self, scope: TenantScope, app_id: str, prepared: Prepared) -> Version:
        """Create a prepared version in the state ready; Conflict when its contents were garbage collected in the meantime."""

        def add() -> Version:
            number = self.create_version(scope, app_id, prepared.new).number
            if versions.missing_contents(scope, app_id, number):
                raise Conflict(Sentence("contents of the WebApp %(app_id)s were deleted meanwhile; try again", app_id=app_id))
            versions.mark_ready(scope, self._blobs, versions.get_row(scope, app_id, number), prepared.rules, prepared.forms)
            return self.get_version(scope, app_id, number)

        return db.write(add)

    def deploy_archive(self, scope: TenantScope, app_id: str, file: BinaryIO, message: str = "") -> Version:
        """Create a ready version from an archive; its `app.yaml` holds the settings."""
        scope.get(WebAppRow, id=app_id)
        new = archive.read_version(scope, self._blobs, file, self._limits)
        new = NewVersion(new.files, new.settings, message, new.source)
        return self.finalize_version(scope, app_id, self.create_version(scope, app_id, new).number)

    def get_version(self, scope: TenantScope, app_id: str, number: int) -> Version:
        """Get a version; NotFound."""
        with db.snapshot():
            row = versions.get_row(scope, app_id, number)
            required = versions.missing_contents(scope, app_id, number) if row.state == "uploading" else []
            return versions.to_version(row, scope.get(WebAppRow, id=app_id).published_version, required)

    def list_versions(self, scope: TenantScope, app_id: str, request: PageRequest) -> Page[Version]:
        """The versions of an app, newest first."""
        with db.snapshot():
            published = scope.get(WebAppRow, id=app_id).published_version
            query = scope.select(VersionRow).where(VersionRow.app_id == app_id)
            page = paginate(query, request, {"number": VersionRow.number}, default="-number", tie="number")
        return page.map(lambda row: versions.to_version(row, published))

    def count_versions(self, scope: TenantScope, app_id: str) -> int:
        """How many versions the app has, in any state."""
        return int(scope.select(VersionRow).where(VersionRow.app_id == app_id).count())

    def list_files(self, scope: TenantScope, app_id: str, number: int) -> dict[str, FileSpec]:
        """The files of a version by path; NotFound."""
        versions.get_row(scope, app_id, number)
        return versions.read_files(scope, app_id, number)

    def compare_versions(self, scope: TenantScope, app_id: str, number: int, against: int | None) -> Difference:
        """Compare with `against`: by default the published version, or the one before it for the published version itself."""
        with db.snapshot():
            versions.get_row(scope, app_id, number)
            published = scope.get(WebAppRow, id=app_id).published_version
            other = against if against is not None else (published if published not in (None, number) else number - 1)
            if other is None or scope.find(VersionRow, app_id=app_id, number=other) is None:
                if against is None:
                    return Difference(0, tuple(sorted(versions.read_files(scope, app_id, number))), (), (), 0)
                versions.get_row(scope, app_id, against)
            return versions.compare(scope, app_id, number, other or 0)

    # -- publishing

    def publish_version(self, scope: TenantScope, app_id: str, number: int, *, if_current: int | None = None) -> Version:
        """Publish this version at once, without its checks (see `Publisher`). Conflict when the published version is not
        `if_current` (0: none), the version is not ready, or the target of a route does not exist."""

        def publish() -> Version:
            self.check_publishable(scope, app_id, number, if_current)
            return self._publish(scope, app_id, number)

        return db.write(publish)

    def check_publishable(self, scope: TenantScope, app_id: str, number: int, if_current: int | None) -> None:
        """Raise what `publish_version` would raise."""
        row, app = versions.get_row(scope, app_id, number), scope.get(WebAppRow, id=app_id)
        if row.state != "ready":
            raise Conflict(Sentence(
                "version %(number)s is %(state)s; only a version that is ready can be published", number=number, state=row.state
            ))
        published = app.published_version or 0
        if if_current is not None and if_current != published:
            raise Conflict(Sentence("version %(published)s is published now; review it before you publish", published=published))
        if broken := self._find_broken_routes(scope, parse_routes(row.settings.get("routes", ()))):
            raise Conflict(Sentence("%(message)s; create it, then publish again", message=broken[0].message), details=broken)
        require_routes(scope, app_id, row.settings)
        bind_access(scope, app_id, row.settings.get("access"))

    def _publish(self, scope: TenantScope, app_id: str, number: int) -> Version:
        app = scope.get(WebAppRow, id=app_id)
        if app.published_version != number:
            self.serve_version(scope, app_id, number)
            data = {"version": number, "previous": app.published_version}
            audit.record(scope, "webapp.publish", app_id, data)
            webhooks.emit(scope, "webapp.published", lambda: {"webapp": app_id, **data})
        return self.get_version(scope, app_id, number)

    def roll_back(self, scope: TenantScope, app_id: str, number: int | None = None) -> Version:
        """Publish an older version again: the given one, or the one published before the current one."""

        def publish_older() -> Version:
            app = scope.get(WebAppRow, id=app_id)
            target = self._version_before(scope, app) if number is None else number
            if target is None:
                raise Conflict("no other version has been published before; choose the version to publish")
            row = versions.get_row(scope, app_id, target)
            if row.published_at is None:
                raise Conflict(Sentence("version %(target)s has never been published; publish it instead", target=target))
            require_routes(scope, app_id, row.settings)
            bind_access(scope, app_id, versions.get_row(scope, app_id, target).settings.get("access"))
            return self._publish(scope, app_id, target)

        return db.write(publish_older)

    def version_before(self, scope: TenantScope, app_id: str) -> int | None:
        """The version that `roll_back` would publish; None when no other one has been published before."""
        return self._version_before(scope, scope.get(WebAppRow, id=app_id))

    def _version_before(self, scope: TenantScope, app: WebAppRow) -> int | None:
        rows = scope.select(VersionRow).where(
            VersionRow.app_id == app.id, VersionRow.state == "ready", VersionRow.published_at.is_null(False),
            VersionRow.number != (app.published_version or 0),
        )  # fmt: skip
        latest = rows.order_by(VersionRow.published_at.desc()).first()
        return None if latest is None else int(latest.number)

    def unpublish_app(self, scope: TenantScope, app_id: str) -> WebApp:
        """Stop serving the app; its versions are kept."""

        def stop() -> WebApp:
            app = scope.get(WebAppRow, id=app_id)
            if app.published_version is not None:
                self.serve_version(scope, app_id, None)
                audit.record(scope, "webapp.unpublish", app_id, {"version": app.published_version})
            return self.get_app(scope, app_id)

        return db.write(stop)

    def serve_version(self, scope: TenantScope, app_id: str, number: int | None) -> None:
        """Inside a write: serve this version."""
        now = self._serve(scope, app_id, number)
        if number is not None:
            versions.set_published_at(scope, app_id, number, now)

    def restore_version(self, scope: TenantScope, app_id: str, previous: int, replaced: tuple[int, int | None]) -> None:
        """Inside a write: serve `previous` (0: nothing) again. `replaced` (its number, when it had been published before) no
        longer counts as served, so that a rollback does not pick it."""
        self._serve(scope, app_id, previous or None)
        versions.set_published_at(scope, app_id, *replaced)

    def _serve(self, scope: TenantScope, app_id: str, number: int | None) -> int:
        now: int = max(clock.now_ms(), scope.get(WebAppRow, id=app_id).updated_at)
        columns = {"published_version": number, "grant_digest": None, "allowed_until": None, "updated_at": now}
        scope.update(WebAppRow, **columns).where(WebAppRow.id == app_id).execute()
        changes.notify_after_commit(scope, app_id)
        return now

    # -- serving

    def published_number(self, scope: TenantScope, app_id: str) -> int | None:
        """The version that is served; 0 for none, None when the app does not exist."""
        row = scope.find(WebAppRow, id=app_id)
        return None if row is None else row.published_version or 0

    def find_created_at(self, scope: TenantScope, app_id: str, number: int) -> int | None:
        """When a version was created, in milliseconds; None when it does not exist."""
        row = scope.find(VersionRow, app_id=app_id, number=number)
        return None if row is None else int(row.created_at)

    def recent_numbers(self, scope: TenantScope, app_id: str, most: int) -> list[int]:
        """Versions that were served, latest first, even if switched back: browsers may still show their pages."""
        served = VersionRow.published_at.is_null(False) | VersionRow.number.in_(publications.list_switched_back(scope, app_id))
        rows = scope.select(VersionRow, VersionRow.number).where(VersionRow.app_id == app_id, VersionRow.state == "ready", served)
        latest = fn.COALESCE(VersionRow.published_at, VersionRow.created_at).desc()
        return [row.number for row in rows.order_by(latest).limit(most)]

    def load_served(self, scope: TenantScope, app_id: str, number: int) -> ServedVersion | None:
        """Load everything needed to serve a ready version; None when it does not exist."""
        with db.snapshot():
            row = scope.find(VersionRow, app_id=app_id, number=number)
            if row is None or row.state != "ready":
                return None
            files = versions.read_files(scope, app_id, number)
            forms: dict[str, dict[str, tuple[str, int]]] = {}
            for form in scope.select(FormRow).where(FormRow.app_id == app_id):
                forms.setdefault(form.content, {})[form.encoding] = (form.sha256, form.size)
        served_files = {path: ServedFile(spec.sha256, spec.size, forms.get(spec.sha256, {})) for path, spec in files.items()}
        for name in RULE_FILES:
            served_files.pop(name, None)
        return ServedVersion(
            number=number, spa=bool(row.settings.get("spa")), rules=row.rules, files=served_files, published_at=row.published_at,
            created_at=row.created_at, routes=row.settings.get("routes", ()), access=parse_access(row.settings.get("access")),
        )  # fmt: skip


def _to_webapp(row: WebAppRow) -> WebApp:
    return WebApp(row.id, row.name, row.description, row.published_version, row.created_at, row.updated_at)
