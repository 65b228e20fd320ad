"""The gate of a share: its password, and the addresses of its audience, proven by a code that comes by e-mail."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

from appliance.core import clock
from appliance.core.errors import ApplianceError, Overloaded, RateLimited
from appliance.core.networks import wide_network_of
from appliance.core.scope import TenantScope
from appliance.core.texts import mark_error
from appliance.documents.sharing import VISIT_MS, Audience, OpenShare, Origin, Shares
from appliance.sites.front.answers import Exchange, Headers
from appliance.sites.sign_in.code_letters import CodeLetters, Purpose
from appliance.sites.sign_in.visiting import Page, Redirect, can_hold_cookies
from appliance.tenants import split_host
from appliance.tenants.sign_in import GOOD_MS, Attempt, Attempts, DayPace, Door, EmailCodes, PasswordChecks, SignInFailed, as_email

PREFIX = "/s/"
# Wrong passwords of one share a day, from one wide network and from everywhere; then one attempt in so many seconds.
FREE_OF_NETWORK, FREE_OF_ALL, WRONG_SECONDS = 200, 2_000, 60.0
FREE_LETTERS, LETTER_SECONDS, LONGEST_LETTER_SECONDS = 5, 60.0, 1800.0
WRONG = mark_error("that is not the password")
NO_EMAIL = mark_error("this is no e-mail address; write it like name@example.com")
OVER = mark_error("this code is over: codes last ten minutes and five tries; ask for a new one")


@dataclass(frozen=True)
class Visit:
    """What the cookie of this share says: until when, which download was counted for it, and whose address was proven.

    `has_password` when the password was given or none is asked for; `open` when nothing is left to prove.
    """

    has_password: bool
    open: bool
    download_id: str = ""
    person: str = ""
    until: int = 0


@dataclass(frozen=True)
class Asked:
    """One request for a share that leads somewhere; `headers` have lower-case names."""

    tenant: TenantScope
    token: str
    opened: OpenShare
    visit: Visit
    origin: Origin
    exchange: Exchange
    headers: Mapping[str, str]

    @property
    def page(self) -> str:
        return f"{PREFIX}{self.token}"

    @property
    def key(self) -> tuple[str, str]:
        return self.tenant.tenant_id, self.opened.share.id

    @property
    def address(self) -> str:
        return str(self.exchange.scope["gos.address"])

    @property
    def host(self) -> str:
        return self.headers.get("host", "")

    @property
    def door(self) -> Door:
        return Door(self.tenant, f"share:{self.opened.share.id}", split_host(self.host))


@dataclass(frozen=True)
class Checking:
    """A password that is being checked; `finish` of the gate says what becomes of it."""

    work: Future[None]


class ShareGate:
    """Says who is let in; every verb is blocking but `read_visit`."""

    def __init__(self, shares: Shares, checks: PasswordChecks, codes: EmailCodes, post: CodeLetters) -> None:
        self._shares = shares
        self._checks = checks
        self._codes = codes
        self._post = post
        self._wrong_of_network = DayPace(FREE_OF_NETWORK, WRONG_SECONDS)
        self._wrong_of_all = DayPace(FREE_OF_ALL, WRONG_SECONDS)
        self._letters = Attempts(FREE_LETTERS, LETTER_SECONDS, LONGEST_LETTER_SECONDS)

    def read_visit(self, opened: OpenShare, headers: list[tuple[bytes, bytes]]) -> Visit:
        """What this browser has shown to be its own."""
        audience, needs_password = opened.share.audience, opened.share.has_password
        for ticket in _cookies(headers, _visit_cookie(opened)):
            until, _, rest = (self._shares.read_ticket(opened, ticket) or "").partition("-")
            download_id, _, person = rest.partition("-")
            if until.isdigit() and int(until) > clock.now_ms():
                known = audience is None or audience.allows(person)
                return Visit(True, known, download_id, person if known else "", int(until))
        return Visit(not needs_password, not needs_password and audience is None)

    def cookie(self, asked: Asked, download_id: str = "", person: str = "") -> tuple[bytes, bytes]:
        """The visit as a cookie; what an address was proven for does not grow longer by downloading."""
        visit = asked.visit
        until = visit.until if visit.person else clock.now_ms() + VISIT_MS
        ticket = self._shares.seal_ticket(asked.opened, f"{until}-{download_id}-{person or visit.person}")
        return as_header(_visit_cookie(asked.opened), ticket)

    # -- pages

    def turn_away(self, asked: Asked, problem: str = "", status: int = 403) -> Page:
        """What is to be proven next.  Nothing is told about the file."""
        if not can_hold_cookies(asked.exchange.scope.get("scheme", "http"), asked.host):
            return Page("needs_https.html", {"host": f"{asked.host}{asked.page}"}, 426)
        if not asked.visit.has_password:
            return Page("share_password.html", {"page": asked.page, "problem": problem}, status)
        email = self._asked_for(asked)[1]
        if email and asked.exchange.scope["query_string"] != b"again":
            return Page("share_code.html", {"page": asked.page, "problem": problem, "email": email}, status)
        return Page("share_email.html", {"page": asked.page, "problem": problem, "email": email}, status)

    def answer_form(self, asked: Asked, form: Mapping[str, str]) -> Page | Redirect | Checking:
        """What becomes of a form of one of these pages."""
        foreign = asked.headers.get("sec-fetch-site") in ("cross-site", "same-site")
        audience = asked.opened.share.audience
        if asked.visit.open:
            return Redirect(asked.page, {_visit_cookie(asked.opened): ""} if "leave" in form and not foreign else {})
        if foreign:
            return self.turn_away(asked, mark_error("this form was sent from another page; fill it in here"))
        if not asked.visit.has_password or audience is None:
            return self._check_password(asked, form.get("password", ""))
        if "code" in form:
            return self._check_code(asked, audience, form["code"])
        return self._ask_code(asked, audience, form.get("email", ""))

    # -- the password

    def _check_password(self, asked: Asked, given: str) -> Page | Checking:
        """Guesses are slowed down by share and network.  Beyond many in a day all networks that have guessed wrongly slow each
        other down; whoever comes from elsewhere, or has given the password before, has a try all the same."""
        attempt = Attempt(f"share:{'/'.join(asked.key)}", asked.address)
        is_known, network = self._checks.knows(attempt), (*asked.key, wide_network_of(asked.address))
        try:
            if not is_known and self._wrong_of_network.has_failed(network):
                self._wrong_of_network.begin(network)
                self._wrong_of_all.begin(asked.key)
            return Checking(self._checks.submit(attempt, partial(self._verify, asked, given, () if is_known else network)))
        except (RateLimited, Overloaded) as error:
            return self._come_again(asked, error)

    def _verify(self, asked: Asked, given: str, network: tuple[str, ...]) -> None:
        """In a thread of the password checks: SignInFailed for a wrong one, which counts for the network if one is named."""
        if self._shares.is_password(asked.tenant, asked.opened, given, asked.origin):
            return
        if network:
            self._wrong_of_network.fail(network)
            self._wrong_of_all.fail(asked.key)
        raise SignInFailed(WRONG)

    def finish(self, asked: Asked, checking: Checking) -> Page | Redirect:
        """What becomes of a password whose check is done."""
        try:
            checking.work.result()
        except SignInFailed as error:
            return self.turn_away(asked, error.message)
        return self._enter(asked, "")

    def _come_again(self, asked: Asked, error: ApplianceError) -> Page:
        return replace(self.turn_away(asked, error.message, error.status), headers=error.headers)

    # -- the audience

    def _ask_code(self, asked: Asked, audience: Audience, given: str) -> Page | Redirect:
        email = as_email(given)
        page = Page("share_email.html", {"page": asked.page, "problem": NO_EMAIL, "email": given[:254]}, 422)
        if not email:
            return page
        try:
            self._letters.begin(asked.key, asked.address)
            wishes, sharer = asked.headers.get("accept-language", ""), asked.tenant.tenant_id
            purpose = Purpose(asked.door, audience.integration, wishes, asked.address, sharer)
            code_id = self._post.ask(purpose, email, allowed=audience.allows(email))
        except RateLimited as error:
            values = {**page.values, "problem": error.message}
            return Page(page.template, values, error.status, headers=error.headers)
        told = f"ask-{clock.now_ms() + GOOD_MS}-{code_id}-{email}"
        return Redirect(asked.page, {_ask_cookie(asked.opened): self._shares.seal_ticket(asked.opened, told)})

    def _asked_for(self, asked: Asked) -> tuple[str, str]:
        """The code that this browser has asked for, and the address; empty when it has not, or too long ago."""
        for ticket in _cookies(asked.exchange.scope["headers"], _ask_cookie(asked.opened)):
            kind, _, rest = (self._shares.read_ticket(asked.opened, ticket) or "").partition("-")
            until, _, told = rest.partition("-")
            code_id, _, email = told.partition("-")
            if kind == "ask" and int(until) > clock.now_ms():
                return code_id, email
        return "", ""

    def _check_code(self, asked: Asked, audience: Audience, given: str) -> Page | Redirect:
        code_id, _ = self._asked_for(asked)
        if not code_id:
            return self.turn_away(asked, mark_error("the code was asked for in another browser, or too long ago"))
        checked = self._codes.take(asked.door, code_id, given, asked.address)
        if checked.is_over:
            return self.turn_away(asked, OVER)
        if not checked.email or not audience.allows(checked.email):
            self._shares.note_failure(asked.tenant, asked.opened, "wrong_code", asked.origin)
            return self.turn_away(asked, mark_error("that is not the code; look at the latest message"))
        self._letters.succeed(asked.key, asked.address)
        return self._enter(asked, checked.email)

    def _enter(self, asked: Asked, person: str) -> Redirect:
        ticket = self._shares.seal_ticket(asked.opened, f"{clock.now_ms() + VISIT_MS}--{person}")
        gone = {_ask_cookie(asked.opened): ""} if person else {}
        return Redirect(asked.page, {_visit_cookie(asked.opened): ticket, **gone})


def as_header(name: str, value: str) -> tuple[bytes, bytes]:
    """A cookie of this host alone, or with an empty value its end."""
    longest = GOOD_MS if name.startswith(_ASK) else VISIT_MS
    seconds = longest // 1000 if value else 0
    return b"set-cookie", f"{name}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax".encode()


def headers_of(shown: Page | Redirect) -> Headers:
    """What an answer says beside its body."""
    cookies = [as_header(name, value) for name, value in shown.cookies.items()]
    more = shown.headers.items() if isinstance(shown, Page) else ()
    return [*cookies, *((name.lower().encode(), value.encode("latin1", "replace")) for name, value in more)]


_ASK = "__Host-gos_ask_"


def _visit_cookie(opened: OpenShare) -> str:
    return f"__Host-gos_{opened.share.id}"


def _ask_cookie(opened: OpenShare) -> str:
    return f"{_ASK}{opened.share.id}"


def _cookies(headers: list[tuple[bytes, bytes]], wanted: str) -> Iterator[str]:
    """Every value of the cookie, whatever else stands beside it."""
    for name, value in headers:
        if name == b"cookie":
            for part in value.decode("latin1").split(";"):
                key, _, content = part.strip().partition("=")
                if key == wanted:
                    yield content
