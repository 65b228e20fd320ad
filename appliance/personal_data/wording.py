"""The register in words, in the current language: what becomes of a kind, and how long it is kept."""

from appliance.core.config import Config
from appliance.core.texts import gettext as _
from appliance.core.texts import mark

from .kinds import Erasure, Kind

OUTCOMES = {
    Erasure.DELETE: mark("deleted"), Erasure.PSEUDONYMISE: mark("pseudonymised"), Erasure.KEEP: mark("kept"),
}  # fmt: skip
INTRODUCTION = mark(
    "This is a copy of what the appliance stores about %(who)s, as of %(at)s. Each file has one kind of data, as JSON: a list of "
    "rows for each table. Other people are masked, except in free text such as comments, names and messages."
)


def describe_retention(kind: Kind, config: Config) -> str:
    """How long a kind is kept: such as "400 days (retention.audit_days)"."""
    if not kind.setting:
        return _(kind.period)
    section, _point, name = kind.setting.partition(".")
    days = int(getattr(getattr(config, section), name))
    return _("%(days)s days (%(setting)s)", days=days, setting=kind.setting)


def describe_kind(kind: Kind, config: Config) -> list[str]:
    """What becomes of a kind in an erasure, why it stays, and how long it is kept otherwise; a sentence each."""
    outcome = _("When the person is erased: %(outcome)s.", outcome=_(OUTCOMES[kind.erasure]))
    return [outcome, *([_(kind.reason)] if kind.reason else []), _("Kept: %(period)s.", period=describe_retention(kind, config))]
