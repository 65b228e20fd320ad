"""Personal preferences, which apply in every tenant."""

from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.monitor import audit

from .models import Person


def choose_language(scope: TenantScope, user_id: str, tag: str) -> None:
    """Set a user's language in every tenant; empty follows the browser.  The edge validates the tag."""

    def change() -> None:
        Person.update(language=tag).where(Person.id == user_id).execute()
        audit.record(scope, "language.change", user_id, {"language": tag})

    db.write(change)


def language_of(login: str) -> str:
    """The language chosen by the user with this login; empty if there is none."""
    person: Person | None = Person.get_or_none(Person.login == login)
    return "" if person is None else str(person.language)
