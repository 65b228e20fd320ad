"""Polls for changed records with a cursor over the time of the last change, without missing any.

"Later than the last one seen" is not enough.  Many records can change at the same moment (an import), so within a moment
the cursor continues by id.  And a change can become visible later than its timestamp, because its transaction took long or
a search index lagged: for a minute after a new change was seen, polls look one minute back.  A change that is returned
twice has the same key both times, and the appliance starts an execution for each key only once.
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
    """A record and the moment of its last change, in UTC."""

    at: datetime
    id: int | str
    record: Mapping[str, Any]
    reported_at: str = ""
    """The moment as the system reports it, when it has no time zone and therefore may not be in UTC."""


class Source(Protocol):
    """Reads changes from a system.  Moments have the precision in which the system reports them."""

    def find_newest(self) -> Change | None:
        """Return the latest change, None when there is none."""

    def list_at(self, at: datetime, after: int | str | None, limit: int) -> list[Change]:
        """Return changes at exactly this moment with ids greater than `after`, ordered by id."""

    def list_after(self, at: datetime | None, limit: int) -> list[Change]:
        """Return changes after this moment, or all when it is None, ordered by moment."""


@dataclass(frozen=True)
class _Position:
    """How far changes have been read: all moments before `at`, and at that moment ids up to `id`."""

    at: datetime | None = None
    id: int | str | None = None


@dataclass(frozen=True)
class _State:
    position: _Position
    floor: _Position
    """Where the trigger started; polls never look back further."""
    newest: datetime | None = None
    since: float = 0.0
    """When `newest` was first seen, in seconds since 1970."""


def poll_changes(source: Source, query: Json, cursor: Any, now: Callable[[], float] = time.time) -> Polled:
    """Return what changed since the cursor, None for the first poll; `begin` of the query is `now` or `start`."""
    if cursor is None:
        begin = _Position()
        if query.get("begin", "now") == "now" and (last := source.find_newest()) is not None:
            begin = _Position(last.at, last.id)
        state = _State(begin, begin, begin.at)
        if query.get("begin", "now") == "now":
            return Polled((), _serialize(state))
    else:
        state = _parse_state(cursor)
    changes, position, done = _read_page(source, state.position)
    while not changes and not done:
        changes, position, done = _read_page(source, position)
    state = replace(state, position=position)
    if done:
        state = _with_overlap(state, now())
    return Polled([_to_item(each) for each in changes], _serialize(state), more=not done)


def _read_page(source: Source, position: _Position) -> tuple[list[Change], _Position, bool]:
    """Return a page of changes, the position after it, and whether it is the last page."""
    changes: list[Change] = []
    if position.at is not None:
        changes = source.list_at(position.at, position.id, PAGE)
        if len(changes) >= PAGE:
            return changes, _Position(position.at, changes[-1].id), False
    rest = source.list_after(position.at, PAGE)
    if len(rest) >= PAGE:
        # The last moment may continue after this page, in an order other than by id: it is read separately next.
        last = rest[-1].at
        if rest[0].at > last or (position.at is not None and last <= position.at):
            raise SystemFailure("The system did not return changes in the order of their time.")
        return changes + [each for each in rest if each.at < last], _Position(last), False
    changes += rest
    return changes, _last_position(changes) or position, True


def _last_position(changes: list[Change]) -> _Position | None:
    if not changes:
        return None
    last = max(each.at for each in changes)
    ids = [each.id for each in changes if each.at == last]
    numbers = [each for each in ids if isinstance(each, int)]
    # Text ids are ordered by the system's own rules: the last one returned is the highest.
    return _Position(last, max(numbers) if len(numbers) == len(ids) else ids[-1])


def _with_overlap(state: _State, now: float) -> _State:
    """Return the state after the last page, moved back by the overlap while late changes could still appear."""
    end = state.position
    if end.at is None:
        return state
    if end.at != state.newest:
        state = replace(state, newest=end.at, since=now)
    if now - state.since > OVERLAP_S:
        return state
    start = end.at - timedelta(seconds=OVERLAP_S)
    return replace(state, position=state.floor if state.floor.at is not None and start <= state.floor.at else _Position(start))


def _to_item(change: Change) -> Item:
    at = change.at.isoformat().replace("+00:00", "Z")
    return Item(f"{change.id}@{at}", {"id": change.id, "changed_at": change.reported_at or at, "record": dict(change.record)})


# -- the cursor as JSON


def _serialize(state: _State) -> dict[str, Any]:
    return {
        "at": _format_moment(state.position.at), "id": state.position.id,
        "floor": _format_moment(state.floor.at), "floor_id": state.floor.id,
        "newest": _format_moment(state.newest), "since": state.since,
    }  # fmt: skip


def _parse_state(cursor: Mapping[str, Any]) -> _State:
    position = _Position(parse_moment(cursor["at"]), cursor["id"])
    floor = _Position(parse_moment(cursor["floor"]), cursor["floor_id"])
    return _State(position, floor, parse_moment(cursor["newest"]), cursor["since"])


def _format_moment(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def parse_moment(text: str | None) -> datetime | None:
    """Parse an ISO 8601 date and time, taken as UTC when it has no time zone."""
    if text is None:
        return None
    at = datetime.fromisoformat(text)
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def moment_of(value: Any, system: str) -> datetime:
    """Parse the time of a record's last change; SystemFailure when it is missing or invalid."""
    try:
        at = parse_moment(value) if isinstance(value, str) else None
    except ValueError:
        at = None
    if at is None:
        raise SystemFailure(f"{system} returned a record without the time of its last change.")
    return at
