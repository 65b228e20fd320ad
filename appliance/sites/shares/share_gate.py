"""The gate of a share: its password, and its audience, whose e-mail addresses are verified by a one-time code."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

from appliance.core import clock
from appliance.core.errors import ApplianceError, Overloaded, RateLimited
from appliance.core.networks import wide_network_of
from appliance.core.scope import TenantScope
from appliance.core.texts import mark_error
from appliance.documents.sharing import VISIT_MS, Audience, OpenShare, Origin, Shares
from appliance.sites.sign_in.code_emails import CodeEmails, Purpose
from appliance.sites.sign_in.visiting import Page, Redirect
from appliance.tenants import split_host
from appliance.tenants.sign_in import (
    LIFETIME_MS,
    Attempt,
    Attempts,
    CodeTarget,
    DailyLimit,
    EmailCodes,
    PasswordChecks,
    SignInFailed,
    open_counts,
    parse_email,
)
from appliance.web import Exchange, Headers, Request, cookie_pairs

PREFIX = "/s/"
# Wrong passwords per share and day, from one wide network and in total, before attempts are limited to one per WRONG_SECONDS.
FREE_PER_NETWORK, FREE_IN_TOTAL, WRONG_SECONDS = 200, 2_000, 60.0
FREE_EMAILS, EMAIL_SECONDS, LONGEST_EMAIL_SECONDS = 5, 60.0, 1800.0
WRONG = mark_error("that password is not correct")
NO_EMAIL = mark_error("this is not a valid e-mail address; use the form name@example.com")
EXPIRED = mark_error("this code is no longer valid: codes last ten minutes and five attempts; request a new one")


@dataclass(frozen=True)
class Visit:
    """The state in the cookie of a share: expiry, the download counted for it, and the verified e-mail address.

    `has_password` is true when the password was entered or none is needed; `open` when nothing is left to verify.
    """

    has_password: bool
    open: bool
    download_id: str = ""
    person: str = ""
    until: int = 0


@dataclass(frozen=True)
class ShareRequest:
    """A request for a valid share."""

    tenant: TenantScope
    token: str
    opened: OpenShare
    visit: Visit
    origin: Origin
    exchange: Exchange

    @property
    def http(self) -> Request:
        return self.exchange.request

    @property
    def page(self) -> str:
        return f"{PREFIX}{self.token}"

    @property
    def key(self) -> tuple[str, str]:
        return self.tenant.tenant_id, self.opened.share.id

    @property
    def address(self) -> str:
        return self.http.address

    @property
    def door(self) -> CodeTarget:
        return CodeTarget(self.tenant, f"share:{self.opened.share.id}", split_host(self.http.authority))


@dataclass(frozen=True)
class PendingCheck:
    """A password check in progress; `ShareGate.finish` turns its result into a response."""

    work: Future[None]


class ShareGate:
    """Decides who may open a share; every method except `read_visit` and `cookie` blocks."""

    def __init__(self, shares: Shares, checks: PasswordChecks, codes: EmailCodes, emails: CodeEmails) -> None:
        self._shares = shares
        self._checks = checks
        self._codes = codes
        self._post = emails
        self._failures_per_network = DailyLimit(FREE_PER_NETWORK, WRONG_SECONDS, open_counts("share network"))
        self._failures_in_total = DailyLimit(FREE_IN_TOTAL, WRONG_SECONDS, open_counts("share total"))
        self._email_attempts = Attempts(FREE_EMAILS, EMAIL_SECONDS, LONGEST_EMAIL_SECONDS, open_counts("share email"))

    def read_visit(self, opened: OpenShare, headers: Headers) -> Visit:
        """Read the visit from this browser's cookie."""
        audience, needs_password = opened.share.audience, opened.share.has_password
        for ticket in _tickets(headers, _visit_cookie(opened)):
            until, _, rest = (self._shares.read_ticket(opened, ticket) or "").partition("-")
            download_id, _, person = rest.partition("-")
            if until.isdigit() and int(until) > clock.now_ms():
                is_allowed = audience is None or audience.allows(person)
                return Visit(True, is_allowed, download_id, person if is_allowed else "", int(until))
        return Visit(not needs_password, not needs_password and audience is None)

    def cookie(self, request: ShareRequest, download_id: str = "", person: str = "") -> tuple[bytes, bytes]:
        """The visit as a cookie; downloading does not extend the visit of a verified e-mail address."""
        visit = request.visit
        until = visit.until if visit.person else clock.now_ms() + VISIT_MS
        ticket = self._shares.seal_ticket(request.opened, f"{until}-{download_id}-{person or visit.person}")
        return as_header(_visit_cookie(request.opened), ticket)

    # -- pages

    def show_next_step(self, request: ShareRequest, problem: str = "", status: int = 403) -> Page:
        """The page for the next verification step. It reveals nothing about the file."""
        if not request.http.can_hold_cookies:
            return Page("needs_https.html", {"host": f"{request.http.authority}{request.page}"}, 426)
        if not request.visit.has_password:
            return Page("share_password.html", {"page": request.page, "problem": problem}, status)
        email = self._requested_code(request)[1]
        if email and request.http.query_string != b"again":
            return Page("share_code.html", {"page": request.page, "problem": problem, "email": email}, status)
        return Page("share_email.html", {"page": request.page, "problem": problem, "email": email}, status)

    def answer_form(self, request: ShareRequest, form: Mapping[str, str]) -> Page | Redirect | PendingCheck:
        """Process the form of one of these pages."""
        is_foreign = request.http.headers.get("sec-fetch-site") in ("cross-site", "same-site")
        audience = request.opened.share.audience
        if request.visit.open:
            return Redirect(request.page, {_visit_cookie(request.opened): ""} if "leave" in form and not is_foreign else {})
        if is_foreign:
            return self.show_next_step(request, mark_error("this form was sent from another page; fill it in here"))
        if not request.visit.has_password or audience is None:
            return self._check_password(request, form.get("password", ""))
        if "code" in form:
            return self._check_code(request, audience, form["code"])
        return self._ask_code(request, audience, form.get("email", ""))

    # -- the password

    def _check_password(self, request: ShareRequest, password: str) -> Page | PendingCheck:
        """Limit guesses per share and network. After many wrong passwords in a day, all networks with wrong guesses share one
        limit; other networks, and visitors who entered the password before, can still try."""
        attempt = Attempt(f"share:{'/'.join(request.key)}", request.address)
        is_known, network = self._checks.is_known(attempt), (*request.key, wide_network_of(request.address))
        try:
            if not is_known and self._failures_per_network.has_failed(network):
                self._failures_per_network.begin(network)
                self._failures_in_total.begin(request.key)
            return PendingCheck(self._checks.submit(attempt, partial(self._verify, request, password, () if is_known else network)))
        except (RateLimited, Overloaded) as error:
            return self._show_error(request, error)

    def _verify(self, request: ShareRequest, password: str, network: tuple[str, ...]) -> None:
        """Runs in a password-check thread: SignInFailed for a wrong password, which counts for `network` if given."""
        if self._shares.verify_password(request.tenant, request.opened, password, request.origin):
            return
        if network:
            self._failures_per_network.fail(network)
            self._failures_in_total.fail(request.key)
        raise SignInFailed(WRONG)

    def finish(self, request: ShareRequest, pending: PendingCheck) -> Page | Redirect:
        """The response after a password check has finished."""
        try:
            pending.work.result()
        except SignInFailed as error:
            return self.show_next_step(request, error.message)
        return self._enter(request, "")

    def _show_error(self, request: ShareRequest, error: ApplianceError) -> Page:
        return replace(self.show_next_step(request, error.message, error.status), headers=error.headers)

    # -- the audience

    def _ask_code(self, request: ShareRequest, audience: Audience, entered: str) -> Page | Redirect:
        email = parse_email(entered)
        page = Page("share_email.html", {"page": request.page, "problem": NO_EMAIL, "email": entered[:254]}, 422)
        if not email:
            return page
        try:
            self._email_attempts.begin(request.key, request.address)
            languages, sharer = request.http.headers.get("accept-language", ""), request.tenant.tenant_id
            purpose = Purpose(request.door, audience.integration, languages, request.address, sharer)
            code_id = self._post.request(purpose, email, allowed=audience.allows(email))
        except RateLimited as error:
            values = {**page.values, "problem": error.message}
            return Page(page.template, values, error.status, headers=error.headers)
        ticket = f"ask-{clock.now_ms() + LIFETIME_MS}-{code_id}-{email}"
        return Redirect(request.page, {_code_cookie(request.opened): self._shares.seal_ticket(request.opened, ticket)})

    def _requested_code(self, request: ShareRequest) -> tuple[str, str]:
        """The id of the code this browser requested, and the e-mail address; empty when there is none or it expired."""
        for ticket in _tickets(request.http.scope["headers"], _code_cookie(request.opened)):
            kind, _, rest = (self._shares.read_ticket(request.opened, ticket) or "").partition("-")
            until, _, code_and_email = rest.partition("-")
            code_id, _, email = code_and_email.partition("-")
            if kind == "ask" and int(until) > clock.now_ms():
                return code_id, email
        return "", ""

    def _check_code(self, request: ShareRequest, audience: Audience, code: str) -> Page | Redirect:
        code_id, _ = self._requested_code(request)
        if not code_id:
            return self.show_next_step(request, mark_error("the code was requested in another browser, or too long ago"))
        result = self._codes.check(request.door, code_id, code, request.address)
        if result.is_over:
            return self.show_next_step(request, EXPIRED)
        if not result.email or not audience.allows(result.email):
            self._shares.note_failure(request.tenant, request.opened, "wrong_code", request.origin)
            return self.show_next_step(request, mark_error("that code is not correct; check the latest e-mail"))
        self._email_attempts.succeed(request.key, request.address)
        return self._enter(request, result.email)

    def _enter(self, request: ShareRequest, person: str) -> Redirect:
        ticket = self._shares.seal_ticket(request.opened, f"{clock.now_ms() + VISIT_MS}--{person}")
        cleared = {_code_cookie(request.opened): ""} if person else {}
        return Redirect(request.page, {_visit_cookie(request.opened): ticket, **cleared})


def as_header(name: str, value: str) -> tuple[bytes, bytes]:
    """A Set-Cookie header for this host; an empty value deletes the cookie."""
    longest = LIFETIME_MS if name.startswith(_CODE_COOKIE) else VISIT_MS
    seconds = longest // 1000 if value else 0
    return b"set-cookie", f"{name}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax".encode()


def response_headers(response: Page | Redirect) -> Headers:
    """The headers of a response besides those of its body."""
    cookies = [as_header(name, value) for name, value in response.cookies.items()]
    more = response.headers.items() if isinstance(response, Page) else ()
    return [*cookies, *((name.lower().encode(), value.encode("latin1", "replace")) for name, value in more)]


_CODE_COOKIE = "__Host-gos_ask_"


def _visit_cookie(opened: OpenShare) -> str:
    return f"__Host-gos_{opened.share.id}"


def _code_cookie(opened: OpenShare) -> str:
    return f"{_CODE_COOKIE}{opened.share.id}"


def _tickets(headers: Headers, cookie: str) -> list[str]:
    """Every value of the cookie with this name."""
    return [value for name, value in cookie_pairs(headers) if name == cookie]
