"""Contents that no row names any more, and that stay in the store until they are due.

PostgreSQL restores a database to an earlier moment, but not the store: what a row named then must still be there.  A place is used
once, so that it can only be named again by a database that was restored.
"""

from collections.abc import Callable, Iterable, Sequence

from appliance.core import clock
from appliance.core.database import db

from .models import DeletedPlace

_DELETED_AT_ONCE = 500


def note_deleted(places: Iterable[str]) -> None:
    """In a write: no row names these places from now on."""
    now = clock.now_ms()
    for place in places:
        DeletedPlace.insert(place=place, deleted_at=now).on_conflict_ignore().execute()


def is_noted(place: str) -> bool:
    """Whether the place stays for a while, and is deleted by `delete_due`."""
    return bool(DeletedPlace.select().where(DeletedPlace.place == place).exists())


def delete_due(delete: Callable[[str], None], find_named: Callable[[Sequence[str]], set[str]], before: int) -> int:
    """Delete the places that were noted until `before` (epoch ms), but not what a row names again; returns their number."""
    count = 0
    due = DeletedPlace.select(DeletedPlace.place).where(DeletedPlace.deleted_at <= before)
    while places := [row.place for row in due.limit(_DELETED_AT_ONCE)]:
        used = find_named(places)
        for place in places:
            if place not in used:
                delete(place)  # again by the next run, if this one is killed before it says so
        db.write(lambda places=places: DeletedPlace.delete().where(DeletedPlace.place.in_(places)).execute())  # type: ignore[misc]
        count += len(places) - len(used)
    return count
