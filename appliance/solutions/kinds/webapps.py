"""Parses and writes the WebApps of a solution in webapps/<app>/; pure, no database."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial

from appliance.core import yaml12
from appliance.core.errors import ApiKeyLeaked, ApplianceError, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.solutions.archive import LARGEST_BYTES
from appliance.tenants.keys import contains_key
from appliance.webapps import FileSpec, NewVersion, Settings
from appliance.webapps.access import Access, parse_access
from appliance.webapps.files import MANIFEST, PUBLIC, Limits, check_files, parse_rules, read_settings
from appliance.webapps.routes import Route, parse_routes

FOLDER = "webapps"
LARGEST_COUNT = 10_000
_LIMITS = Limits(LARGEST_COUNT, LARGEST_BYTES, LARGEST_BYTES)
_WELL_KNOWN = ".well-known"


@dataclass(frozen=True)
class SolutionApp:
    """A WebApp of a solution: its settings, and the files of public/ by path."""

    settings: Settings
    files: Mapping[str, bytes] = field(repr=False)

    @cached_property
    def specs(self) -> dict[str, FileSpec]:
        """Hash and size of each file by path."""
        return {path: FileSpec(hashlib.sha256(content).hexdigest(), len(content)) for path, content in self.files.items()}

    @cached_property
    def access(self) -> Access:
        return parse_access(self.settings.access)

    @cached_property
    def routes(self) -> tuple[Route, ...]:
        return parse_routes(self.settings.routes)


def is_left_out(parts: list[str]) -> bool | None:
    """Whether a file of public/ is hidden, by the rule of `gos deploy`; None for every other file of a solution."""
    if parts[0] != FOLDER or len(parts) < 4 or parts[2] != PUBLIC.rstrip("/"):
        return None
    return any(part.startswith(".") and part != _WELL_KNOWN for part in parts[3:])


def read_app(files: Mapping[str, bytes]) -> tuple[SolutionApp, list[tuple[str, ApplianceError]]]:
    """The app in these files, by path from its folder, and its problems as (file, error)."""
    problems: list[tuple[str, ApplianceError]] = []
    settings = Settings()
    if MANIFEST in files:
        try:
            settings = read_settings(files[MANIFEST])
        except ApplianceError as error:
            problems.append((MANIFEST, error))
    strays = [path for path in files if path != MANIFEST and not path.startswith(PUBLIC)]
    problems += [
        (
            path,
            ValidationFailed(
                Sentence("a WebApp consists of %(about)s and %(public)s; move or remove this file", about=MANIFEST, public=PUBLIC)
            ),
        )
        for path in strays
    ]
    app = SolutionApp(settings, {path.removeprefix(PUBLIC): files[path] for path in files if path.startswith(PUBLIC)})
    for check in (partial(_check_files, app), partial(parse_rules, settings, partial(_rule_text, app))):
        try:
            check()
        except ApplianceError as error:
            problems.append((MANIFEST, error))
    for path, content in app.files.items():
        if contains_key([content]):
            problems.append((PUBLIC + path, ApiKeyLeaked("it contains an API key, which would be public; revoke that key")))
    return app, problems


def _check_files(app: SolutionApp) -> None:
    check_files(NewVersion(app.specs, app.settings), _LIMITS)


def _rule_text(app: SolutionApp, name: str) -> str:
    try:
        return app.files.get(name, b"").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValidationFailed(Sentence("%(name)s must be UTF-8 text", name=name), pointer=f"/files/{name}") from error


def comparable(settings: Settings) -> str:
    """A text that is equal for equivalent settings."""
    return json.dumps(asdict(settings), sort_keys=True, ensure_ascii=False)


def write_app(app_id: str, app: SolutionApp) -> dict[str, bytes]:
    """The files of webapps/<app>/; settings that are empty are omitted."""
    settings = {name: value for name, value in json.loads(comparable(app.settings)).items() if value}
    about = yaml12.dump(settings).encode()
    return {f"{FOLDER}/{app_id}/{MANIFEST}": about} | {
        f"{FOLDER}/{app_id}/{PUBLIC}{path}": data for path, data in app.files.items()
    }
