"""Real servers on free ports of loopback, each with a folder of its own: OpenSSH, Apache, Swift and ProFTPD."""

import base64
import grp
import hashlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.connectors.contract import Context
from appliance.connectors.testing import free_port, open_context, write_certificate

START_SECONDS = 60
PASSPHRASE = "sésame-canary"


@dataclass(frozen=True)
class FileServer:
    """A running server: `settings` work, `root` is the folder it shows, as it is on this machine."""

    settings: dict[str, Any]
    root: Path
    process: subprocess.Popen[bytes]

    def write(self, name: str, content: bytes | str, mtime: float | None = None) -> Path:
        """A file as the server's own users would put it there."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        chown_to_server(self.root)
        if mtime is not None:
            os.utime(path, (mtime, mtime))
        return path

    def clear(self) -> None:
        for path in self.root.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gos-files-")).resolve()
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def server_user() -> pwd.struct_passwd:
    """Who the servers run as: nobody where the tests run as root."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


def chown_to_server(folder: Path) -> None:
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, server_user().pw_uid, server_user().pw_gid, follow_symlinks=False)


def unprivileged_options(folder: Path) -> dict[str, Any]:
    chown_to_server(folder)
    user = server_user()
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": folder} if os.geteuid() == 0 else {}


@contextmanager
def run_server(
    command: Sequence[str | Path], folder: Path, is_up: Callable[[], bool], **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **options)
    try:
        until = time.monotonic() + START_SECONDS
        while not is_up():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()  # asked to, it takes its own children with it
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def has_greeting(port: int, greeting: bytes) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            return connection.recv(64).startswith(greeting)
    except OSError:
        return False


def generate_key(path: Path, kind: str, passphrase: str = "") -> str:
    """A key pair by OpenSSH's own program; answers the private key's text."""
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)],  # noqa: S607 - where PATH says
        check=True,
        capture_output=True,
    )
    return path.read_text()


def fingerprint(path: Path) -> str:
    output = subprocess.run(["ssh-keygen", "-lf", str(path)], check=True, capture_output=True, text=True)  # noqa: S607
    return output.stdout.split()[1]


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context(seconds=60) as ctx:
        yield ctx


@pytest.fixture
def sftp(sshd: FileServer) -> FileServer:
    sshd.clear()
    return sshd


@pytest.fixture(scope="session")
def sshd() -> Iterator[FileServer]:
    with temporary_folder() as folder:
        (folder / "root").mkdir()
        generate_key(folder / "host", "ed25519")
        private = generate_key(folder / "user", "ed25519")
        generate_key(folder / "locked", "rsa", PASSPHRASE)
        (folder / "authorized").write_text((folder / "user.pub").read_text() + (folder / "locked.pub").read_text())
        port = free_port()
        (folder / "config").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\nPidFile none\n"
            "StrictModes no\nUsePAM yes\nPasswordAuthentication yes\nMaxStartups 100\n"
            "Subsystem sftp internal-sftp\n"
        )
        options = unprivileged_options(folder)
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        command = [program, "-D", "-e", "-f", str(folder / "config")]
        with run_server(command, folder, lambda: has_greeting(port, b"SSH-2.0"), **options) as process:
            settings = {
                "host": "127.0.0.1",
                "port": port,
                "host_key": fingerprint(folder / "host.pub"),
                "user": server_user().pw_name,
                "private_key": private,
                "root": str(folder / "root"),
            }
            yield FileServer(settings, folder / "root", process)


MODULES = "mpm_event authn_core authn_file authz_core authz_user alias auth_basic dav dav_fs dir"


