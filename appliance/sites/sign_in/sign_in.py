"""The sign-in pages of apps under `/_gos/`: by password, as a member, by a code sent by e-mail, or at a provider."""

from collections.abc import Callable
from urllib.parse import urlencode

from appliance.core.errors import ApplianceError, PolicyDenied
from appliance.core.texts import mark, mark_error
from appliance.tenants import people
from appliance.tenants.sign_in import Attempts, EmailCodes, open_counts, parse_email
from appliance.web import is_own_page
from appliance.webapps.access import SignIns, Visitor, Visits, may_enter, open_access

from .code_emails import CodeEmails, Purpose
from .provider_sign_in import ProviderSignIn
from .visiting import (
    EXPIRED_SIGN_IN,
    SIGN_IN,
    SIGN_IN_COOKIE,
    VISIT_COOKIE,
    ExternalCall,
    Page,
    Redirect,
    SignInCookie,
    SignInRequest,
    SignInResponse,
    new_state,
    safe_target,
)

CODE, ENTER, OIDC, SIGN_OUT, SIGNED_OUT = "/_gos/code", "/_gos/enter", "/_gos/oidc", "/_gos/sign-out", "/_gos/signed-out"
FOREIGN = mark_error("this form was sent from another site; open the page here and send it again")
EXPIRED = mark_error("this code is no longer valid: codes last ten minutes and five attempts; request a new one")


