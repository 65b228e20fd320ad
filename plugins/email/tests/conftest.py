"""Real servers on free loopback ports: Dovecot in its own folder, aiosmtpd, and one that sends scripted replies."""

import grp
import imaplib
import itertools
import os
import pwd
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from appliance.connectors.testing import free_port, write_certificate

PASSWORD = "sésame-'\"x"
START_SECONDS = 60


@dataclass(frozen=True)
class Certified:
    """A self-signed certificate for 127.0.0.1, and the files that contain it."""

    ca: str
    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder with a short path, because sockets are created in it; owned by the user the servers run as."""
    path = Path(tempfile.mkdtemp(prefix="gos-mail-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def certified(folder: Path) -> Certified:
    return Certified(write_certificate(folder), folder / "certificate", folder / "key")


# -- Dovecot


class Mailbox:
    """The mailbox of one test: the settings that open it, and a second client beside the connector."""

    def __init__(self, user: str, ports: dict[str, int], ca: str) -> None:
        self.settings: dict[str, Any] = {
            "imap_host": "127.0.0.1", "imap_port": ports["tls"], "user": user, "password": PASSWORD, "ca": ca,
        }  # fmt: skip
        self.plain_port = ports["starttls"]
        self._ca = ca

    @contextmanager
    def client(self) -> Iterator[imaplib.IMAP4]:
        trusting = ssl.create_default_context(cadata=self._ca)
        with imaplib.IMAP4_SSL("127.0.0.1", self.settings["imap_port"], ssl_context=trusting) as client:
            client.authenticate("PLAIN", lambda _: f"\0{self.settings['user']}\0{PASSWORD}".encode())
            yield client

    def append(self, content: bytes, folder: str = "INBOX") -> None:
        with self.client() as client:
            assert client.append(folder, "", "", content)[0] == "OK"

    def run(self, command: str, *args: str) -> None:
        with self.client() as client:
            assert getattr(client, command)(*args)[0] == "OK"

    def count(self, folder: str) -> int:
        with self.client() as client:
            return int((client.select(folder, readonly=True)[1][0] or b"0").decode())


_numbers = itertools.count(1)


@pytest.fixture
def mailbox(dovecot: dict[str, int], certified: Certified) -> Mailbox:
    mailbox = Mailbox(f"user{next(_numbers)}@example.com", dovecot, certified.ca)
    mailbox.run("create", "Archive")
    return mailbox


@pytest.fixture(scope="session")
def dovecot(folder: Path, certified: Certified) -> Iterator[dict[str, int]]:
    """Dovecot's ports by encryption."""
    ports = {"tls": free_port(), "starttls": free_port()}
    account = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    (folder / "conf").write_text(_configuration(folder, certified, ports, account), encoding="utf-8")
    options: dict[str, Any] = {}
    if os.geteuid() == 0:
        for path in (folder, *folder.iterdir()):
            os.chown(path, account.pw_uid, account.pw_gid)
        options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    command = [shutil.which("dovecot") or "/usr/sbin/dovecot", "-F", "-c", str(folder / "conf")]
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=folder, **options)
    try:
        _wait(process, folder, ports["starttls"])
        yield ports
    finally:
        process.terminate()
        process.wait(10)


def _configuration(folder: Path, certified: Certified, ports: dict[str, int], account: pwd.struct_passwd) -> str:
    group = grp.getgrgid(account.pw_gid).gr_name
    return f"""
base_dir = {folder}/run
state_dir = {folder}/state
log_path = {folder}/log
protocols = imap
listen = 127.0.0.1
default_internal_user = {account.pw_name}
default_internal_group = {group}
default_login_user = {account.pw_name}
first_valid_uid = 1
auth_failure_delay = 0
disable_plaintext_auth = yes
ssl = yes
ssl_cert = <{certified.certificate}
ssl_key = <{certified.key}
mail_location = maildir:{folder}/mail/%u
passdb {{
  driver = static
  args = password={PASSWORD}
}}
userdb {{
  driver = static
  args = uid={account.pw_uid} gid={account.pw_gid} home={folder}/mail/%u
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {ports["starttls"]}
  }}
  inet_listener imaps {{
    port = {ports["tls"]}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
namespace inbox {{
  inbox = yes
  separator = /
}}
"""


