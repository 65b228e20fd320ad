"""The section `mail`: the SMTP server through which the appliance itself sends mail."""

import re
from dataclasses import dataclass
from pathlib import Path

from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

from .sections import setting

_SERVER = re.compile(r"(?:smtps|starttls|smtp)://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")
_SENDER = re.compile(r"[^\s@<>]+@[^\s@<>]+")


@dataclass(frozen=True)
class Mail:
    """Mail of the appliance itself: links for a new password. Mail of tenants goes through their own integrations."""

    server: str = setting(
        "",
        "SMTP server: smtps://HOST:465 (TLS), starttls://HOST:587 (TLS after the greeting) or smtp://HOST:25 (unencrypted). Empty: "
        "nothing is sent, and forgotten passwords are replaced with `gos user password`.",
    )
    sender: str = setting("", "Address of the sender, such as gos@example.com.")
    user: str = setting("", "Login at the server; empty: without signing in.")
    password: str = setting("", "Its password.", secret=True)
    password_file: str = setting("", "File that contains the password; an alternative to password.")
    ca_file: str = setting("", "PEM file with the CAs to trust for the server, instead of the public ones.")


def check_mail(section: Mail) -> None:
    """ConfigInvalid names the setting and the problem."""
    if not section.server:
        if section != Mail():
            raise ConfigInvalid("mail.server is empty, so the other settings of mail have no effect: set it, or remove them")
        return
    match = _SERVER.fullmatch(section.server)
    if match is None or not 1 <= int(match[1]) <= 65_535:
        raise ConfigInvalid("mail.server must be the address of an SMTP server with its port, such as starttls://mail.example.com:587")
    if not _SENDER.fullmatch(section.sender):
        raise ConfigInvalid("mail.sender must be an address, such as gos@example.com")
    if section.password and section.password_file:
        raise ConfigInvalid("mail.password and mail.password_file cannot be combined")
    if section.user and section.server.startswith("smtp:"):
        raise ConfigInvalid("mail.user would be sent unencrypted to mail.server; use smtps:// or starttls://")
    if section.ca_file and not Path(section.ca_file).is_file():
        raise ConfigInvalid(Sentence("mail.ca_file: the file %(ca_file)s does not exist", ca_file=section.ca_file))


def read_password(section: Mail) -> str:
    """The password, from the settings or its file; ConfigInvalid when the file cannot be read."""
    if not section.password_file:
        return section.password
    try:
        return Path(section.password_file).read_text("utf8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(Sentence(
            "mail.password_file: %(file)s cannot be read (%(error)s)", file=section.password_file, error=str(error)
        )) from error
