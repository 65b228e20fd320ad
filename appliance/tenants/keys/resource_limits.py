"""Limits of a key to named processes, collections and integrations: their form, and what a chain of keys may reach."""

from collections.abc import Iterable, Mapping, Sequence

from appliance.core.errors import ValidationFailed
from appliance.core.scope import ResourceNames
from appliance.core.sentences import Sentence
from appliance.tenants.models import ApiKey

KINDS: Mapping[str, str] = {"processes": "process", "collections": "collection", "integrations": "integration"}
"""The kinds of resources that a key can be limited to, by their names in the API; a limited key reaches none that is not named."""
MAX_NAMES = 200
_LONGEST_NAME = 63
StoredLimits = Mapping[str, Sequence[str]]
"""The names of each kind, sorted, as `ApiKey.limits` has them; kinds without any are left out."""


def normalize(limits: StoredLimits | None) -> dict[str, list[str]] | None:
    """The limits as they are stored; ValidationFailed, with a pointer, for too many names or one that no resource can have."""
    if limits is None:
        return None
    for kind, names in limits.items():
        if kind not in KINDS:
            raise ValidationFailed(Sentence("a key can be limited to %(kinds)s", kinds=", ".join(KINDS)), pointer="/limits")
        if len(names) > MAX_NAMES:
            raise ValidationFailed(
                Sentence("name at most %(most)s %(kind)s", most=MAX_NAMES, kind=kind), pointer=f"/limits/{kind}"
            )
        for index, name in enumerate(names):
            if not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
                raise ValidationFailed(
                    Sentence("%(name)s is not the name of a resource", name=repr(name[:80])), pointer=f"/limits/{kind}/{index}"
                )
    return {kind: sorted(set(limits[kind])) for kind in KINDS if limits.get(kind)}


def combine(keys: Iterable[ApiKey]) -> ResourceNames | None:
    """What a chain of keys may reach together: only what none of them is limited not to; None if no key is limited."""
    combined: ResourceNames | None = None
    for limits in (key.limits for key in keys if key.limits is not None):
        names = {kind: frozenset(limits.get(plural, ())) for plural, kind in KINDS.items()}
        combined = names if combined is None else {kind: combined[kind] & names[kind] for kind in names}
    return combined


def to_stored(names: ResourceNames | None) -> dict[str, list[str]] | None:
    """The form in which `ApiKey.limits` has these names."""
    return None if names is None else {plural: sorted(names[kind]) for plural, kind in KINDS.items() if names.get(kind)}


def check_within(limits: StoredLimits | None, above: ResourceNames | None) -> None:
    """ValidationFailed, with a pointer, if these limits allow what the keys above do not."""
    if above is None:
        return
    if limits is None:
        raise ValidationFailed("the issuing key is limited, so this key must be limited as well", pointer="/limits")
    for plural, kind in KINDS.items():
        for index, name in enumerate(limits.get(plural, ())):
            if name not in above[kind]:
                raise ValidationFailed(
                    Sentence("the issuing key is limited and cannot reach the %(kind)s %(name)s", kind=kind, name=repr(name)),
                    pointer=f"/limits/{plural}/{index}",
                )