@pytest.fixture(scope="session")
def apache() -> Iterator[FileServer]:
    """Apache's WebDAV with a password, its folder under an address with a space."""
    with temporary_folder() as folder:
        (folder / "root").mkdir()
        digest = base64.b64encode(hashlib.sha1("sésame".encode()).digest()).decode()  # noqa: S324 - what htpasswd -s writes
        (folder / "users").write_text(f"ann:{{SHA}}{digest}\n")
        port = free_port()
        modules = [f"LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so" for name in MODULES.split()]
        (folder / "config").write_text(
            "\n".join(modules)
            + f"""
ServerRoot "{folder}"
ServerName 127.0.0.1
Listen 127.0.0.1:{port}
PidFile "{folder}/pid"
ErrorLog "{folder}/errors"
Mutex file:{folder}
DocumentRoot "{folder}/nothing"
DavLockDB "{folder}/locks"
Alias "/my files" "{folder}/root"
<Directory "{folder}/root">
  Dav On
  AuthType Basic
  AuthName files
  AuthUserFile "{folder}/users"
  Require valid-user
</Directory>
"""
        )
        (folder / "nothing").mkdir()
        options = unprivileged_options(folder)
        program = shutil.which("apache2") or "/usr/sbin/apache2"
        command = [program, "-DFOREGROUND", "-f", str(folder / "config")]
        with run_server(command, folder, lambda: is_listening(port), **options) as process:
            url = f"http://127.0.0.1:{port}/my%20files"
            yield FileServer({"base_url": url, "user": "ann", "password": "sésame"}, folder / "root", process)


def is_listening(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@pytest.fixture(scope="session")
def swift() -> Iterator[dict[str, Any]]:
    """OpenStack Swift with its S3 interface: settings that work but for the bucket, which each test makes for itself."""
    with temporary_folder() as folder:
        (folder / "swift").mkdir()
        # Where only root may enter the checkout, the server's user could not read the program in it.
        program = shutil.copy(Path(__file__).with_name("swift_server.py"), folder)
        options = unprivileged_options(folder)
        command = [Path("/usr/bin/python3"), program, folder / "swift"]
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        with run_server(command, folder, (folder / "swift" / "port").exists, env=environment, **options):
            endpoint = f"http://127.0.0.1:{(folder / 'swift' / 'port').read_text()}"
            yield {"endpoint": endpoint, "region": "eu-central-1", "access_key": "acme:ann", "secret_key": "sésame"}


# What `openssl passwd -6` makes of sésame.
HASH = "$6$gosgos$vgtgI84GJAlDTWuVBoYnf.cnuN64Y0cmcEAlBkL5e.K7atEzm3Em3Z2uL1D5Kd338HTk4S.q/lqDD7tfDmpCE1"


@pytest.fixture(scope="session")
def proftpd() -> Iterator[dict[str, FileServer]]:
    """ProFTPD on four ports: explicit and implicit TLS, clear text, and clear text without lists for programs."""
    with temporary_folder() as folder:
        (folder / "root").mkdir()
        user = server_user()
        write_certificate(folder)
        (folder / "users").write_text(f"ann:{HASH}:{user.pw_uid}:{user.pw_gid}::{folder}/root:/bin/sh\n")
        (folder / "users").chmod(0o600)
        ports = dict(zip(("explicit", "implicit", "clear", "old"), [free_port() for _ in range(4)], strict=True))
        names = {"user": user.pw_name, "group": grp.getgrgid(user.pw_gid).gr_name, "folder": folder}
        (folder / "config").write_text(Path(__file__).with_name("proftpd.conf").read_text().format(**names, **ports))
        options = unprivileged_options(folder)
        command = [shutil.which("proftpd") or "/usr/sbin/proftpd", "-n", "-q", "-c", str(folder / "config")]
        with run_server(command, folder, lambda: has_greeting(ports["explicit"], b"220"), **options) as process:
            ca, root = (folder / "certificate").read_text(), folder / "root"
            common = {"host": "127.0.0.1", "user": "ann", "password": "sésame", "ca": ca, "root": str(root)}
            modes = {"explicit": "explicit", "implicit": "implicit", "clear": "off", "old": "off"}
            yield {name: FileServer({**common, "port": ports[name], "tls": tls}, root, process) for name, tls in modes.items()}
