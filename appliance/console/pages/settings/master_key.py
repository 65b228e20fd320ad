"""Page for administrators: the master keys of the appliance, which of them seals, and what earlier ones still have to open."""

from collections.abc import Callable
from dataclasses import dataclass

from appliance.console.frame.routing import Answer, Page, Redirect, Visit, page
from appliance.core import clock
from appliance.core.errors import ApplianceError
from appliance.core.texts import mark
from appliance.master_key import KeyRecord, MasterKeyStatus, get_status, retire_keys, rotate_key

from .appliance import require_administrator

HERE = "/console/appliance/master-key"
SOURCES = {
    "file": mark("the key file in the data folder"), "environment": mark("an environment variable"),
    "credential": mark("a credential of systemd"), "command": mark("a command, such as the client of a vault"),
}  # fmt: skip
STATES = {
    "current": mark("seals everything new"), "next": mark("becomes current in a few seconds"),
    "earlier": mark("opens what it has sealed"), "retired": mark("retired"),
}  # fmt: skip


@dataclass(frozen=True)
class KeyLine:
    """A master key on the page; `since` is when it became current, and `waiting` how many values need it as an earlier one."""

    id: str
    state: str
    since: int
    retired_at: int | None
    waiting: int


@page("GET", "/appliance/master-key", scope=None)
def show_master_key(visit: Visit) -> Answer:
    """The keys with their states, the values by column that an earlier key opens, and the forms to rotate and retire."""
    require_administrator(visit)
    return _page(visit)


def _page(visit: Visit, problem: ApplianceError | None = None) -> Page:
    status = get_status(visit.services.sealer)
    columns = sorted((column, key, count) for (column, key), count in status.earlier.items())
    lines = [_line_of(status, each) for each in reversed(status.keys)]
    values = {
        "keys": lines, "states": STATES, "columns": columns, "waiting": status.waiting, "problem": problem,
        "unreadable": sorted(status.unreadable.items()), "source": SOURCES[visit.services.config.master_key.source],
        "can_retire": any(each.state == "earlier" for each in lines),
    }  # fmt: skip
    return Page("master_key.html", values, problem.status if problem else 200)


def _line_of(status: MasterKeyStatus, key: KeyRecord) -> KeyLine:
    state = "current" if key.id == status.current else "next" if key.current_from > clock.now_ms() else "earlier"
    return KeyLine(
        key.id, "retired" if key.retired_at else state, since=key.current_from or key.made_at, retired_at=key.retired_at,
        waiting=sum(status.needing(key.id).values()),
    )  # fmt: skip


@page("POST", "/appliance/master-key/rotate", scope=None, step_up=True, asks_password=True)
def rotate_master_key(visit: Visit) -> Answer:
    """Make a new key current, with which all values are sealed anew in the background."""
    return _change(visit, lambda: rotate_key(visit.services.config, actor=visit.scope.actor))


@page("POST", "/appliance/master-key/retire", scope=None, step_up=True, asks_password=True)
def end_earlier_keys(visit: Visit) -> Answer:
    """End the earlier keys; refused while a value needs one of them."""
    return _change(visit, lambda: retire_keys(visit.services.config, visit.services.sealer, actor=visit.scope.actor))


def _change(visit: Visit, change: Callable[[], object]) -> Answer:
    require_administrator(visit)
    try:
        change()
    except ApplianceError as error:
        return _page(visit, error)
    return Redirect(HERE)
