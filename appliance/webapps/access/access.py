"""Parses the `access` setting of a version: who may open the WebApp, and which paths are public."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from appliance.core import ids
from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence
from appliance.core.targets import is_issuer
from appliance.tenants import ROLES
from appliance.tenants.sign_in import MAX_LISTED, is_listed, validate_allowlist
from appliance.webapps.files import patterns

Kind = Literal["public", "password", "members", "email", "oidc"]
KINDS = ("public", "password", "members", "email", "oidc")
EVERYBODY = "*"
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


@dataclass(frozen=True)
class Access:
    """The access rules of a version.

    `secret` names the tenant secret that holds the password or the OIDC client secret. `allow` lists e-mail addresses and
    `*@domain` patterns; OIDC also accepts `*`. Empty `roles` admit every member of the tenant.
    """

    kind: Kind = "public"
    public_paths: tuple[str, ...] = ()
    secret: str = ""
    roles: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    integration: str = ""
    issuer: str = ""
    client_id: str = ""
    scopes: str = ""

    def is_open(self, path: str) -> bool:
        """Whether anyone may request this path."""
        return self.kind == "public" or any(patterns.match(pattern, path) is not None for pattern in self.public_paths)

    def is_public_file(self, file: str) -> bool:
        """Whether anyone may read this file. Checked in addition to the path, because a public path can lead to a private file
        (such as the page shown for a missing path)."""
        names = {f"/{file}", f"/{file.removesuffix('index.html')}" if _is_index(file) else f"/{file.removesuffix('.html')}"}
        return any(self.is_open(name) for name in names)

    def allows(self, email: str) -> bool:
        """Whether this address is on the allow list."""
        return is_listed(email, self.allow)

    @property
    def allows_everybody(self) -> bool:
        return EVERYBODY in self.allow


PUBLIC = Access()


def _is_index(file: str) -> bool:
    return file == "index.html" or file.endswith("/index.html")


def parse_access(raw: Any, pointer: str = "/access") -> Access:
    """Parse and check the `access` setting; ValidationFailed with the JSON pointer of the faulty field."""
    if raw is None or raw == "public":
        return PUBLIC
    if isinstance(raw, str):
        raw = {raw: {}}
    if not isinstance(raw, Mapping):
        raise ValidationFailed(Sentence("access is one of %(kinds)s", kinds=', '.join(KINDS)), pointer=pointer)
    kinds = [name for name in raw if name != "paths"]
    if len(kinds) != 1 or kinds[0] not in KINDS:
        raise ValidationFailed(
            Sentence("access must have exactly one of %(kinds)s, and may have paths", kinds=", ".join(KINDS)), pointer=pointer
        )
    kind = kinds[0]
    settings = raw[kind] if raw[kind] is not None else {}
    if not isinstance(settings, Mapping):
        raise ValidationFailed(Sentence("%(kind)s must be an object", kind=kind), pointer=f"{pointer}/{kind}")
    fields = _Fields(settings, f"{pointer}/{kind}")
    values = {"kind": kind, "public_paths": _public_paths(raw.get("paths"), f"{pointer}/paths"), **_PARSERS[kind](fields)}
    fields.refuse_others()
    return Access(**values)


class _Fields:
    """Reads the fields of an object one by one; `refuse_others` rejects those that were not read."""

    def __init__(self, raw: Mapping[str, Any], pointer: str) -> None:
        self._unread = dict(raw)
        self.pointer = pointer

    def take(self, name: str) -> Any:
        return self._unread.pop(name, None)

    def text(self, name: str, what: str) -> str:
        value = self.take(name)
        if not isinstance(value, str) or not 1 <= len(value) <= 500 or not value.isprintable():
            raise ValidationFailed(Sentence("%(name)s is %(what)s", name=name, what=what), pointer=f"{self.pointer}/{name}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        return _texts(self.take(name), f"{self.pointer}/{name}")

    def refuse_others(self) -> None:
        for name in self._unread:
            raise ValidationFailed(
                Sentence("unknown field %(name)s", name=repr(str(name)[:60])), pointer=f"{self.pointer}/{str(name)[:60]}"
            )


def _texts(raw: Any, pointer: str) -> tuple[str, ...]:
    if raw is None:
        return ()
    is_valid = isinstance(raw, Sequence) and not isinstance(raw, str) and all(isinstance(each, str) for each in raw)
    if not is_valid or len(raw) > MAX_LISTED:
        raise ValidationFailed(
            Sentence("this must be a list of at most %(most_listed)s strings", most_listed=MAX_LISTED), pointer=pointer
        )
    return tuple(raw)


def _public_paths(raw: Any, pointer: str) -> tuple[str, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, Mapping) or set(raw) - {"public"}:
        raise ValidationFailed("paths has one field, public: a list of paths that anyone may open", pointer=pointer)
    paths = _texts(raw.get("public"), f"{pointer}/public")
    for number, pattern in enumerate(paths):
        if problem := patterns.problem_of(pattern):
            raise ValidationFailed(problem, pointer=f"{pointer}/public/{number}")
    return paths


def _secret(fields: _Fields, name: str) -> str:
    value = fields.take(name)
    is_valid = isinstance(value, Mapping) and set(value) == {"secret"} and isinstance(value["secret"], str)
    if not is_valid or not value["secret"].isidentifier() or len(value["secret"]) > 63:
        raise ValidationFailed("name a secret of the tenant: {secret: NAME}", pointer=f"{fields.pointer}/{name}")
    return str(value["secret"])


def _read_public(fields: _Fields) -> dict[str, Any]:
    return {}


def _read_password(fields: _Fields) -> dict[str, Any]:
    name = fields.take("secret")
    if not isinstance(name, str) or not name.isidentifier() or len(name) > 63:
        raise ValidationFailed("name the secret that holds the password: {secret: NAME}", pointer=f"{fields.pointer}/secret")
    return {"secret": name}


def _read_members(fields: _Fields) -> dict[str, Any]:
    roles = fields.texts("roles")
    for number, role in enumerate(roles):
        if role not in ROLES:
            problem = Sentence("%(role)s is not a role; known are %(roles)s", role=repr(role[:40]), roles=', '.join(ROLES))
            raise ValidationFailed(problem, pointer=f"{fields.pointer}/roles/{number}")
    return {"roles": roles}


def _read_email(fields: _Fields) -> dict[str, Any]:
    integration = fields.text("integration", "the slug of the integration that sends the e-mails")
    ids.check_slug(integration, pointer=f"{fields.pointer}/integration")
    return {"integration": integration, "allow": _allow(fields, anybody=False)}


def _read_oidc(fields: _Fields) -> dict[str, Any]:
    issuer = fields.text("issuer", "the address of the provider, as its discovery document says it")
    if not is_issuer(issuer):
        raise ValidationFailed("issuer is an https address without query and fragment", pointer=f"{fields.pointer}/issuer")
    scopes = fields.texts("scopes") or ("email",)
    for number, name in enumerate(scopes):
        if not _SCOPE.fullmatch(name):
            raise ValidationFailed(
                Sentence("%(name)s is not a scope", name=repr(name[:40])), pointer=f"{fields.pointer}/scopes/{number}"
            )
    client_id = fields.text("client_id", "the client's name at the provider")
    secret = _secret(fields, "client_secret")
    return {
        "issuer": issuer, "client_id": client_id, "secret": secret, "allow": _allow(fields, anybody=True),
        "scopes": " ".join(dict.fromkeys(("openid", *scopes))),
    }  # fmt: skip


def _allow(fields: _Fields, *, anybody: bool) -> tuple[str, ...]:
    return validate_allowlist(fields.texts("allow"), f"{fields.pointer}/allow", *([EVERYBODY] if anybody else []))


_PARSERS = {
    "public": _read_public, "password": _read_password, "members": _read_members, "email": _read_email, "oidc": _read_oidc,
}  # fmt: skip
