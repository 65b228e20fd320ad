"""Sends mail of the appliance itself through one SMTP server (RFC 5321)."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from appliance.core.config.mail import Mail, read_password
from appliance.core.errors import ConfigInvalid

if TYPE_CHECKING:
    import smtplib

SECONDS = 20.0


class MailFailed(Exception):
    """The server could not be reached, or has refused something; the message says what."""


class Mailer:
    """The sender of the appliance; `MailFailed` says why a letter was not taken."""

    def __init__(self, settings: Mail) -> None:
        self._settings = settings

    @property
    def is_on(self) -> bool:
        """Whether a server is configured."""
        return bool(self._settings.server)

    def send(self, recipient: str, subject: str, text: str) -> None:
        """Send a plain text; MailFailed when the server has not taken it."""
        message = EmailMessage()
        message["From"], message["To"], message["Subject"] = self._settings.sender, recipient, subject
        message["Date"], message["Message-ID"] = formatdate(), make_msgid(domain=self._settings.sender.partition("@")[2])
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(text)
        with self._connection() as server:
            server.send_message(message)

    def check(self) -> None:
        """Connect and sign in without sending anything; MailFailed."""
        with self._connection():
            pass

    @contextmanager
    def _connection(self) -> "Iterator[smtplib.SMTP]":
        import smtplib  # most appliances never send mail of their own

        address = urlsplit(self._settings.server)
        host, port = str(address.hostname), int(address.port or 0)
        try:
            trust = ssl.create_default_context(cafile=self._settings.ca_file or None)
            if address.scheme == "smtps":
                server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=SECONDS, context=trust)
            else:
                server = smtplib.SMTP(host, port, timeout=SECONDS)
            with server:
                if address.scheme == "starttls":
                    server.starttls(context=trust)
                if self._settings.user:
                    server.login(self._settings.user, read_password(self._settings))
                yield server
        except (OSError, smtplib.SMTPException) as error:
            raise MailFailed(f"{self._settings.server}: {error}") from error
        except ConfigInvalid as error:  # the file of the password
            raise MailFailed(str(error.message)) from error
