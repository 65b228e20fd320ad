"""The factors of an account: list, store, rename and remove them.  Every change is in the trail of each tenant of the person."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.errors import Conflict, NotFound, ValidationFailed
from appliance.core.sentences import Sentence
from appliance.tenants import people
from appliance.tenants.models import RecoveryCodeRow, SecondFactorRow, Session
from appliance.tenants.trails import record_everywhere

Kind = Literal["passkey", "totp"]
MOST, LONGEST_NAME = 20, 60


@dataclass(frozen=True)
class Factor:
    """A factor of an account; `used_at` is None until it has proven something."""

    id: str
    kind: str
    name: str
    created_at: int
    used_at: int | None


def list_factors(user_id: str) -> list[Factor]:
    """The factors of an account, the oldest first."""
    rows = SecondFactorRow.select().where(SecondFactorRow.user_id == user_id).order_by(SecondFactorRow.created_at)
    return [Factor(row.id, row.kind, row.name, row.created_at, row.used_at) for row in rows]


def has_factor(user_id: str) -> bool:
    """Whether the account has a factor."""
    return bool(SecondFactorRow.select().where(SecondFactorRow.user_id == user_id).exists())


def check_name(name: str) -> str:
    """The name of a factor without surrounding spaces; ValidationFailed."""
    name = name.strip()
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise ValidationFailed(
            Sentence("enter a name of 1 to %(most)s characters, such as Laptop or Phone", most=LONGEST_NAME), pointer="/name"
        )
    return name


def add_factor(user_id: str, kind: Kind, name: str, values: Mapping[str, Any]) -> Factor:
    """Inside a write: store a factor that has just been proven; Conflict when there are too many."""
    people.check_enabled(user_id)
    if SecondFactorRow.select().where(SecondFactorRow.user_id == user_id).count() >= MOST:
        raise Conflict(Sentence("you have %(most)s passkeys and apps, which is the maximum; remove one first", most=MOST))
    factor, now = ids.new("fct"), clock.now_ms()
    SecondFactorRow.create(id=factor, user_id=user_id, kind=kind, name=name, created_at=now, **values)
    record_everywhere(user_id, "factor.add", {"kind": kind, "name": name})
    return Factor(factor, kind, name, now, None)


def rename_factor(user_id: str, factor_id: str, name: str) -> None:
    """Give a factor of this account another name; NotFound, ValidationFailed."""
    name = check_name(name)

    def rename() -> None:
        row = _get(user_id, factor_id)
        SecondFactorRow.update(name=name).where(SecondFactorRow.id == row.id).execute()
        record_everywhere(user_id, "factor.rename", {"kind": row.kind, "name": [row.name, name]})

    db.write(rename)


def remove_factor(user_id: str, factor_id: str) -> None:
    """Remove a factor of this account; with the last one, the recovery codes end.  NotFound."""

    def remove() -> None:
        row = _get(user_id, factor_id)
        SecondFactorRow.delete().where(SecondFactorRow.id == row.id).execute()
        if not has_factor(user_id):
            RecoveryCodeRow.delete().where(RecoveryCodeRow.user_id == user_id).execute()
        record_everywhere(user_id, "factor.remove", {"kind": row.kind, "name": row.name})

    db.write(remove)


def reset_factors(login: str) -> int:
    """Remove every factor and recovery code of an account, and end its sessions; returns the number of factors.  NotFound."""

    def reset() -> int:
        person = people.find_user(login)
        count = int(SecondFactorRow.delete().where(SecondFactorRow.user_id == person.id).execute())
        RecoveryCodeRow.delete().where(RecoveryCodeRow.user_id == person.id).execute()
        Session.delete().where(Session.user_id == person.id).execute()
        people.end_other_sign_ins(person.id)
        record_everywhere(person.id, "factor.reset", {"login": person.login, "factors": count}, actor="system")
        return count

    return db.write(reset)


def _get(user_id: str, factor_id: str) -> SecondFactorRow:
    """Inside a write: the factor of this account; NotFound."""
    is_match = (SecondFactorRow.id == factor_id) & (SecondFactorRow.user_id == user_id)
    row: SecondFactorRow | None = SecondFactorRow.get_or_none(is_match)
    if row is None:
        raise NotFound("this passkey or app has been removed already")
    return row
