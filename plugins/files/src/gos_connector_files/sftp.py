"""The connector `sftp`: uses paramiko on a socket the appliance opened, and accepts only servers whose host key is configured.

paramiko is imported with the first session, because it is slow to load and few appliances use SFTP.
"""

import errno
import io
import logging
import math
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    Context,
    DocumentContent,
    Json,
    Outcome,
    Rejected,
    SystemFailure,
    TransientError,
)
from gos_connector_files.connector import FilesConnector
from gos_connector_files.path import join, split
from gos_connector_files.store import (
    MOST_IN_FOLDER,
    Consumer,
    Entry,
    Kind,
    Missing,
    Page,
    Store,
    already_exists,
    draft_of,
    folder_too_full,
    page_of,
    too_large,
)

_T = TypeVar("_T")
_CHUNK = 32 * 1024
_PATH: Json = {"type": "string", "minLength": 1, "maxLength": 1000}

# Failures are raised as errors of the contract; paramiko would also log a traceback for every wrong address.
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)


class SftpConnector(FilesConnector):
    """A folder of an SFTP server."""

    name = "sftp"
    title = "SFTP"
    tested_against = "OpenSSH 9.2"
    settings_schema: ClassVar[Json] = {
        "type": "object",
        "required": ["host", "user"],
        "additionalProperties": False,
        "properties": {
            "host": {"type": "string", "minLength": 1, "maxLength": 253, "title": "Host", "secret_target": True},
            "port": {"type": "integer", "minimum": 1, "maximum": 65535, "default": 22, "title": "Port", "secret_target": True},
            "host_key": {
                "type": "string",
                "title": "The server's key",
                "description": "Its fingerprint, SHA256:…; separate several with spaces. If empty, the check reports it",
                "secret_target": True,
            },
            "user": {"type": "string", "minLength": 1, "maxLength": 200, "title": "User"},
            "password": {"type": "string", "title": "Password", "secret": True},
            "private_key": {"type": "string", "title": "Private key", "description": "In OpenSSH's or PEM format", "secret": True},
            "passphrase": {"type": "string", "title": "Passphrase of the private key", "secret": True},
            "root": {**_PATH, "title": "Root", "default": ".", "description": "The folder that all paths are relative to"},
        },
    }

    @contextmanager
    def open(self, ctx: Context) -> Iterator[Store]:
        with self._session(ctx) as session:
            yield SftpStore(session, self.settings.get("root", "."))

    def check(self, ctx: Context) -> str:
        with self._session(ctx) as session:
            store = SftpStore(session, self.settings.get("root", "."))
            store.page("", None, 1)
            user, server = self.settings["user"], session.banner
            return f"Signed in to {server} as {user}; the root is {store.root}, the host key {session.fingerprint}."

    @contextmanager
    def _session(self, ctx: Context) -> Iterator["SftpSession"]:
        session = SftpSession(self.settings, ctx)
        try:
            session.sign_in()
            yield session
        finally:
            session.close()


