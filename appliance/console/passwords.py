"""Checks passwords a few at a time: each takes 64 MiB and a good part of a second, and anybody may ask."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import BoundedSemaphore
from typing import TypeVar

from appliance.core.errors import Overloaded
from appliance.core.scope import TenantScope
from appliance.governance.invitations import Invitations
from appliance.tenants import people

T = TypeVar("T")

AT_ONCE = 2
MOST_WAITING = 40

_threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="password")
_places = BoundedSemaphore(MOST_WAITING)


@dataclass(frozen=True)
class Checked:
    """A user whose password was right."""

    user_id: str
    login: str


@dataclass(frozen=True)
class Joined:
    """A user who accepted an invitation, and the tenant they belong to now."""

    user_id: str
    tenant_id: str


def _check(login: str, password: str) -> Checked:
    person = people.check_password(login, password)
    return Checked(person.id, person.login)


def _change(scope: TenantScope, login: str, old: str, new: str) -> Checked:
    person = people.change_password(scope, login, old, new)
    return Checked(person.id, person.login)


def _accept(inviting: Invitations, token: str, password: str) -> Joined:
    return Joined(*inviting.accept(token, password))


def check(login: str, password: str) -> "Future[Checked]":
    """Who it is, or the coded error why not; Overloaded when too many wait already."""
    return _submit(lambda: _check(login, password))


def change(scope: TenantScope, login: str, old: str, new: str) -> "Future[Checked]":
    """Replace one's own password, or the coded error why not; Overloaded when too many wait already."""
    return _submit(lambda: _change(scope, login, old, new))


def accept_invitation(inviting: Invitations, token: str, password: str) -> "Future[Joined]":
    """Use an invitation up with this password, or the coded error why not; Overloaded when too many wait already."""
    return _submit(lambda: _accept(inviting, token, password))


def _submit(work: Callable[[], T]) -> "Future[T]":
    if not _places.acquire(blocking=False):
        raise Overloaded("too many people sign in at once; try again in a moment", headers={"Retry-After": "5"})
    begun = _threads.submit(work)
    begun.add_done_callback(lambda _: _places.release())
    return begun
