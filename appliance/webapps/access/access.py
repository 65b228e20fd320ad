"""The member `access` of a version: who may open the WebApp, and which paths everybody may."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from appliance.core import ids
from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence
from appliance.tenants import ROLES
from appliance.tenants.sign_in import MOST_LISTED, check_listed, is_listed
from appliance.webapps.files import patterns

Kind = Literal["public", "password", "members", "email", "oidc"]
KINDS = ("public", "password", "members", "email", "oidc")
EVERYBODY = "*"
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Access:
    """Who may open an app.  `secret` is the name of the password or of the client's secret; `allow` are e-mail addresses,
    `*@domain`, or, for an OIDC provider, `*`; without `roles` every member may."""

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
        """Whether everybody may ask for this path."""
        return self.kind == "public" or any(patterns.match(pattern, path) is not None for pattern in self.public_paths)

    def shows(self, file: str) -> bool:
        """Whether everybody may read this file: a path that is open may lead to one that is not (a page for what is missing)."""
        names = {f"/{file}", f"/{file.removesuffix('index.html')}" if _is_index(file) else f"/{file.removesuffix('.html')}"}
        return any(self.is_open(name) for name in names)

    def allows(self, email: str) -> bool:
        """Whether this address is on the list."""
        return is_listed(email, self.allow)

    @property
    def allows_everybody(self) -> bool:
        return EVERYBODY in self.allow


PUBLIC = Access()


def _is_index(file: str) -> bool:
    return file == "index.html" or file.endswith("/index.html")


def parse_access(given: Any, pointer: str = "/access") -> Access:
    """What `access` says; ValidationFailed with the place."""
    if given is None or given == "public":
        return PUBLIC
    if isinstance(given, str):
        given = {given: {}}
    if not isinstance(given, Mapping):
        raise ValidationFailed(Sentence("access is one of %(kinds)s", kinds=', '.join(KINDS)), pointer=pointer)
    named = [name for name in given if name != "paths"]
    if len(named) != 1 or named[0] not in KINDS:
        raise ValidationFailed(
            Sentence("access names exactly one of %(kinds)s, and may name paths", kinds=", ".join(KINDS)), pointer=pointer
        )
    kind = named[0]
    said = given[kind] if given[kind] is not None else {}
    if not isinstance(said, Mapping):
        raise ValidationFailed(Sentence("%(kind)s is an object", kind=kind), pointer=f"{pointer}/{kind}")
    read = _Members(said, f"{pointer}/{kind}")
    found = {"kind": kind, "public_paths": _public_paths(given.get("paths"), f"{pointer}/paths"), **_READERS[kind](read)}
    read.refuse_others()
    return Access(**found)


class _Members:
    """The members of an object, each taken once; what nobody took is unknown."""

    def __init__(self, given: Mapping[str, Any], pointer: str) -> None:
        self._left = dict(given)
        self.pointer = pointer

    def take(self, name: str) -> Any:
        return self._left.pop(name, None)

    def text(self, name: str, what: str) -> str:
        found = self.take(name)
        if not isinstance(found, str) or not 1 <= len(found) <= 500 or not found.isprintable():
            raise ValidationFailed(Sentence("%(name)s is %(what)s", name=name, what=what), pointer=f"{self.pointer}/{name}")
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        return _texts(self.take(name), f"{self.pointer}/{name}")

    def refuse_others(self) -> None:
        for name in self._left:
            raise ValidationFailed(
                Sentence("%(name)s is not known here", name=repr(str(name)[:60])), pointer=f"{self.pointer}/{str(name)[:60]}"
            )


def _texts(given: Any, pointer: str) -> tuple[str, ...]:
    if given is None:
        return ()
    fine = isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(each, str) for each in given)
    if not fine or len(given) > MOST_LISTED:
        raise ValidationFailed(
            Sentence("this is a list of at most %(most_listed)s texts", most_listed=MOST_LISTED), pointer=pointer
        )
    return tuple(given)


def _public_paths(given: Any, pointer: str) -> tuple[str, ...]:
    if given is None:
        return ()
    if not isinstance(given, Mapping) or set(given) - {"public"}:
        raise ValidationFailed("paths has the member public, a list of paths that everybody may open", pointer=pointer)
    found = _texts(given.get("public"), f"{pointer}/public")
    for number, pattern in enumerate(found):
        if wrong := patterns.problem_of(pattern):
            raise ValidationFailed(wrong, pointer=f"{pointer}/public/{number}")
    return found


def _secret(read: _Members, name: str) -> str:
    given = read.take(name)
    fine = isinstance(given, Mapping) and set(given) == {"secret"} and isinstance(given["secret"], str)
    if not fine or not given["secret"].isidentifier() or len(given["secret"]) > 63:
        raise ValidationFailed("name a secret of the tenant: {secret: NAME}", pointer=f"{read.pointer}/{name}")
    return str(given["secret"])


def _read_public(read: _Members) -> dict[str, Any]:
    return {}


def _read_password(read: _Members) -> dict[str, Any]:
    given = read.take("secret")
    if not isinstance(given, str) or not given.isidentifier() or len(given) > 63:
        raise ValidationFailed("name the secret that holds the password: {secret: NAME}", pointer=f"{read.pointer}/secret")
    return {"secret": given}


def _read_members(read: _Members) -> dict[str, Any]:
    roles = read.texts("roles")
    for number, role in enumerate(roles):
        if role not in ROLES:
            known = Sentence("%(role)s is not a role; known are %(roles)s", role=repr(role[:40]), roles=', '.join(ROLES))
            raise ValidationFailed(known, pointer=f"{read.pointer}/roles/{number}")
    return {"roles": roles}


def _read_email(read: _Members) -> dict[str, Any]:
    integration = read.text("integration", "the slug of the integration that sends the e-mails")
    return {"integration": ids.check_slug(integration, pointer=f"{read.pointer}/integration"), "allow": _allow(read, anybody=False)}


def _read_oidc(read: _Members) -> dict[str, Any]:
    issuer = read.text("issuer", "the address of the provider, as its discovery document says it")
    if not _is_issuer(issuer):
        raise ValidationFailed("issuer is an https address without query and fragment", pointer=f"{read.pointer}/issuer")
    scopes = read.texts("scopes") or ("email",)
    for number, name in enumerate(scopes):
        if not _SCOPE.fullmatch(name):
            raise ValidationFailed(
                Sentence("%(name)s is not a scope", name=repr(name[:40])), pointer=f"{read.pointer}/scopes/{number}"
            )
    client_id = read.text("client_id", "the client's name at the provider")
    secret = _secret(read, "client_secret")
    return {
        "issuer": issuer, "client_id": client_id, "secret": secret, "allow": _allow(read, anybody=True),
        "scopes": " ".join(dict.fromkeys(("openid", *scopes))),
    }  # fmt: skip


def _is_issuer(text: str) -> bool:
    try:
        parts = urlsplit(text)
        plain = not (parts.query or parts.fragment or parts.username or "?" in text or "#" in text or " " in text)
        return plain and bool(parts.hostname) and (parts.scheme == "https" or is_loopback(text))
    except ValueError:
        return False


def is_loopback(url: str) -> bool:
    """Whether this is http on the machine itself, where no certificate is to be had."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in _LOOPBACK


def _allow(read: _Members, *, anybody: bool) -> tuple[str, ...]:
    return check_listed(read.texts("allow"), f"{read.pointer}/allow", *([EVERYBODY] if anybody else []))


_READERS = {
    "public": _read_public, "password": _read_password, "members": _read_members, "email": _read_email, "oidc": _read_oidc,
}  # fmt: skip