class SignIn:
    """Runs the sign-in pages; every method blocks. `base_url` is the URL of the base host."""

    def __init__(self, visits: Visits, codes: EmailCodes, emails: CodeEmails, provider: ProviderSignIn, base_url: str) -> None:
        self._visits = visits
        self._sealer = visits.sealer
        self._members = SignIns(visits.sealer)
        self._codes, self._emails = codes, emails
        self._provider = provider
        self._base_url = base_url
        self._cookie = SignInCookie(visits.sealer)
        self._password_attempts = Attempts(free=5, first=2.0, longest=300.0, counts=open_counts("app password"))
        self._email_attempts = Attempts(free=5, first=60.0, longest=1800.0, counts=open_counts("app email"))
        self._provider_attempts = Attempts(free=20, first=2.0, longest=300.0, counts=open_counts("app provider"))
        self._handlers: dict[tuple[str, str], Callable[[SignInRequest], SignInResponse]] = {
            ("GET", SIGN_IN): self._show, ("POST", SIGN_IN): self._answer_form, ("GET", CODE): self._show_code,
            ("POST", CODE): self._check_code, ("GET", ENTER): self._enter_member, ("GET", OIDC): self._enter_user,
            ("GET", SIGN_OUT): self._show_sign_out, ("POST", SIGN_OUT): self._sign_out, ("GET", SIGNED_OUT): self._show_signed_out,
        }  # fmt: skip

    def has_page(self, path: str) -> bool:
        """Whether this path is a page of the sign-in."""
        return any(path == known for _, known in self._handlers)

    def answer(self, request: SignInRequest) -> SignInResponse:
        """The response to a sign-in request; coded errors are shown as pages by the gate."""
        page = self._handlers.get(("GET" if request.http.method == "HEAD" else request.http.method, request.http.path))
        if page is None:
            values = {"title": mark("Not possible"), "message": mark_error("open this page again from the app")}
            return Page("problem.html", values, 405)
        if not request.http.can_hold_cookies:
            return Page("needs_https.html", {}, 426)
        if request.http.method == "POST" and not is_own_page(request.http.headers, request.http.origin):
            raise PolicyDenied(FOREIGN)
        return page(request)

    # -- the first page

    def _show(self, request: SignInRequest) -> SignInResponse:
        if request.visitor is not None:
            return Redirect(request.target)
        if request.access.kind == "members":
            return self._redirect_to_base(request)
        if request.access.kind == "oidc":
            self._provider_attempts.begin(request.key, request.http.address)
            return self._provider.start(request)
        return Page(f"{request.access.kind}.html", {"to": request.target, "problem": ""})

    def _answer_form(self, request: SignInRequest) -> SignInResponse:
        if request.access.kind == "password":
            return self._check_password(request)
        if request.access.kind == "email":
            return self._ask_code(request)
        return Redirect(SIGN_IN)

    def _open(self, request: SignInRequest, visitor: Visitor, to: str) -> Redirect:
        """Open a visit with a new cookie, replacing the one this browser sent."""
        previous = request.http.cookies.get(VISIT_COOKIE, "")
        token = self._visits.open_visit(request.scope, request.app, request.access, visitor, previous)
        return Redirect(safe_target(to), {VISIT_COOKIE: token, SIGN_IN_COOKIE: ""})

    # -- password

    def _check_password(self, request: SignInRequest) -> SignInResponse:
        password = open_access(request.scope, self._sealer, request.app, request.access)
        try:
            self._password_attempts.begin(request.key, request.http.address)
        except ApplianceError as error:
            return Page("password.html", {"to": request.target, "problem": error.message}, error.status, headers=error.headers)
        entered = request.form.get("password", "")
        # Digests have a fixed length, so comparing them does not reveal the length of the password.
        if self._sealer.digest(entered.encode("utf-8", "replace")) != self._sealer.digest(password.encode()):
            problem = mark_error("that password is not correct; try again")
            return Page("password.html", {"to": request.target, "problem": problem}, 401)
        self._password_attempts.succeed(request.key, request.http.address)
        return self._open(request, Visitor("password"), request.target)

    # -- members

    def _redirect_to_base(self, request: SignInRequest) -> Redirect:
        state = new_state()
        query = urlencode({"host": request.place.host, "state": state})
        cookies = self._cookie.create(request, "member", {"state": state, "to": request.target})
        return Redirect(f"{self._base_url}/visit?{query}", cookies)

    def _enter_member(self, request: SignInRequest) -> SignInResponse:
        values = self._cookie.read(request, "member") if request.access.kind == "members" else None
        user_id = self._members.redeem_member_code(request.place, values["state"], request.http.arg("code")) if values else None
        if values is None or user_id is None:
            return Page("problem.html", EXPIRED_SIGN_IN, 400)
        member = people.find_member(request.scope, user_id)
        visitor = Visitor("member", user_id, member.login if member else "")
        if not may_enter(request.scope, request.access, visitor):
            reason = mark_error("your role in this tenant does not allow you to open this app")
            return Page("refused.html", {"who": visitor.email, "why": reason}, 403)
        return self._open(request, visitor, values["to"])

    # -- e-mail

    def _ask_code(self, request: SignInRequest) -> SignInResponse:
        email, values = parse_email(request.form.get("email", "")), {"to": request.target}
        if not email:
            problem = mark_error("this is not a valid e-mail address; use the form name@example.com")
            return Page("email.html", {**values, "problem": problem, "email": request.form.get("email", "")[:254]}, 422)
        try:
            self._email_attempts.begin(request.key, request.http.address)
            languages = request.http.headers.get("accept-language", "")
            purpose = Purpose(request.door, request.access.integration, languages, request.http.address)
            code_id = self._emails.request(purpose, email, allowed=request.access.allows(email))
        except ApplianceError as error:
            page_values = {**values, "problem": error.message, "email": email}
            return Page("email.html", page_values, error.status, headers=error.headers)
        return Redirect(CODE, self._cookie.create(request, "email", {"id": code_id, "email": email, "to": request.target}))

    def _show_code(self, request: SignInRequest) -> SignInResponse:
        values = self._cookie.read(request, "email") if request.access.kind == "email" else None
        return Redirect(SIGN_IN) if values is None else self._code_page(request, values["email"], "")

    def _code_page(self, request: SignInRequest, email: str, problem: str) -> Page:
        failing = self._codes.has_send_failure(request.door)
        return Page("code.html", {"email": email, "problem": problem, "failing": failing}, 401 if problem else 200)

    def _check_code(self, request: SignInRequest) -> SignInResponse:
        values = self._cookie.read(request, "email") if request.access.kind == "email" else None
        if values is None:
            return Page("problem.html", EXPIRED_SIGN_IN, 400)
        result = self._codes.check(request.door, values["id"], request.form.get("code", ""), request.http.address)
        if result.is_over:
            return self._code_page(request, values["email"], EXPIRED)
        if not result.email or not request.access.allows(result.email):
            return self._code_page(request, values["email"], mark_error("that code is not correct; check the latest e-mail"))
        self._email_attempts.succeed(request.key, request.http.address)
        return self._open(request, Visitor("user", result.email, result.email), values["to"])

    # -- at a provider

    def _enter_user(self, request: SignInRequest) -> SignInResponse:
        response = self._provider.finish(request, lambda visitor, to: self._let_in(request, visitor, to))
        if isinstance(response, ExternalCall):  # may repeat with the same cookie, so the attempts are limited
            self._provider_attempts.begin(request.key, request.http.address)
        return response

    def _let_in(self, request: SignInRequest, visitor: Visitor, to: str) -> Redirect:
        self._provider_attempts.succeed(request.key, request.http.address)
        return self._open(request, visitor, to)

    # -- sign out

    def _show_sign_out(self, request: SignInRequest) -> SignInResponse:
        return Page("sign_out.html", {"who": request.visitor.email if request.visitor else ""})

    def _sign_out(self, request: SignInRequest) -> SignInResponse:
        self._visits.close_visit(request.scope, request.app, request.http.cookies.get(VISIT_COOKIE, ""))
        return Redirect(SIGNED_OUT, {VISIT_COOKIE: "", SIGN_IN_COOKIE: ""})

    def _show_signed_out(self, request: SignInRequest) -> SignInResponse:
        return Page("signed_out.html")
