"""SFTP, by the library paramiko on a socket that the appliance has opened, to a server whose key is known beforehand.

paramiko comes with the first session: it takes long to load, and few have a server that speaks SFTP.
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
    Entry,
    Kind,
    Missing,
    Page,
    Store,
    Take,
    draft_of,
    in_the_way,
    page_of,
    too_full,
    too_large,
)

_T = TypeVar("_T")
_CHUNK = 32 * 1024
_PLACE: Json = {"type": "string", "minLength": 1, "maxLength": 1000}

# What failed is raised in words of our own; paramiko would log it with a traceback for every wrong address.
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
                "description": "Its fingerprint, SHA256:…; several by a space. Without it the check says what the server shows",
                "secret_target": True,
            },
            "user": {"type": "string", "minLength": 1, "maxLength": 200, "title": "User"},
            "password": {"type": "string", "title": "Password", "secret": True},
            "private_key": {"type": "string", "title": "Private key", "description": "In OpenSSH's or PEM format", "secret": True},
            "passphrase": {"type": "string", "title": "Passphrase of the private key", "secret": True},
            "root": {**_PLACE, "title": "Root", "default": ".", "description": "The folder that all paths are below"},
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
            return f"{session.banner} lets {self.settings['user']} in and shows {store.root}; its key is {session.fingerprint}."

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
        self.place = f"{settings['host']}:{settings.get('port', 22)}"
        self._key = _private_key(settings)
        self._socket = ctx.dial(settings["host"], settings.get("port", 22))
        self._transport: Any = None
        self.fingerprint = ""

    @property
    def banner(self) -> str:
        return str(self._transport.remote_version)[:100]

    def sign_in(self) -> None:
        """The server is known before anything that is secret leaves."""
        import paramiko

        try:
            self._transport = paramiko.Transport(self._socket)
            self._transport.banner_timeout = self._transport.handshake_timeout = self.left()
            self._transport.start_client(timeout=self.left())
            if not self._transport.initial_kex_done:
                raise TransientError(f"{self.place} did not finish SSH's greeting in time.")
            key = self._transport.get_remote_server_key()
        except paramiko.ssh_exception.IncompatiblePeer as error:
            raise ConfigError(f"{self.place} offers only outdated encryption ({error}); bring the server up to date.") from error
        except (EOFError, OSError) as error:
            raise TransientError(f"{self.place} hung up during SSH's greeting, or did not answer in time.") from error
        except paramiko.SSHException as error:
            # paramiko says the same of silence, of a closed connection and of nonsense: what it handled tells them apart.
            if time.monotonic() >= self._deadline or isinstance(error.__context__, EOFError | OSError):
                raise TransientError(f"{self.place} hung up during SSH's greeting, or did not answer in time.") from error
            raise SystemFailure(f"{self.place} does not speak SSH ({str(error)[:200]}).") from error
        self.fingerprint = f"SHA256:{key.fingerprint.removeprefix('SHA256:')}"
        self._know(key.get_name())
        self._authenticate()
        self.sftp = self.guarded(self._channel, "not_done")

    def _know(self, kind: str) -> None:
        expected = str(self._settings.get("host_key", "")).split()
        if not expected:
            raise ConfigError(
                f"{self.place} shows the {kind} key {self.fingerprint}; "
                "compare it with what its operator says and set `host_key` to it.",
                details={"host_key": self.fingerprint},
            )
        if self.fingerprint not in (given.rstrip("=") for given in expected):
            raise ConfigError(
                f"{self.place} shows another key than `host_key`: {kind} {self.fingerprint}. Nothing was sent. "
                "Ask the server's operator whether it was changed before you set the new one.",
                details={"host_key": self.fingerprint},
            )

    def _authenticate(self) -> None:
        import paramiko

        user, password = self._settings["user"], self._settings.get("password")
        self._transport.auth_timeout = self.left()
        try:
            if self._key is not None:
                further = self._transport.auth_publickey(user, self._key)
                if further and password is not None:
                    further = self._transport.auth_password(user, password)
            else:
                further = self._transport.auth_password(user, password)
        except paramiko.BadAuthenticationType as error:
            raise AuthError(
                f"{self.place} does not accept this way to sign in; it wants {', '.join(error.allowed_types)}."
            ) from error
        except (paramiko.SSHException, EOFError, OSError) as error:
            if not self._transport.is_active() or "timeout" in str(error):
                raise TransientError(f"{self.place} hung up while signing in, or did not answer in time.") from error
            raise AuthError(f"{self.place} does not let {user!r} in; check user, password and key.") from error
        if further:
            raise AuthError(f"{self.place} wants more than it was given: {', '.join(further)}.")

    def _channel(self) -> Any:
        import paramiko

        channel = self._transport.open_session(timeout=self.left())
        channel.settimeout(self.left())
        channel.invoke_subsystem("sftp")
        return paramiko.SFTPClient(channel)

    def left(self) -> float:
        return max(0.05, self._deadline - time.monotonic())

    def hurry(self) -> None:
        """The channel waits no longer than the call may; to be repeated where many answers come."""
        if time.monotonic() >= self._deadline:
            raise TransientError(f"{self.place} did not finish in time.")
        self.sftp.get_channel().settimeout(self.left())

    def guarded(self, work: Callable[[], _T], when_lost: Outcome, path: str = "") -> _T:
        """What the server answers, its refusals as errors of the contract."""
        import paramiko

        lost = f"The connection to {self.place} was lost, or it did not answer in time."
        try:
            return work()
        except (TimeoutError, EOFError) as error:
            raise TransientError(lost, outcome=when_lost) from error
        except OSError as error:
            if error.errno == errno.ENOENT:
                raise Missing(path) from error
            if error.errno == errno.EACCES:
                raise Rejected(f"{self.place} does not permit this with {path!r}; check the user's rights.") from error
            if error.errno is not None or not self._transport.is_active() or "closed" in str(error):
                raise TransientError(lost, outcome=when_lost) from error
            raise Rejected(f"{self.place} refused this with {path!r}: {str(error)[:300]}") from error
        except paramiko.SSHException as error:
            if not self._transport.is_active():
                raise TransientError(lost, outcome=when_lost) from error
            raise SystemFailure(
                f"{self.place} does not offer SFTP, or answered nonsense ({str(error)[:200]}).", outcome=when_lost
            ) from error
        except (ValueError, TypeError, LookupError) as error:
            raise SystemFailure(f"{self.place} answered what is not SFTP.", outcome=when_lost) from error

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._socket.close()


class SftpStore(Store):
    """Files below a root; a link that leads out of it is not followed."""

    def __init__(self, session: SftpSession, root: str) -> None:
        self._session = session
        self.root = str(self._ask(lambda sftp: sftp.normalize(root), "not_done", root))

    def page(self, folder: str, after: str | None, limit: int) -> Page:
        where = self._inside(folder)
        return page_of(self._ask(lambda sftp: list(self._walk(sftp, where, folder)), "not_done", folder), after, limit)

    def _walk(self, sftp: Any, where: str, folder: str) -> Iterator[Entry]:
        for count, found in enumerate(sftp.listdir_iter(where)):
            if count >= MOST_IN_FOLDER:
                raise too_full()
            self._session.hurry()
            if found.filename not in (".", ".."):
                yield _entry(join(folder, found.filename), found)

    def stat(self, path: str) -> Entry | None:
        try:
            where = self._inside(path)
            return _entry(path, self._ask(lambda sftp: sftp.stat(where), "not_done", path))
        except Missing:
            return None

    def read(self, path: str, most: int) -> bytes:
        where = self._inside(path)
        found = _entry(path, self._ask(lambda sftp: sftp.stat(where), "not_done", path))
        if found.kind != "file":
            raise Rejected(f"{path!r} is no file.")
        if found.size > most:
            raise too_large(path, found.size, most)
        content = self._ask(lambda sftp: b"".join(self._pieces(sftp, where, most)), "not_done", path)
        if len(content) > most:
            raise too_large(path, len(content), most)
        return content

    def _pieces(self, sftp: Any, where: str, most: float) -> Iterator[bytes]:
        size = 0
        with sftp.open(where, "rb") as file:
            while size <= most and (part := file.read(_CHUNK)):
                self._session.hurry()
                yield part
                size += len(part)

    def read_through(self, path: str, take: Take) -> str:
        where = self._inside(path)
        found = _entry(path, self._ask(lambda sftp: sftp.stat(where), "not_done", path))
        if found.kind != "file":
            raise Rejected(f"{path!r} is no file.")
        taken: str = self._ask(lambda sftp: take(self._pieces(sftp, where, math.inf)), "not_done", path)
        return taken

    def write(self, path: str, content: bytes, key: str) -> None:
        self._write(path, lambda: (content[start : start + _CHUNK] for start in range(0, len(content), _CHUNK)), key)

    def write_through(self, path: str, content: DocumentContent, key: str) -> None:
        self._write(path, content.chunks, key)

    def _write(self, path: str, chunks: Callable[[], Iterator[bytes]], key: str) -> None:
        """Beside the file under a name of its own, then in its place at once: nobody ever sees half of it."""
        folder, name = split(path)
        parent = self._inside(folder)
        draft, target = f"{parent}/{draft_of(path, key)}", f"{parent}/{name}"
        self._ask(lambda sftp: self._send(sftp, draft, chunks()), "not_done", path)
        try:
            self._ask(lambda sftp: sftp.posix_rename(draft, target), "unknown", path)
        except Rejected:
            self._ask(lambda sftp: sftp.remove(draft), "not_done", path)
            raise

    def _send(self, sftp: Any, draft: str, chunks: Iterator[bytes]) -> None:
        size = 0
        with sftp.open(draft, "wb") as file:
            file.set_pipelined(True)
            for chunk in chunks:
                self._session.hurry()
                file.write(chunk)
                size += len(chunk)
        if sftp.stat(draft).st_size != size:
            raise SystemFailure(f"{self._session.place} kept another number of bytes than it was sent.")

    def move(self, source: str, target: str) -> None:
        old, new = self._own(source), self._own(target)
        self._ask(lambda sftp: sftp.lstat(old), "not_done", source)
        if self._is_there(new):
            raise in_the_way(target)
        self._ask(lambda sftp: sftp.rename(old, new), "unknown", target)

    def delete(self, path: str) -> bool:
        try:
            where = self._own(path)
            found = self._ask(lambda sftp: sftp.lstat(where), "not_done", path)
            is_folder = stat.S_ISDIR(found.st_mode or 0)
            self._ask(lambda sftp: sftp.rmdir(where) if is_folder else sftp.remove(where), "unknown", path)
        except Missing:
            return False
        return True

    def make_folder(self, path: str) -> bool:
        made, folder = False, ""
        for name in path.split("/"):
            folder = join(folder, name)
            made = self._make_one(folder) or made
        return made

    def _make_one(self, folder: str) -> bool:
        where = self._own(folder)
        if not self._is_there(where):
            self._ask(lambda sftp: sftp.mkdir(where), "unknown", folder)
            return True
        if not stat.S_ISDIR(self._ask(lambda sftp: sftp.stat(where), "not_done", folder).st_mode or 0):
            raise in_the_way(folder)
        return False

    def _is_there(self, where: str) -> bool:
        try:
            self._ask(lambda sftp: sftp.lstat(where), "not_done", where)
        except Missing:
            return False
        return True

    def _own(self, path: str) -> str:
        """The place of the name itself, a link not followed, in a folder that lies below the root."""
        folder, name = split(path)
        return f"{self._inside(folder)}/{name}"

    def _inside(self, path: str) -> str:
        """Where the path leads, links followed; Rejected when that is not below the root."""
        wanted = f"{self.root.rstrip('/')}/{path}" if path else self.root
        # OpenSSH normalises a name that is not there as well: whether it is, the next request finds out.
        real = str(self._ask(lambda sftp: sftp.normalize(wanted), "not_done", path))
        if real != self.root and not real.startswith(f"{self.root.rstrip('/')}/"):
            raise Rejected(f"{path!r} is a link that leads out of the integration's root.")
        return real

    def _ask(self, work: Callable[[Any], _T], when_lost: Outcome, path: str) -> _T:
        self._session.hurry()
        return self._session.guarded(lambda: work(self._session.sftp), when_lost, path)


def _entry(path: str, found: Any) -> Entry:
    mode = found.st_mode or 0
    kind: Kind = "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"
    return Entry(path, kind, (found.st_size or 0) if kind == "file" else 0, found.st_mtime)


def _private_key(settings: Json) -> Any:
    """The key to sign in with, None without one; ConfigError for one that cannot be read."""
    text = settings.get("private_key")
    if text is None:
        if settings.get("password") is None:
            raise ConfigError("There is nothing to sign in with; give `password` or `private_key`.")
        return None
    import paramiko

    for kind in (paramiko.Ed25519Key, paramiko.ECDSAKey, paramiko.RSAKey):
        try:
            return kind.from_private_key(io.StringIO(text), settings.get("passphrase"))
        except paramiko.PasswordRequiredException as error:
            raise ConfigError("The private key is locked; give its `passphrase`.") from error
        except (paramiko.SSHException, ValueError, TypeError):
            continue  # a key of another kind
    raise ConfigError("`private_key` cannot be read, or `passphrase` is wrong; give the whole text with its BEGIN and END lines.")
