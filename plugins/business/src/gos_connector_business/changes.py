"""Triggers for changed records: a cursor over the moment of the last change that leaves none out.

Two things make this harder than "greater than the last one seen".  Many records change at one moment (an import), so
within a moment the cursor goes on by id.  And a change may become visible later than its moment says, because a
transaction took its time or a search index was behind: for a minute after something new was seen, polls look a minute
back.  What comes twice has the same key, and the appliance starts nothing twice.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from appliance.connectors.contract import Item, Json, Polled, SystemFailure

PAGE = 200
OVERLAP_S = 60.0


@dataclass(frozen=True)
class Change:
    """A record as it is since a moment, in UTC."""

    at: datetime
    id: int | str
    record: Mapping[str, Any]
    told_at: str = ""
    """The moment as the system tells it, where it says no zone and so may not mean UTC."""


class Source(Protocol):
    """Where changes are read.  A moment is as fine as the system tells it."""

    def newest(self) -> Change | None:
        """The change that came last."""

    def same(self, at: datetime, after: int | str | None, limit: int) -> list[Change]:
        """Changes of this very moment with ids after this one, ordered by id."""

    def later(self, at: datetime | None, limit: int) -> list[Change]:
        """Changes after this moment, ordered by it; with None all."""


@dataclass(frozen=True)
class _Place:
    """Everything before this is known: moments before `at`, and at that moment ids up to `id`."""

    at: datetime | None = None
    id: int | str | None = None


@dataclass(frozen=True)
class _State:
    place: _Place
    floor: _Place
    """Where the trigger began: it never looks back farther."""
    newest: datetime | None = None
    since: float = 0.0
    """When `newest` was first seen, in seconds of the epoch."""


def poll_changes(source: Source, query: Json, cursor: Any, now: Callable[[], float] = time.time) -> Polled:
    """One poll: what changed since the cursor, which is None the first time; the query says where to `begin`."""
    if cursor is None:
        begin = _Place()
        if query.get("begin", "now") == "now" and (last := source.newest()) is not None:
            begin = _Place(last.at, last.id)
        state = _State(begin, begin, begin.at)
        if query.get("begin", "now") == "now":
            return Polled((), _told(state))
    else:
        state = _state_of(cursor)
    found, place, done = _read(source, state.place)
    while not found and not done:
        found, place, done = _read(source, place)
    state = replace(state, place=place)
    if done:
        state = _settled(state, now())
    return Polled([_item(each) for each in found], _told(state), more=not done)


def _read(source: Source, place: _Place) -> tuple[list[Change], _Place, bool]:
    """A page of changes, where they end, and whether there is nothing after them."""
    found: list[Change] = []
    if place.at is not None:
        found = source.same(place.at, place.id, PAGE)
        if len(found) >= PAGE:
            return found, _Place(place.at, found[-1].id), False
    rest = source.later(place.at, PAGE)
    if len(rest) >= PAGE:
        # The last moment may go on after this page, in an order that is not the ids': it is read by itself next.
        last = rest[-1].at
        if rest[0].at > last or (place.at is not None and last <= place.at):
            raise SystemFailure("The system did not answer changes in the order of their moments.")
        return found + [each for each in rest if each.at < last], _Place(last), False
    found += rest
    return found, _end_of(found) or place, True


def _end_of(found: list[Change]) -> _Place | None:
    if not found:
        return None
    last = max(each.at for each in found)
    ids = [each.id for each in found if each.at == last]
    numbers = [each for each in ids if isinstance(each, int)]
    # Texts are ordered as the other side orders them: the last one answered is the highest.
    return _Place(last, max(numbers) if len(numbers) == len(ids) else ids[-1])


def _settled(state: _State, now: float) -> _State:
    """The state for the next poll when all was read: a while back as long as something could still appear there."""
    end = state.place
    if end.at is None:
        return state
    if end.at != state.newest:
        state = replace(state, newest=end.at, since=now)
    if now - state.since > OVERLAP_S:
        return state
    back = end.at - timedelta(seconds=OVERLAP_S)
    return replace(state, place=state.floor if state.floor.at is not None and back <= state.floor.at else _Place(back))


def _item(change: Change) -> Item:
    at = change.at.isoformat().replace("+00:00", "Z")
    return Item(f"{change.id}@{at}", {"id": change.id, "changed_at": change.told_at or at, "record": dict(change.record)})


# -- the cursor as JSON


def _told(state: _State) -> dict[str, Any]:
    return {
        "at": _text(state.place.at), "id": state.place.id, "floor": _text(state.floor.at), "floor_id": state.floor.id,
        "newest": _text(state.newest), "since": state.since,
    }  # fmt: skip


def _state_of(cursor: Mapping[str, Any]) -> _State:
    place, floor = _Place(moment(cursor["at"]), cursor["id"]), _Place(moment(cursor["floor"]), cursor["floor_id"])
    return _State(place, floor, moment(cursor["newest"]), cursor["since"])


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def moment(text: str | None) -> datetime | None:
    """A moment in ISO 8601, in UTC where it does not say."""
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def moment_of(value: Any, who: str) -> datetime:
    """The moment that a record carries; SystemFailure when it carries none."""
    try:
        at = moment(value) if isinstance(value, str) else None
    except ValueError:
        at = None
    if at is None:
        raise SystemFailure(f"{who} answered a record without the moment of its last change.")
    return at
