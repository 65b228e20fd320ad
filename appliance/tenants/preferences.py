"""What a person has chosen for themselves, in every tenant."""

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import audit

from .models import Person


def choose_language(scope: TenantScope, user_id: str, tag: str) -> None:
    """What a user's pages are written in, in every tenant; empty leaves it to the browser.  Which are known the edge says."""

    def change() -> None:
        Person.update(language=tag).where(Person.id == user_id).execute()
        audit.record(scope, "language.change", user_id, {"language": tag})

    db.write(change)


def language_of(login: str) -> str:
    """What the user with this login has chosen; empty when they have not, or there is none."""
    person: Person | None = Person.get_or_none(Person.login == login)
    return "" if person is None else str(person.language)
