"""Personal data: one's own to download; that of others for administrators, and that of visitors for the owners of a tenant."""

import re
import tempfile
from collections.abc import Iterator
from typing import IO

from appliance.console.frame.routing import Answer, File, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, ValidationFailed
from appliance.personal_data import (
    DOMAIN,
    OUTCOMES,
    Subject,
    count_rows,
    describe_retention,
    erase,
    export_to,
    find_subject,
    find_visitor,
)
from appliance.tenants import accounts

from .appliance import require_administrator

PEOPLE, VISITORS = "/console/appliance/people", "/console/settings/visitors"
PIECE = 1 << 20
_PSEUDONYM = re.compile(rf"erased-[0-9a-f]+@{re.escape(DOMAIN)}")


@page("POST", "/account/data", scope=None, step_up=True)
def download_own_data(visit: Visit) -> Answer:
    """A copy of what is stored about the visitor themselves, in all tenants."""
    return _make_export(visit, find_subject(visit.person.user_id), None)


@page("GET", "/appliance/people", scope=None)
def show_person(visit: Visit) -> Answer:
    """What is stored about a person, for administrators."""
    require_administrator(visit)
    return _show(visit, None)


@page("POST", "/appliance/people/data", scope=None, step_up=True)
def download_data(visit: Visit) -> Answer:
    """A copy of what is stored about a person, for administrators."""
    require_administrator(visit)
    return _download(visit, None)


@page("POST", "/appliance/people/erase", scope=None, step_up=True)
def erase_person(visit: Visit) -> Answer:
    """Erase a person, for administrators."""
    require_administrator(visit)
    return _erase(visit, None)


@page("GET", "/settings/visitors", scope="keys.write")
def show_visitor(visit: Visit) -> Answer:
    """What somebody left in this tenant as a visitor of WebApps and shares."""
    return _show(visit, visit.scope.tenant_id)


@page("POST", "/settings/visitors/data", scope="keys.write", step_up=True)
def download_visitor_data(visit: Visit) -> Answer:
    """A copy of what a visitor left in this tenant."""
    return _download(visit, visit.scope.tenant_id)


@page("POST", "/settings/visitors/erase", scope="keys.write", step_up=True)
def erase_visitor(visit: Visit) -> Answer:
    """Erase what a visitor left in this tenant."""
    return _erase(visit, visit.scope.tenant_id)


def _show(visit: Visit, tenant_id: str | None) -> Answer:
    login = visit.request.args.get("login", "").strip()
    try:
        subject = _find(login, tenant_id) if login else None
    except ApplianceError as error:
        return _page(visit, tenant_id, problem=error)
    return _page(visit, tenant_id, subject)


def _page(visit: Visit, tenant_id: str | None, subject: Subject | None = None, problem: ApplianceError | None = None) -> Page:
    config, erased = visit.services.config, visit.request.args.get("erased", "")
    counts = count_rows(subject, tenant_id) if subject else []
    values = {
        "here": VISITORS if tenant_id else PEOPLE, "of_visitors": tenant_id is not None, "subject": subject, "problem": problem,
        "login": visit.request.field("login") or visit.request.args.get("login", ""),
        "rows": [(each, OUTCOMES[each.kind.erasure], describe_retention(each.kind, config)) for each in counts],
        "sole": accounts.list_sole_tenants(subject.user_id) if subject and subject.has_account and not tenant_id else [],
        "is_self": subject is not None and subject.user_id == visit.person.user_id,
        "erased": erased if _PSEUDONYM.fullmatch(erased) else "",
    }  # fmt: skip
    return Page("personal_data.html", values, problem.status if problem else 200)


def _find(login: str, tenant_id: str | None) -> Subject:
    return find_subject(login) if tenant_id is None else find_visitor(login)


def _download(visit: Visit, tenant_id: str | None) -> Answer:
    try:
        return _make_export(visit, _find(visit.request.field("login"), tenant_id), tenant_id)
    except ApplianceError as error:
        return _page(visit, tenant_id, problem=error)


def _make_export(visit: Visit, subject: Subject, tenant_id: str | None) -> File:
    config = visit.services.config
    file: IO[bytes] = tempfile.TemporaryFile(dir=config.data)  # noqa: SIM115  `_pieces` closes it
    try:
        export_to(file, subject, visit.scope.actor, config, tenant_id=tenant_id)
    except BaseException:
        file.close()
        raise
    return File("personal-data.zip", "application/zip", _pieces(file), file.tell())


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        file.seek(0)
        yield from iter(lambda: file.read(PIECE), b"")


def _erase(visit: Visit, tenant_id: str | None) -> Answer:
    field, subject = visit.request.field, None
    try:
        subject = _find(field("login"), tenant_id)
        if field("typed_login").strip().lower() != subject.login:
            raise ValidationFailed("enter the login once more, to confirm that you mean this person", pointer="/typed_login")
        if tenant_id is None and subject.user_id == visit.person.user_id:
            raise ValidationFailed("you cannot erase yourself; ask another administrator", pointer="/typed_login")
        may_leave = bool(field("leave"))
        erased = erase(subject, visit.scope.actor, tenant_id=tenant_id, may_leave_ownerless=may_leave)
    except ApplianceError as error:
        return _page(visit, tenant_id, subject, error)
    return Redirect(f"{VISITORS if tenant_id else PEOPLE}?erased={erased.pseudonym}")
