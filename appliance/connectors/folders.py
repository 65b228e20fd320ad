"""Which folders of this machine connectors may use: the operator's list, each tenant's part of it, and the quota."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from appliance.connectors.contract import AddressNotAllowed, ConfigError
from appliance.connectors.jail import Jail
from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

_TENANT = "{tenant}"
_READ_ONLY = ":ro"


@dataclass(frozen=True)
class FolderRule:
    """One entry of `folders.allow`: an absolute path, where `{tenant}` stands for the tenant's id, and whether it is read-only."""

    path: str
    read_only: bool

    def base(self, tenant: str) -> str:
        """Return the folder that this rule opens for a tenant."""
        return self.path.replace(_TENANT, tenant)


@dataclass(frozen=True)
class AllowedFolders:
    """The operator's list.  `quota` is the maximum size in bytes of each listed folder after a write, 0 for no limit."""

    rules: tuple[FolderRule, ...] = ()
    quota: int = 0

    @classmethod
    def of(cls, allow: Iterable[str], *, quota: int = 0, never: Iterable[Path] = ()) -> "AllowedFolders":
        """Parse `folders.allow`; ConfigInvalid names an entry that is malformed or overlaps another or a folder of `never`."""
        rules = tuple(_parse(entry.strip()) for entry in allow)
        for rule in rules:
            others = [(each.path, _parts(each)) for each in rules if each is not rule]
            others += [(f"the appliance's own folder {own}", own.resolve().parts) for own in never]
            for name, parts in others:
                if _nested(_parts(rule), parts):
                    raise ConfigInvalid(Sentence(
                        "folders.allow: %(path)s and %(name)s overlap; choose separate folders",
                        path=rule.path, name=name,
                    ))
        return cls(rules, quota)

    def open(self, tenant: str, path: str, deadline: float) -> Jail:
        """Open the folder at an absolute path for one call; AddressNotAllowed unless it is within a folder open to the tenant."""
        folder = path.rstrip("/")
        if not path.startswith("/") or os.path.normpath(path) != folder or "\0" in path:
            raise ConfigError("The folder must be a plain absolute path such as /srv/exchange, without `..`.")
        bases = [(rule.base(tenant), rule.read_only) for rule in self.rules]
        matches = [(base, read_only) for base, read_only in bases if folder == base or folder.startswith(f"{base}/")]
        if not matches:
            raise AddressNotAllowed(Sentence(
                "The folder %(wanted)s is not allowed. To allow it, the operator adds it to folders.allow.",
                wanted=folder,
            ))
        base, read_only = max(matches, key=lambda pair: len(pair[0]))
        inner = folder[len(base) :].strip("/")
        return Jail(base, inner, read_only=read_only, quota=self.quota, deadline=deadline)


@dataclass(frozen=True)
class TenantFolders:
    """The folders of the operator's list that one tenant may use."""

    allowed: AllowedFolders = AllowedFolders()
    tenant: str = ""

    def open(self, path: str, deadline: float) -> Jail:
        """See `AllowedFolders.open`."""
        return self.allowed.open(self.tenant, path, deadline)


def _parse(entry: str) -> FolderRule:
    read_only = entry.endswith(_READ_ONLY)
    path = entry.removesuffix(_READ_ONLY)
    parts = path.split("/")
    if not path.startswith("/") or len(path) < 2 or os.path.normpath(path) != path or "\0" in path:
        raise ConfigInvalid(Sentence(
            "folders.allow: %(entry)s is not an absolute folder path; write /srv/exchange or /srv/exchange:ro", entry=repr(entry)
        ))
    if any(("{" in part or "}" in part) and part != _TENANT for part in parts):
        raise ConfigInvalid(Sentence(
            "folders.allow: %(entry)s contains braces; %(tenant)s may only replace a whole path segment: /srv/%(tenant)s/in",
            entry=repr(entry), tenant=_TENANT,
        ))
    return FolderRule(path, read_only)


def _parts(rule: FolderRule) -> tuple[str, ...]:
    """Split the rule's path into parts, with symbolic links before `{tenant}` resolved."""
    fixed, _, rest = rule.path.partition(f"/{_TENANT}")
    tail = f"{_TENANT}{rest}".split("/") if fixed != rule.path else []
    return (*Path(fixed or "/").resolve().parts, *tail)


def _nested(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Return whether the two paths are equal or one could contain the other; `{tenant}` matches any part."""
    return all(_TENANT in (a, b) or a == b for a, b in zip(one, other, strict=False))
