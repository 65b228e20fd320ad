"""Validates the manifest of a backup or an export before any of it is used."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from appliance.core.sentences import Sentence
from appliance.tenants import MAX_NAME, ROLES

from .problems import BackupInvalid


class _Model(BaseModel):
    """Strict types; unknown members, from later releases, are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore", defer_build=True)


class _Part(_Model):
    model_config = ConfigDict(strict=True, extra="forbid")
    name: str
    size: int
    sha256: str


class _Contents(_Model):
    count: int
    bytes: int
    gone: list[str]
    damaged: list[str]


class _Manifest(_Model):
    made_at: str
    schema_number: int = Field(alias="schema")
    tables: dict[str, int]
    parts: list[_Part]
    contents: _Contents


class _Tenant(_Model):
    id: str
    name: str = Field(min_length=1, max_length=MAX_NAME)
    kind: Literal["standard", "sandbox"]


class _Person(_Model):
    login: str
    role: str = Field(pattern=f"^({'|'.join(ROLES)})$")
    approver: bool


class _TenantManifest(_Manifest):
    tenant: _Tenant
    people: list[_Person]
    secrets: list[str]
    domains: list[str]


def check_manifest(manifest: dict[str, Any], kind: str) -> None:
    """Raises BackupInvalid unless the manifest of a backup or, with the kind `tenant`, of an export has all its members."""
    model = _TenantManifest if kind == "tenant" else _Manifest
    try:
        model.model_validate(manifest)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = "/".join(str(step) for step in first["loc"])
        raise BackupInvalid(
            Sentence("the manifest is invalid (%(where)s: %(msg)s); do not use this file", where=where, msg=first["msg"])
        ) from error
