"""The sign-in of apps under `/_gos/`: by password, as a member, by a code that comes by e-mail, at a provider."""

from collections.abc import Callable
from urllib.parse import urlencode

from appliance.core.errors import ApplianceError, PolicyDenied
from appliance.core.texts import mark, mark_error
from appliance.tenants import people
from appliance.tenants.sign_in import Attempts, EmailCodes, as_email
from appliance.webapps.access import SignIns, Visitor, Visits, may_enter, open_access

from .code_letters import CodeLetters, Purpose
from .provider_sign_in import ProviderSignIn
from .visiting import (
    ASK_COOKIE,
    NOT_HERE,
    SIGN_IN,
    VISIT_COOKIE,
    Answer,
    AskCookie,
    Asked,
    Foreign,
    Page,
    Redirect,
    can_hold_cookies,
    is_from_here,
    new_state,
    safe_target,
)

CODE, ENTER, OIDC, SIGN_OUT, SIGNED_OUT = "/_gos/code", "/_gos/enter", "/_gos/oidc", "/_gos/sign-out", "/_gos/signed-out"
FOREIGN = mark_error("this form was sent from another site; open the page here and send it again")
OVER = mark_error("this code is over: codes last ten minutes and five tries; ask for a new one")


class SignIn:
    """Runs the pages; every verb is blocking.  `base_url` is the address of the base host."""

    def __init__(self, visits: Visits, codes: EmailCodes, letters: CodeLetters, provider: ProviderSignIn, base_url: str) -> None:
        self._visits = visits
        self._sealer = visits.sealer
        self._members = SignIns(visits.sealer)
        self._codes, self._post = codes, letters
        self._provider = provider
        self._base_url = base_url
        self._cookie = AskCookie(visits.sealer)
        self._passwords = Attempts(free=5, first=2.0, longest=300.0)
        self._letters = Attempts(free=5, first=60.0, longest=1800.0)
        self._providers = Attempts(free=20, first=2.0, longest=300.0)
        self._pages: dict[tuple[str, str], Callable[[Asked], Answer]] = {
            ("GET", SIGN_IN): self._show, ("POST", SIGN_IN): self._answer_form, ("GET", CODE): self._show_code,
            ("POST", CODE): self._check_code, ("GET", ENTER): self._enter_member, ("GET", OIDC): self._enter_user,
            ("GET", SIGN_OUT): self._show_sign_out, ("POST", SIGN_OUT): self._sign_out, ("GET", SIGNED_OUT): self._show_signed_out,
        }  # fmt: skip

    def has(self, path: str) -> bool:
        """Whether this path is a page of the sign-in."""
        return any(path == known for _, known in self._pages)

    def answer(self, asked: Asked) -> Answer:
        """The page that was asked for; coded errors are for a page too."""
        page = self._pages.get(("GET" if asked.method == "HEAD" else asked.method, asked.path))
        if page is None:
            told = {"title": mark("Not possible"), "message": mark_error("open this page again from the app")}
            return Page("problem.html", told, 405)
        if not can_hold_cookies(asked.scheme, asked.host):
            return Page("needs_https.html", {}, 426)
        if asked.method == "POST" and not is_from_here(asked):
            raise PolicyDenied(FOREIGN)
        return page(asked)

    # -- the first page

    def _show(self, asked: Asked) -> Answer:
        if asked.visitor is not None:
            return Redirect(asked.target)
        if asked.access.kind == "members":
            return self._ask_base(asked)
        if asked.access.kind == "oidc":
            self._providers.begin(asked.key, asked.address)
            return self._provider.begin(asked)
        return Page(f"{asked.access.kind}.html", {"to": asked.target, "problem": ""})

    def _answer_form(self, asked: Asked) -> Answer:
        if asked.access.kind == "password":
            return self._check_password(asked)
        if asked.access.kind == "email":
            return self._ask_code(asked)
        return Redirect(SIGN_IN)

    def _open(self, asked: Asked, who: Visitor, to: str) -> Redirect:
        """The visit begins: a new cookie, whatever this browser brought."""
        token = self._visits.open_visit(asked.scope, asked.app, asked.access, who, asked.cookies.get(VISIT_COOKIE, ""))
        return Redirect(safe_target(to), {VISIT_COOKIE: token, ASK_COOKIE: ""})

    # -- password

    def _check_password(self, asked: Asked) -> Answer:
        password = open_access(asked.scope, self._sealer, asked.app, asked.access)
        try:
            self._passwords.begin(asked.key, asked.address)
        except ApplianceError as error:
            return Page("password.html", {"to": asked.target, "problem": error.message}, error.status, headers=error.headers)
        given = asked.form.get("password", "")
        # Digests have one length, whatever was given: comparing them says nothing about the password.
        if self._sealer.digest(given.encode("utf-8", "replace")) != self._sealer.digest(password.encode()):
            return Page("password.html", {"to": asked.target, "problem": mark_error("this is not the password; try again")}, 401)
        self._passwords.succeed(asked.key, asked.address)
        return self._open(asked, Visitor("password"), asked.target)

    # -- members

    def _ask_base(self, asked: Asked) -> Redirect:
        state = new_state()
        query = urlencode({"host": asked.place.host, "state": state})
        return Redirect(f"{self._base_url}/visit?{query}", self._cookie.make(asked, "member", {"state": state, "to": asked.target}))

    def _enter_member(self, asked: Asked) -> Answer:
        told = self._cookie.read(asked, "member") if asked.access.kind == "members" else None
        user_id = self._members.take_member_code(asked.place, told["state"], asked.args.get("code", "")) if told else None
        if told is None or user_id is None:
            return Page("problem.html", NOT_HERE, 400)
        member = people.find_member(asked.scope, user_id)
        who = Visitor("member", user_id, member.login if member else "")
        if not may_enter(asked.scope, asked.access, who):
            why = mark_error("your role in this tenant does not open this app")
            return Page("refused.html", {"who": who.email, "why": why}, 403)
        return self._open(asked, who, told["to"])

    # -- e-mail

    def _ask_code(self, asked: Asked) -> Answer:
        email, values = as_email(asked.form.get("email", "")), {"to": asked.target}
        if not email:
            wrong = mark_error("this is no e-mail address; write it like name@example.com")
            return Page("email.html", {**values, "problem": wrong, "email": asked.form.get("email", "")[:254]}, 422)
        try:
            self._letters.begin(asked.key, asked.address)
            purpose = Purpose(asked.door, asked.access.integration, asked.headers.get("accept-language", ""), asked.address)
            code_id = self._post.ask(purpose, email, allowed=asked.access.allows(email))
        except ApplianceError as error:
            told = {**values, "problem": error.message, "email": email}
            return Page("email.html", told, error.status, headers=error.headers)
        return Redirect(CODE, self._cookie.make(asked, "email", {"id": code_id, "email": email, "to": asked.target}))

    def _show_code(self, asked: Asked) -> Answer:
        told = self._cookie.read(asked, "email") if asked.access.kind == "email" else None
        return Redirect(SIGN_IN) if told is None else self._code_page(asked, told["email"], "")

    def _code_page(self, asked: Asked, email: str, problem: str) -> Page:
        failing = self._codes.is_failing(asked.door)
        return Page("code.html", {"email": email, "problem": problem, "failing": failing}, 401 if problem else 200)

    def _check_code(self, asked: Asked) -> Answer:
        told = self._cookie.read(asked, "email") if asked.access.kind == "email" else None
        if told is None:
            return Page("problem.html", NOT_HERE, 400)
        checked = self._codes.take(asked.door, told["id"], asked.form.get("code", ""), asked.address)
        if checked.is_over:
            return self._code_page(asked, told["email"], OVER)
        if not checked.email or not asked.access.allows(checked.email):
            return self._code_page(asked, told["email"], mark_error("this is not the code; look at the latest message"))
        self._letters.succeed(asked.key, asked.address)
        return self._open(asked, Visitor("user", checked.email, checked.email), told["to"])

    # -- at a provider

    def _enter_user(self, asked: Asked) -> Answer:
        found = self._provider.finish(asked, lambda who, to: self._let_in(asked, who, to))
        if isinstance(found, Foreign):  # the provider is asked, and may be asked again with what the browser keeps
            self._providers.begin(asked.key, asked.address)
        return found

    def _let_in(self, asked: Asked, who: Visitor, to: str) -> Redirect:
        self._providers.succeed(asked.key, asked.address)
        return self._open(asked, who, to)

    # -- the end

    def _show_sign_out(self, asked: Asked) -> Answer:
        return Page("sign_out.html", {"who": asked.visitor.email if asked.visitor else ""})

    def _sign_out(self, asked: Asked) -> Answer:
        self._visits.close_visit(asked.scope, asked.app, asked.cookies.get(VISIT_COOKIE, ""))
        return Redirect(SIGNED_OUT, {VISIT_COOKIE: "", ASK_COOKIE: ""})

    def _show_signed_out(self, asked: Asked) -> Answer:
        return Page("signed_out.html")
