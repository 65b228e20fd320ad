"""Real servers on free ports of loopback: Dovecot in a folder of its own, aiosmtpd, and one that says what the test writes."""

import datetime
import grp
import imaplib
import ipaddress
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
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from appliance.connectors.testing import free_port

PASSWORD = "sésame-'\"x"
START_SECONDS = 60


@dataclass(frozen=True)
class Certified:
    """A certificate for 127.0.0.1 that is its own authority, and the files it is in."""

    ca: str
    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.certificate, self.key)
        return made


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A short path, for sockets in it; it belongs to the user the servers run as."""
    made = Path(tempfile.mkdtemp(prefix="gos-mail-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def certified(folder: Path) -> Certified:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mail")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    ca = made.public_bytes(serialization.Encoding.PEM)
    (folder / "crt").write_bytes(ca)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    (folder / "key").write_bytes(private)
    return Certified(ca.decode(), folder / "crt", folder / "key")


# -- Dovecot


class Mailbox:
    """A mailbox of one test: the settings that open it, and another client beside the connector."""

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

    def put(self, content: bytes, folder: str = "INBOX") -> None:
        with self.client() as client:
            assert client.append(folder, "", "", content)[0] == "OK"

    def run(self, command: str, *given: str) -> None:
        with self.client() as client:
            assert getattr(client, command)(*given)[0] == "OK"

    def count(self, folder: str) -> int:
        with self.client() as client:
            return int((client.select(folder, readonly=True)[1][0] or b"0").decode())


_numbers = itertools.count(1)


@pytest.fixture
def mailbox(dovecot: dict[str, int], certified: Certified) -> Mailbox:
    made = Mailbox(f"user{next(_numbers)}@example.com", dovecot, certified.ca)
    made.run("create", "Archive")
    return made


@pytest.fixture(scope="session")
def dovecot(folder: Path, certified: Certified) -> Iterator[dict[str, int]]:
    """Its ports by encryption."""
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
class Post:
    """An SMTP server: what it took, as (sender, recipients, content), and the settings that reach it."""

    settings: dict[str, Any]
    taken: list[tuple[str, list[str], bytes]] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)
    verdict: str = "250 taken"

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:  # noqa: N802
        if address in self.refusals:
            return self.refusals[address]
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        if self.verdict.startswith("2"):
            self.taken.append((envelope.mail_from, envelope.rcpt_tos, envelope.content))
        return self.verdict


def _let_in(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> AuthResult:
    return AuthResult(success=given.password == PASSWORD.encode(), handled=False)


@contextmanager
def posting(certified: Certified, tls: str, **options: Any) -> Iterator[Post]:
    post = Post({"smtp_host": "127.0.0.1", "smtp_tls": tls, "user": "gos", "password": PASSWORD,
                 "ca": certified.ca, "from": {"address": "orders@example.com", "name": "Orders"}})  # fmt: skip
    if tls == "off":
        del post.settings["user"]
    kinds: dict[str, dict[str, Any]] = {
        "tls": {"ssl_context": certified.context()},
        "starttls": {"tls_context": certified.context(), "require_starttls": True},
        "off": {},
    }
    wanted = kinds[tls]
    if tls != "off":
        wanted |= {"auth_required": True, "authenticator": _let_in, "auth_require_tls": tls == "starttls"}
    port = free_port()
    controller = Controller(post, hostname="127.0.0.1", port=port, **{**wanted, **options})
    controller.start()
    post.settings["smtp_port"] = port
    try:
        yield post
    finally:
        controller.stop()


@pytest.fixture
def post(certified: Certified) -> Iterator[Post]:
    with posting(certified, "starttls") as post:
        yield post


# -- a server that says what the test writes


class Scripted:
    """Greets, then answers each line by `answer`: bytes to send, None to hang up."""

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
                    said = self._answer(line)
                    if said is None:
                        return
                    client.sendall(said)
        except OSError:  # the client hung up, or the test is over
            return

    def close(self) -> None:
        self._listening.close()
        self._thread.join(5)


@pytest.fixture
def scripted() -> Iterator[Callable[[bytes, Callable[[bytes], bytes | None]], Scripted]]:
    made: list[Scripted] = []

    def make(greeting: bytes, answer: Callable[[bytes], bytes | None]) -> Scripted:
        made.append(Scripted(greeting, answer))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def posting_with(certified: Certified) -> Callable[..., Any]:
    """`with posting_with("tls") as post:` for one way of encryption."""
    return lambda tls, **options: posting(certified, tls, **options)
