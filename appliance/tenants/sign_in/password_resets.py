"""A new password for whoever has forgotten theirs: a link by mail, valid once and for half an hour."""

import logging
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from urllib.parse import urlencode

from appliance.core import clock
from appliance.core.catalogues import Languages
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.errors import Gone
from appliance.core.mail import Mailer, MailFailed
from appliance.core.networks import network_of
from appliance.core.pools import MAIL, open_pool
from appliance.core.texts import gettext as _
from appliance.core.texts import use_language
from appliance.tenants import people
from appliance.tenants.models import Person, Session
from appliance.tenants.trails import record_everywhere

from .attempts import Attempts
from .counts import Counts, MemoryCounts
from .email_addresses import parse_email

log = logging.getLogger(__name__)

LIFETIME_MS = 30 * 60_000
KIND = "password-reset"
RESET_PATH = "/password/new"
_ANY = ("password reset", "")


class PasswordResets:
    """Links for new passwords of accounts whose login is a mail address."""

    def __init__(
        self, config: Config, sealer: Sealer, languages: Languages, open_counts: Callable[[str], Counts] = MemoryCounts
    ) -> None:
        self._base, self._sealer, self._languages, self._mailer = config.base_url, sealer, languages, Mailer(config.mail)
        self.is_offered = self._mailer.is_on and config.sign_in.local_accounts
        self._of_login = Attempts(free=3, first=60.0, longest=3600.0, counts=open_counts("password resets"))
        self._of_network = Attempts(free=10, first=5.0, longest=60.0, counts=open_counts("password resets of a network"))
        self._threads = open_pool(MAIL)

    def request(self, login: str, address: str) -> Future[None]:
        """Send a link to the login if it has an account that may sign in with a password; RateLimited.

        Whether it has one shows neither in the result nor in the time, since all of it happens later, in a thread.
        """
        login = people.normalize_login(login)
        self._of_network.begin(_ANY, address)
        self._of_login.begin(("password reset", login), address)
        sending = self._threads.submit(self._send, login, network_of(address))
        sending.add_done_callback(_log_fault)
        return sending

    def find(self, token: str) -> Person | None:
        """The person whose password this link replaces; None if it has expired or was used."""
        row = Session.get_or_none(self._is_open(token))
        return None if row is None else Person.get_or_none((Person.id == row.user_id) & Person.disabled_at.is_null())

    def replace(self, token: str, password: str) -> Person:
        """Replace the password, which ends every session and every other link of the person; Gone, ValidationFailed."""
        person = self.find(token)
        if person is None:
            raise _expired()
        hashed = people.hash_new_password(person.login, password)
        return db.write(partial(self._replace, token, hashed))

    def store(self, login: str, token: str, network: str) -> Person | None:
        """Let the token replace the password of this login, and no earlier token; None if the login may not have one."""
        return db.write(partial(self._store, login, token, network))

    def stop(self) -> None:
        """Send nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _replace(self, token: str, hashed: str) -> Person:
        """Inside a write: use up the link, which of several writers only one can."""
        person = self.find(token)
        if person is None or not Session.delete().where(self._is_open(token)).execute():
            raise _expired()
        people.replace_password(person.login, hashed)
        record_everywhere(person.id, "password.reset", {"login": person.login})
        return person

    def _is_open(self, token: str) -> object:
        is_match = (Session.digest == self._digest(token)) & (Session.kind == KIND)
        return is_match & (Session.expires_at > clock.now_ms())

    def _digest(self, token: str) -> bytes:
        return self._sealer.digest(f"password reset/{token}".encode("utf-8", "replace"))

    def _send(self, login: str, network: str) -> None:
        if not parse_email(login):
            return
        token = secrets.token_urlsafe(32)
        person = self.store(login, token, network)
        if person is None:
            return
        with use_language(self._languages.choose(person.language)):
            subject, text = _("A new password for %(login)s", login=login), self._text(login, token)
        try:
            self._mailer.send(login, subject, text)
        except MailFailed as error:
            log.warning("the link for a new password of %s could not be sent: %s", login, error)

    def _text(self, login: str, token: str) -> str:
        """The letter, in the current language."""
        return "\n\n".join([
            _("Somebody, probably you, has asked for a new password of %(login)s at %(base)s.", login=login, base=self._base),
            _("Choose it within %(minutes)s minutes; the link works once:", minutes=LIFETIME_MS // 60_000),
            f"    {self._base}{RESET_PATH}?{urlencode({'token': token})}",
            _("If it was not you, do nothing: your password stays as it is."),
        ])

    def _store(self, login: str, token: str, network: str) -> Person | None:
        """Inside a write: replace the earlier link of this login; None if it may not have one."""
        person: Person | None = Person.get_or_none(Person.login == login)
        if person is None or person.disabled_at is not None or not person.password_hash:
            return None
        Session.delete().where((Session.user_id == person.id) & (Session.kind == KIND)).execute()
        now = clock.now_ms()
        Session.create(
            digest=self._digest(token), user_id=person.id, kind=KIND, root="", created_at=now, expires_at=now + LIFETIME_MS
        )
        record_everywhere(person.id, "password.request_reset", {"login": login, "network": network}, actor="system")
        return person


def _log_fault(sending: Future[None]) -> None:
    """Log what nobody waits for."""
    if not sending.cancelled() and (fault := sending.exception()) is not None:
        log.error("a link for a new password could not be sent", exc_info=fault)


def _expired() -> Gone:
    return Gone("this link has expired or was used already; request a new one")