class SftpSession:
    """One SSH connection with its SFTP channel; every step ends at the call's deadline."""

    def __init__(self, settings: Json, ctx: Context) -> None:
        self._settings = settings
        self._deadline = ctx.deadline
        self.address = f"{settings['host']}:{settings.get('port', 22)}"
        self._key = _private_key(settings)
        self._socket = ctx.dial(settings["host"], settings.get("port", 22))
        self._transport: Any = None
        self.fingerprint = ""

    @property
    def banner(self) -> str:
        return str(self._transport.remote_version)[:100]

    def sign_in(self) -> None:
        """Connect, verify the host key and only then send credentials."""
        import paramiko

        try:
            self._transport = paramiko.Transport(self._socket)
            self._transport.banner_timeout = self._transport.handshake_timeout = self.seconds_left()
            self._transport.start_client(timeout=self.seconds_left())
            if not self._transport.initial_kex_done:
                raise TransientError(f"{self.address} did not finish the SSH handshake in time.")
            key = self._transport.get_remote_server_key()
        except paramiko.ssh_exception.IncompatiblePeer as error:
            raise ConfigError(f"{self.address} offers only outdated encryption ({error}); update the server.") from error
        except (EOFError, OSError) as error:
            raise TransientError(f"{self.address} closed the connection or timed out during the SSH handshake.") from error
        except paramiko.SSHException as error:
            # paramiko raises this for timeouts, closed connections and protocol errors alike; the context tells them apart.
            if time.monotonic() >= self._deadline or isinstance(error.__context__, EOFError | OSError):
                raise TransientError(f"{self.address} closed the connection or timed out during the SSH handshake.") from error
            raise SystemFailure(f"{self.address} is not an SSH server ({str(error)[:200]}).") from error
        self.fingerprint = f"SHA256:{key.fingerprint.removeprefix('SHA256:')}"
        self._verify_host_key(key.get_name())
        self._authenticate()
        self.sftp = self.run(self._open_channel, "not_done")

    def _verify_host_key(self, kind: str) -> None:
        expected = str(self._settings.get("host_key", "")).split()
        if not expected:
            raise ConfigError(
                f"{self.address} has the {kind} host key {self.fingerprint}; "
                "verify it with the server's operator, then set `host_key` to it.",
                details={"host_key": self.fingerprint},
            )
        if self.fingerprint not in (fingerprint.rstrip("=") for fingerprint in expected):
            raise ConfigError(
                f"{self.address} has another key than `host_key`: {kind} {self.fingerprint}. No credentials were sent. "
                "Ask the server's operator whether the key was changed before you set the new one.",
                details={"host_key": self.fingerprint},
            )

    def _authenticate(self) -> None:
        import paramiko

        user, password = self._settings["user"], self._settings.get("password")
        self._transport.auth_timeout = self.seconds_left()
        try:
            if self._key is not None:
                required = self._transport.auth_publickey(user, self._key)
                if required and password is not None:
                    required = self._transport.auth_password(user, password)
            else:
                required = self._transport.auth_password(user, password)
        except paramiko.BadAuthenticationType as error:
            raise AuthError(
                f"{self.address} does not accept this sign-in method; it accepts {', '.join(error.allowed_types)}."
            ) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            if not self._transport.is_active() or "timeout" in str(error):
                raise TransientError(f"{self.address} closed the connection or timed out during sign-in.") from error
            raise AuthError(
                f"{self.address} does not accept the user {user!r}; check `user`, `password` and `private_key`."
            ) from error
        if required:
            raise AuthError(f"{self.address} also requires {', '.join(required)}; set the missing credential.")

    def _open_channel(self) -> Any:
        import paramiko

        channel = self._transport.open_session(timeout=self.seconds_left())
        channel.settimeout(self.seconds_left())
        channel.invoke_subsystem("sftp")
        return paramiko.SFTPClient(channel)

    def seconds_left(self) -> float:
        return max(0.05, self._deadline - time.monotonic())

    def apply_deadline(self) -> None:
        """Limit the channel's timeout to the time left; repeat this between the answers of a long operation."""
        if time.monotonic() >= self._deadline:
            raise TransientError(f"{self.address} did not finish in time.")
        self.sftp.get_channel().settimeout(self.seconds_left())

    def run(self, operation: Callable[[], _T], when_lost: Outcome, path: str = "") -> _T:
        """Run an operation and raise its failures as errors of the contract."""
        import paramiko

        lost = f"The connection to {self.address} was lost, or it did not answer in time."
        try:
            return operation()
        except (TimeoutError, EOFError) as error:
            raise TransientError(lost, outcome=when_lost) from error
        except OSError as error:
            if error.errno == errno.ENOENT:
                raise Missing(path) from error
            if error.errno == errno.EACCES:
                raise Rejected(f"{self.address} denies access to {path!r}; check the user's permissions.") from error
            if error.errno is not None or not self._transport.is_active() or "closed" in str(error):
                raise TransientError(lost, outcome=when_lost) from error
            raise Rejected(f"{self.address} refused this with {path!r}: {str(error)[:300]}") from error
        except paramiko.SSHException as error:
            if not self._transport.is_active():
                raise TransientError(lost, outcome=when_lost) from error
            raise SystemFailure(
                f"{self.address} does not offer SFTP, or sent an invalid answer ({str(error)[:200]}).", outcome=when_lost
            ) from error
        except (ValueError, TypeError, LookupError) as error:
            raise SystemFailure(f"{self.address} sent an invalid SFTP answer.", outcome=when_lost) from error

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._socket.close()