def _wait(process: subprocess.Popen[bytes], folder: Path, port: int) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as greeted:
                if greeted.recv(4) == b"* OK":
                    return
        except OSError:
            pass
        if process.poll() is not None or time.monotonic() > until:
            logs = [path.read_text() for path in (folder / "out", folder / "log") if path.exists()]
            raise RuntimeError(f"Dovecot did not start: {' '.join(logs)[-2000:]}")
        time.sleep(0.05)


# -- aiosmtpd


@dataclass
class SmtpRecorder:
    """An SMTP server: the messages it received, as (sender, recipients, content), and the settings to connect to it."""

    settings: dict[str, Any]
    messages: list[tuple[str, list[str], bytes]] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    reply: str = "250 taken"

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:  # noqa: N802
        if address in self.refusals:
            return self.refusals[address]
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        if self.reply.startswith("2"):
            self.messages.append((envelope.mail_from, envelope.rcpt_tos, envelope.content))
        return self.reply


def _authenticate(_server: Any, _session: Any, _envelope: Any, _mechanism: str, credentials: Any) -> AuthResult:
    return AuthResult(success=credentials.password == PASSWORD.encode(), handled=False)


@contextmanager
def run_smtp_server(certified: Certified, tls: str, **options: Any) -> Iterator[SmtpRecorder]:
    smtp = SmtpRecorder({"smtp_host": "127.0.0.1", "smtp_tls": tls, "user": "gos", "password": PASSWORD,
                 "ca": certified.ca, "from": {"address": "orders@example.com", "name": "Orders"}})  # fmt: skip
    if tls == "off":
        del smtp.settings["user"]
    kinds: dict[str, dict[str, Any]] = {
        "tls": {"ssl_context": certified.context()},
        "starttls": {"tls_context": certified.context(), "require_starttls": True},
        "off": {},
    }
    server_options = kinds[tls]
    if tls != "off":
        server_options |= {"auth_required": True, "authenticator": _authenticate, "auth_require_tls": tls == "starttls"}
    port = free_port()
    controller = Controller(smtp, hostname="127.0.0.1", port=port, **{**server_options, **options})
    controller.start()
    smtp.settings["smtp_port"] = port
    try:
        yield smtp
    finally:
        controller.stop()


@pytest.fixture
def smtp(certified: Certified) -> Iterator[SmtpRecorder]:
    with run_smtp_server(certified, "starttls") as smtp:
        yield smtp


# -- a server with scripted replies


class Scripted:
    """Sends a greeting, then replies to each line with `answer(line)`: bytes to send, or None to hang up."""

    def __init__(self, greeting: bytes, answer: Callable[[bytes], bytes | None]) -> None:
        self.lines: list[bytes] = []
        self._greeting, self._answer = greeting, answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            with self._listening.accept()[0] as client, client.makefile("rb") as lines:
                client.sendall(self._greeting)
                for line in lines:
                    self.lines.append(line)
                    response = self._answer(line)
                    if response is None:
                        return
                    client.sendall(response)
        except OSError:  # the client hung up, or the test is over
            return

    def close(self) -> None:
        self._listening.close()
        self._thread.join(5)


@pytest.fixture
def scripted() -> Iterator[Callable[[bytes, Callable[[bytes], bytes | None]], Scripted]]:
    servers: list[Scripted] = []

    def make(greeting: bytes, answer: Callable[[bytes], bytes | None]) -> Scripted:
        servers.append(Scripted(greeting, answer))
        return servers[-1]

    yield make
    for each in servers:
        each.close()


@pytest.fixture
def smtp_server(certified: Certified) -> Callable[..., Any]:
    """`with smtp_server("tls") as smtp:` runs a server with that encryption."""
    return lambda tls, **options: run_smtp_server(certified, tls, **options)
