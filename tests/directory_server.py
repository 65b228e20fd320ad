"""A company's directory: Debian's slapd with people and groups on free loopback ports, run unprivileged, which tests can change."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gos_connector_ldap.ber import ENUMERATED, SEQUENCE, SET, Reader, element, integer, octets

from appliance.connectors.testing import free_port, write_certificate

START_SECONDS = 60
BASE = "dc=corp,dc=test"
PEOPLE, GROUPS = f"ou=people,{BASE}", f"ou=groups,{BASE}"
SERVICE, SERVICE_PASSWORD = f"cn=gos,{BASE}", "service-secret"
ROOT, ROOT_PASSWORD = f"cn=root,{BASE}", "root-secret"
PASSWORD = "correct horse battery"
POSIX = "pam"
ADD, DELETE, REPLACE = 0, 1, 2
_MANAGE_DSA_IT = "2.16.840.1.113730.3.4.2"
_DELETE_ENTRY, _ADD_ENTRY, _MODIFY = 0x4A, 0x68, 0x66


@dataclass
class DirectoryServer:
    """The running server; `change`, `add` and `remove` act as its administrator."""

    folder: Path
    plain_port: int
    tls_port: int
    process: "subprocess.Popen[bytes] | None" = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"ldaps://127.0.0.1:{self.tls_port}"

    @property
    def starttls_url(self) -> str:
        return f"ldap://127.0.0.1:{self.plain_port}"

    @property
    def ca_file(self) -> str:
        return str(self.folder / "ca.pem")

    def describe(self, **changed: Any) -> dict[str, Any]:
        """An entry of `sign_in.directories`."""
        rules = [("ops", "acme", "operator"), ("dev", "acme", "builder"), ("bosses", "acme", "owner"), ("dev", "globex", "viewer")]
        return {
            "id": "corp", "name": "Corp", "urls": [self.url], "ca_file": self.ca_file, "bind_dn": SERVICE,
            "bind_password": SERVICE_PASSWORD, "base_dn": PEOPLE, "user_filter": "(objectClass=inetOrgPerson)",
            "login_attributes": ["uid", "mail"], "groups": "search", "group_base_dn": GROUPS, "roles": [
                {"group": f"CN={group}, {GROUPS}", "tenant": tenant, "role": role, "approver": group == "bosses"}
                for group, tenant, role in rules
            ], **changed,
        }  # fmt: skip

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        urls = f"ldap://127.0.0.1:{self.plain_port} ldaps://127.0.0.1:{self.tls_port}"
        with (self.folder / "log").open("ab") as log:  # with -d it stays in the foreground; 0 logs nothing
            self.process = subprocess.Popen(
                [_program("slapd"), "-d", "0", "-f", str(self.folder / "conf"), "-h", urls], stdout=log, stderr=log,
                cwd=self.folder, **self.options,
            )  # fmt: skip
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.plain_port), 1).close()
                return
            except OSError as error:
                if self.process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"slapd did not start: {(self.folder / 'log').read_text()[-2000:]}") from error
            time.sleep(0.05)  # a foreign program says nowhere that it listens, so its port is asked again

    def stop(self) -> None:
        """Stop the server; `start` starts it again with the same entries."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)
            self.process = None

    # -- changes

    def hire(self, name: str, *groups: str, **attributes: str) -> str:
        """Add a person and make them a member of groups; returns their DN."""
        values = {"uid": name, "cn": name, "sn": name, "mail": f"{name}@corp.test", "userPassword": PASSWORD, **attributes}
        dn = f"uid={name},{PEOPLE}"
        self.add(dn, objectClass="inetOrgPerson", **{key: value for key, value in values.items() if value})
        for group in groups:
            self.change(f"cn={group},{GROUPS}", ADD, "member", dn)
        return dn

    def add(self, dn: str, **attributes: str | tuple[str, ...]) -> None:
        """Add an entry, also one that refers to another server."""
        rows = []
        for name, value in attributes.items():
            values = (value,) if isinstance(value, str) else value
            rows.append(element(SEQUENCE, octets(name), element(SET, *map(octets, values))))
        self._send(element(_ADD_ENTRY, octets(dn), element(SEQUENCE, *rows)))

    def change(self, dn: str, operation: int, attribute: str, *values: str) -> None:
        """Add, delete or replace values of an attribute."""
        row = element(SEQUENCE, octets(attribute), element(SET, *map(octets, values)))
        self._send(element(_MODIFY, octets(dn), element(SEQUENCE, element(SEQUENCE, integer(operation, ENUMERATED), row))))

    def remove(self, dn: str) -> None:
        """Delete an entry."""
        self._send(octets(dn, _DELETE_ENTRY))

    def _send(self, request: bytes) -> None:
        """Send a request as administrator, for the entry itself if it refers to another server (ManageDsaIT)."""
        with closing(socket.create_connection(("127.0.0.1", self.plain_port), 10)) as connection:
            bind = element(0x60, integer(3), octets(ROOT), octets(ROOT_PASSWORD, 0x80))
            controls = element(0xA0, element(SEQUENCE, octets(_MANAGE_DSA_IT)))
            for number, each in enumerate((bind, request), 1):
                connection.sendall(element(SEQUENCE, integer(number), each, controls if number > 1 else b""))
                message = Reader(Reader(connection.recv(65536)).take())
                message.number()
                response = Reader(message.take())
                code = response.number(ENUMERATED)
                assert code == 0, f"{code}: {response.text()} {response.text()}"