class SftpStore(Store):
    """Files below a root; a link that leads out of it is not followed."""

    def __init__(self, session: SftpSession, root: str) -> None:
        self._session = session
        self.root = str(self._run(lambda sftp: sftp.normalize(root), "not_done", root))

    def page(self, folder: str, after: str | None, limit: int) -> Page:
        real_path = self._resolve(folder)
        return page_of(self._run(lambda sftp: list(self._scan(sftp, real_path, folder)), "not_done", folder), after, limit)

    def _scan(self, sftp: Any, real_path: str, folder: str) -> Iterator[Entry]:
        for count, attributes in enumerate(sftp.listdir_iter(real_path)):
            if count >= MOST_IN_FOLDER:
                raise folder_too_full()
            self._session.apply_deadline()
            if attributes.filename not in (".", ".."):
                yield _entry(join(folder, attributes.filename), attributes)

    def stat(self, path: str) -> Entry | None:
        try:
            real_path = self._resolve(path)
            return _entry(path, self._run(lambda sftp: sftp.stat(real_path), "not_done", path))
        except Missing:
            return None

    def read(self, path: str, most: int) -> bytes:
        real_path = self._resolve(path)
        entry = _entry(path, self._run(lambda sftp: sftp.stat(real_path), "not_done", path))
        if entry.kind != "file":
            raise Rejected(f"{path!r} is no file.")
        if entry.size > most:
            raise too_large(path, entry.size, most)
        content = self._run(lambda sftp: b"".join(self._read_chunks(sftp, real_path, most)), "not_done", path)
        if len(content) > most:
            raise too_large(path, len(content), most)
        return content

    def _read_chunks(self, sftp: Any, real_path: str, most: float) -> Iterator[bytes]:
        size = 0
        with sftp.open(real_path, "rb") as file:
            while size <= most and (chunk := file.read(_CHUNK)):
                self._session.apply_deadline()
                yield chunk
                size += len(chunk)

    def read_through(self, path: str, consume: Consumer) -> str:
        real_path = self._resolve(path)
        entry = _entry(path, self._run(lambda sftp: sftp.stat(real_path), "not_done", path))
        if entry.kind != "file":
            raise Rejected(f"{path!r} is no file.")
        result: str = self._run(lambda sftp: consume(self._read_chunks(sftp, real_path, math.inf)), "not_done", path)
        return result

    def write(self, path: str, content: bytes, key: str) -> None:
        self._write(path, lambda: (content[start : start + _CHUNK] for start in range(0, len(content), _CHUNK)), key)

    def write_through(self, path: str, content: DocumentContent, key: str) -> None:
        self._write(path, content.chunks, key)

    def _write(self, path: str, chunks: Callable[[], Iterator[bytes]], key: str) -> None:
        """Upload a draft beside the file, then rename it over the file, so no partial file is ever visible."""
        folder, name = split(path)
        parent = self._resolve(folder)
        draft, target = f"{parent}/{draft_of(path, key)}", f"{parent}/{name}"
        self._run(lambda sftp: self._upload(sftp, draft, chunks()), "not_done", path)
        try:
            self._run(lambda sftp: sftp.posix_rename(draft, target), "unknown", path)
        except Rejected:
            self._run(lambda sftp: sftp.remove(draft), "not_done", path)
            raise

    def _upload(self, sftp: Any, draft: str, chunks: Iterator[bytes]) -> None:
        size = 0
        with sftp.open(draft, "wb") as file:
            file.set_pipelined(True)
            for chunk in chunks:
                self._session.apply_deadline()
                file.write(chunk)
                size += len(chunk)
        if sftp.stat(draft).st_size != size:
            raise SystemFailure(f"{self._session.address} stored a different number of bytes than were sent.")

    def move(self, source: str, target: str) -> None:
        old, new = self._resolve_parent(source), self._resolve_parent(target)
        self._run(lambda sftp: sftp.lstat(old), "not_done", source)
        if self._exists(new):
            raise already_exists(target)
        self._run(lambda sftp: sftp.rename(old, new), "unknown", target)

    def delete(self, path: str) -> bool:
        try:
            real_path = self._resolve_parent(path)
            attributes = self._run(lambda sftp: sftp.lstat(real_path), "not_done", path)
            is_folder = stat.S_ISDIR(attributes.st_mode or 0)
            self._run(lambda sftp: sftp.rmdir(real_path) if is_folder else sftp.remove(real_path), "unknown", path)
        except Missing:
            return False
        return True

    def make_folder(self, path: str) -> bool:
        created, folder = False, ""
        for name in path.split("/"):
            folder = join(folder, name)
            created = self._make_one(folder) or created
        return created

    def _make_one(self, folder: str) -> bool:
        real_path = self._resolve_parent(folder)
        if not self._exists(real_path):
            self._run(lambda sftp: sftp.mkdir(real_path), "unknown", folder)
            return True
        if not stat.S_ISDIR(self._run(lambda sftp: sftp.stat(real_path), "not_done", folder).st_mode or 0):
            raise already_exists(folder)
        return False

    def _exists(self, real_path: str) -> bool:
        try:
            self._run(lambda sftp: sftp.lstat(real_path), "not_done", real_path)
        except Missing:
            return False
        return True

    def _resolve_parent(self, path: str) -> str:
        """Return the real path of the entry itself: its folder is resolved and must be below the root, a final link is not."""
        folder, name = split(path)
        return f"{self._resolve(folder)}/{name}"

    def _resolve(self, path: str) -> str:
        """Return the real path with links followed; Rejected when it is not below the root."""
        target = f"{self.root.rstrip('/')}/{path}" if path else self.root
        # OpenSSH also normalises paths that do not exist; the next request detects that.
        real_path = str(self._run(lambda sftp: sftp.normalize(target), "not_done", path))
        if real_path != self.root and not real_path.startswith(f"{self.root.rstrip('/')}/"):
            raise Rejected(f"{path!r} is a link to a target outside the integration's root.")
        return real_path

    def _run(self, operation: Callable[[Any], _T], when_lost: Outcome, path: str) -> _T:
        self._session.apply_deadline()
        return self._session.run(lambda: operation(self._session.sftp), when_lost, path)


def _entry(path: str, attributes: Any) -> Entry:
    mode = attributes.st_mode or 0
    kind: Kind = "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"
    return Entry(path, kind, (attributes.st_size or 0) if kind == "file" else 0, attributes.st_mtime)


def _private_key(settings: Json) -> Any:
    """Load the private key, None if none is set; ConfigError if it cannot be read."""
    text = settings.get("private_key")
    if text is None:
        if settings.get("password") is None:
            raise ConfigError("The settings contain no credentials; set `password` or `private_key`.")
        return None
    import paramiko

    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        try:
            return kind.from_private_key(io.StringIO(text), settings.get("passphrase"))
        except paramiko.PasswordRequiredException as error:
            raise ConfigError("The private key is encrypted; set its `passphrase`.") from error
        except (paramiko.SSHException, ValueError, TypeError):
            continue  # The key is of another type.
    raise ConfigError("`private_key` or `passphrase` is invalid; paste the whole key with its BEGIN and END lines.")
