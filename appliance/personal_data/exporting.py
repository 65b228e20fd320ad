"""A copy of what is stored about a person, as a ZIP with a file of JSON for each kind, and a page that says what they are.

Other people in it are masked, because the copy must not adversely affect their rights (GDPR, Article 15(4)).
"""

import json
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database import db
from appliance.core.texts import gettext as _

from . import rows, trails
from .kinds import Form, Kind, Table
from .subjects import Subject
from .survey import Count, count_rows
from .wording import INTRODUCTION, describe_kind

README = "README.txt"
OTHER = "another person"
_YEAR_10000_MS = 253_402_300_800_000
_ACTOR = re.compile(r"(user:\S+|usr_[0-9A-Za-z]+)")
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_LOGIN_MEMBERS = frozenset({"login", "email", "logins"})


@dataclass(frozen=True)
class Export:
    """What an export contains: the kinds with the numbers of their rows."""

    counts: tuple[Count, ...]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.counts)


def export_to(
    file: IO[bytes], subject: Subject, actor: str, config: Config, *, tenant_id: str | None = None
) -> Export:
    """Write the copy, explained in the current language; the audit trails of the tenants get an entry first, with the actor."""
    counts = [each for each in count_rows(subject, tenant_id) if each.kind.is_exported]
    db.write(lambda: trails.record(counts, "person.export", subject, actor, {"rows": sum(each.rows for each in counts)}))
    with db.snapshot(), zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(README, "\n".join(_explain(counts, subject, config)))
        for each in counts:
            with archive.open(f"{each.kind.id}.json", "w") as member:
                member.writelines(piece.encode() for piece in _pieces(each.kind, subject, tenant_id))
    return Export(tuple(counts))


def _explain(counts: list[Count], subject: Subject, config: Config) -> Iterator[str]:
    yield _(INTRODUCTION, who=subject.login, at=clock.rfc3339(clock.now_ms()))
    for each in counts:
        yield f"\n{each.kind.id}.json: {_(each.kind.title)} ({each.rows})"
        yield from (f"    {sentence}" for sentence in describe_kind(each.kind, config))
    yield ""


def _pieces(kind: Kind, subject: Subject, tenant_id: str | None) -> Iterator[str]:
    """The kind as JSON: an object with a list of rows for each table."""
    yield "{"
    for number, table in enumerate(kind.tables):
        yield f'{"," if number else ""}\n"{table.name}": ['
        for position, row in enumerate(rows.iterate(table, subject, tenant_id)):
            text = json.dumps(_to_view(table, row, subject), ensure_ascii=False, indent=1)
            yield f'{"," if position else ""}\n{text}'
        yield "]"
    yield "\n}\n"


def _to_view(table: Table, row: tuple[Any, ...], subject: Subject) -> dict[str, Any]:
    own = {subject.login, subject.user_id, f"user:{subject.user_id}", f"user:{subject.login}"}
    view: dict[str, Any] = {}
    stored_values = dict(zip(table.exported, row, strict=True))
    for column, stored in stored_values.items():
        value = _mask(rows.decode(column, stored), own)
        if value and column in table.copies and stored_values[table.copies[column]] not in own:
            value = OTHER
        if table.names.get(column) is Form.LOGIN and isinstance(value, str) and value and value.lower() not in own:
            value = OTHER
        view[column] = _to_time(value) if _is_time(column) and isinstance(value, int) else value
    return view


def _mask(value: Any, own: set[str], member: str = "") -> Any:
    """The value without the ids and addresses of other people, which stand alone as texts; free text stays as it is."""
    if isinstance(value, dict):
        return {name: _mask(each, own, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_mask(each, own, member) for each in value]
    if not isinstance(value, str) or not value or value.lower() in own or value in own:
        return value
    names_somebody = _ACTOR.fullmatch(value) or _ADDRESS.fullmatch(value) or member in _LOGIN_MEMBERS
    return OTHER if names_somebody else value


def _is_time(column: str) -> bool:
    return column == "at" or column.endswith("_at")


def _to_time(milliseconds: int) -> str | int | None:
    """A time; None for none, and a time that no calendar has as the number that it is."""
    if milliseconds <= 0:
        return None
    return clock.rfc3339(milliseconds) if milliseconds < _YEAR_10000_MS else milliseconds