@contextmanager
def running_directory() -> Iterator[DirectoryServer]:
    """A running server with its own folder, which an unprivileged user can read."""
    folder = Path(tempfile.mkdtemp(prefix="gos-directory-"))
    try:
        (folder / "db").mkdir()
        (folder / "ca.pem").write_text(write_certificate(folder))
        server = DirectoryServer(folder, free_port(), free_port())
        (folder / "conf").write_text(_configuration(folder))
        (folder / "ldif").write_text("\n".join(_entries()))
        if os.geteuid() == 0:
            account = pwd.getpwnam("nobody")
            for path in (folder, *folder.iterdir()):
                os.chown(path, account.pw_uid, account.pw_gid)
            server.options = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        subprocess.run(
            [_program("slapadd"), "-f", str(folder / "conf"), "-q", "-l", str(folder / "ldif")],
            check=True, capture_output=True, timeout=START_SECONDS, cwd=folder, **server.options,
        )  # fmt: skip
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program(name: str) -> str:
    return shutil.which(name) or f"/usr/sbin/{name}"


def _configuration(folder: Path) -> str:
    schemas = "".join(f"include /etc/ldap/schema/{name}.schema\n" for name in ("core", "cosine", "nis", "inetorgperson"))
    return f"""{schemas}
modulepath /usr/lib/ldap
moduleload back_mdb
moduleload memberof
moduleload ppolicy
pidfile {folder}/pid
TLSCertificateFile {folder}/certificate
TLSCertificateKeyFile {folder}/key
access to attrs=userPassword by anonymous auth by * none
access to dn.subtree="{BASE}" by dn.exact="{SERVICE}" read by * auth
access to * by dn.exact="{SERVICE}" read by * none
database mdb
suffix {BASE}
directory {folder}/db
maxsize 16777216
rootdn {ROOT}
rootpw {ROOT_PASSWORD}
overlay memberof
overlay ppolicy
ppolicy_default cn=policy,{BASE}
"""


def _entries() -> Iterator[str]:
    yield f"dn: {BASE}\nobjectClass: domain\ndc: corp\n"
    yield f"dn: {SERVICE}\nobjectClass: person\ncn: gos\nsn: gos\nuserPassword: {SERVICE_PASSWORD}\n"
    for unit in ("people", "groups"):
        yield f"dn: ou={unit},{BASE}\nobjectClass: organizationalUnit\nou: {unit}\n"
    policy = "pwdAttribute: userPassword\npwdLockout: TRUE\npwdMaxFailure: 50\npwdLockoutDuration: 600\n"
    yield f"dn: cn=policy,{BASE}\nobjectClass: device\nobjectClass: pwdPolicy\ncn: policy\n{policy}"
    # Whoever is in `backend` is in `dev` as well; that `dev` is in `backend` makes a circle.
    for group, member in (("ops", SERVICE), ("dev", f"cn=backend,{GROUPS}"), ("bosses", SERVICE), ("backend", f"cn=dev,{GROUPS}")):
        yield f"dn: cn={group},{GROUPS}\nobjectClass: groupOfNames\ncn: {group}\nmember: {member}\n"
    yield f"dn: cn=unix,{GROUPS}\nobjectClass: posixGroup\ncn: unix\ngidNumber: 100\nmemberUid: {POSIX}\n"
