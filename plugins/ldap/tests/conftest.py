"""A real slapd with a small tree on free loopback ports, run unprivileged, and a server with scripted answers."""

import base64
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.connectors.contract import Context
from appliance.connectors.testing import free_port, open_context, write_certificate

PASSWORD = "sésame-'\"%s\\2a"
START_SECONDS = 60
PEOPLE = 620
PHOTO = bytes(range(256))


@dataclass(frozen=True)
class Directory:
    """Settings of the running server by encryption, and the authority of its certificate."""

    tls: dict[str, Any]
    starttls: dict[str, Any]
    off: dict[str, Any]


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context(seconds=30) as ctx:
        yield ctx


@pytest.fixture(scope="session")
def directory() -> Iterator[Directory]:
    folder = Path(tempfile.mkdtemp(prefix="gos-ldap-"))
    try:
        ca = write_certificate(folder)
        plain, tls = free_port(), free_port()
        _write_configuration(folder)
        account = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
        options: dict[str, Any] = {}
        if os.geteuid() == 0:
            for path in (folder, *folder.iterdir()):
                os.chown(path, account.pw_uid, account.pw_gid)
            options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        config_options = ["-f", str(folder / "conf")]
        subprocess.run(
            [_program("slapadd"), *config_options, "-q", "-l", str(folder / "ldif")],
            check=True, capture_output=True, timeout=START_SECONDS, cwd=folder, **options,
        )  # fmt: skip
        urls = f"ldap://127.0.0.1:{plain} ldaps://127.0.0.1:{tls}"
        # With -d it stays in the foreground; 0 logs nothing.
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [_program("slapd"), "-d", "0", *config_options, "-h", urls], stdout=log, stderr=log, cwd=folder, **options
            )
        try:
            _wait(server, plain, folder / "log")
            common = {"host": "127.0.0.1", "base_dn": "dc=example,dc=com"}
            credentials = {"bind_dn": "cn=gos,dc=example,dc=com", "password": PASSWORD, "ca": ca}
            yield Directory(
                {**common, **credentials, "port": tls},
                {**common, **credentials, "port": plain, "tls": "starttls"},
                {**common, "port": plain, "tls": "off"},
            )
        finally:
            server.terminate()
            server.wait(20)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    return shutil.which(name) or f"/usr/sbin/{name}"


def _write_configuration(folder: Path) -> None:
    (folder / "db").mkdir()
    schemas = "".join(f"include /etc/ldap/schema/{name}.schema\n" for name in ("core", "cosine", "inetorgperson"))
    (folder / "conf").write_text(f"""{schemas}
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/pid
TLSCertificateFile {folder}/certificate
TLSCertificateKeyFile {folder}/key
sizelimit size.soft=10 size.pr=500 size.prtotal=unlimited
access to attrs=userPassword by anonymous auth by * none
access to dn.subtree="ou=hidden,dc=example,dc=com" by dn.exact="cn=gos,dc=example,dc=com" read by * none
access to * by * read
database mdb
suffix dc=example,dc=com
directory {folder}/db
maxsize 16777216
limits anonymous size.pr=200 size.prtotal=300
""")
    (folder / "ldif").write_text("\n".join(_ldif_entries()), encoding="utf-8")


def _ldif_entries() -> Iterator[str]:
    yield "dn: dc=example,dc=com\nobjectClass: domain\ndc: example\n"
    yield f"dn: cn=gos,dc=example,dc=com\nobjectClass: person\ncn: gos\nsn: gos\nuserPassword:: {_in_base64(PASSWORD.encode())}\n"
    for unit in ("people", "many", "hidden", "elsewhere"):
        yield f"dn: ou={unit},dc=example,dc=com\nobjectClass: organizationalUnit\nou: {unit}\n"
    for uid, name, more in (
        ("anna", "Anna Müller", f"jpegPhoto:: {_in_base64(PHOTO)}\nmail: anna@example.com\nmail: a.mueller@example.com\n"),
        ("bob", "Bob (the) *builder*\\", "mail: bob@example.com\nemployeeType: builder\n"),
        ("carla", "Carla Ångström", "manager: uid=anna,ou=people,dc=example,dc=com\nroomNumber: 7\n"),
    ):
        cn = _in_base64(name.encode())
        kind = "objectClass: inetOrgPerson"
        yield f"dn: uid={uid},ou=people,dc=example,dc=com\n{kind}\nuid: {uid}\ncn:: {cn}\nsn: {uid}\n{more}"
    yield "dn: uid=dora,ou=hidden,dc=example,dc=com\nobjectClass: inetOrgPerson\nuid: dora\ncn: Dora\nsn: dora\n"
    branch = (
        "objectClass: referral\nobjectClass: extensibleObject\nou: branch\nref: ldap://127.0.0.2:9/ou=branch,dc=example,dc=com\n"
    )
    yield f"dn: ou=branch,ou=elsewhere,dc=example,dc=com\n{branch}"
    for number in range(PEOPLE):
        yield f"dn: cn=n{number:03},ou=many,dc=example,dc=com\nobjectClass: person\ncn: n{number:03}\nsn: many\n"


def _in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError as error:
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"slapd did not start: {log.read_text()[-2000:]}") from error
        time.sleep(0.05)


# -- a server with scripted answers


class Scripted:
    """Answers each message by `answer`: bytes to send, None to hang up."""

    def __init__(self, answer: Callable[[bytes], bytes | None]) -> None:
        self.received: list[bytes] = []
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.settings = {"host": "127.0.0.1", "port": int(self._listening.getsockname()[1]), "tls": "off", "base_dn": "dc=x"}
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            with self._listening.accept()[0] as client:
                while request := client.recv(65536):
                    self.received.append(request)
                    response = self._answer(request)
                    if response is None:
                        return
                    client.sendall(response)
        except OSError:  # the client hung up, or the test is over
            return

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a client
        self._listening.close()
        self._thread.join(20)


@pytest.fixture
def scripted() -> Iterator[Callable[[Callable[[bytes], bytes | None]], Scripted]]:
    servers: list[Scripted] = []

    def start(answer: Callable[[bytes], bytes | None]) -> Scripted:
        servers.append(Scripted(answer))
        return servers[-1]

    yield start
    for each in servers:
        each.close()
