"""FTP with servers that lie, break off or keep silent."""

import socket
import threading
from collections.abc import Iterator

import pytest
from gos_connector_files import FtpConnector

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.testing import open_context


class Scripted:
    """A server on loopback: `answers` by verb replace what a harmless one would say; `heard` holds every command."""

    def __init__(self) -> None:
        self.answers: dict[str, list[str]] = {}
        self.commands: list[str] = []
        self.files: dict[str, bytes] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._data = socket.create_server(("127.0.0.1", 0))
        self._data.settimeout(60)  # a client that goes elsewhere fails its own test and holds up no other
        self.port = int(self._listener.getsockname()[1])
        self.data_port = int(self._data.getsockname()[1])
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                if self._is_closing:
                    return
                connection.settimeout(60)
                try:
                    self._converse(connection)
                except OSError:  # the client has hung up, which is what some tests are about
                    continue

    def _converse(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            if not self._reply(connection, "GREETING", self.answers.get("GREETING", ["220 ready"])):
                return
            for line in lines:
                command = line.decode().rstrip("\r\n")
                verb = command.split(" ")[0]
                self.commands.append(command)
                if not self._reply(connection, command, self.answers.get(verb, self._default_reply(verb))):
                    return

    def _default_reply(self, verb: str) -> list[str]:
        high, low = divmod(self.data_port, 256)
        return {
            "USER": ["331 password"],
            "PASS": ["230 in"],
            "FEAT": ["211-Features", " MLST type*;size*;modify*;", "211 End"],
            "PWD": ['257 "/"'],
            "EPSV": [f"229 Entering (|||{self.data_port}|)"],
            "PASV": [f"227 Entering Passive Mode (127,0,0,1,{high},{low})"],
            "MLSD": ["150 here", "*data", "226 done"],
            "RETR": ["150 here", "*data", "226 done"],
            "STOR": ["150 here", "*data", "226 done"],
            "MLST": ["550 nothing"],
            "RNFR": ["350 go on"],
        }.get(verb, ["200 fine"])

    def _reply(self, connection: socket.socket, command: str, lines: list[str]) -> bool:
        for line in lines:
            if line == "*hang up":
                return False
            if line == "*data":
                self._exchange(command)
            else:
                connection.sendall(line.encode() + b"\r\n")
        return True

    def _exchange(self, command: str) -> None:
        verb, _, path = command.partition(" ")
        with self._data.accept()[0] as data:
            data.settimeout(60)
            if verb == "STOR":
                with data.makefile("rb") as content:
                    self.files[path] = content.read()
            else:
                data.sendall(self.files.get(path, b""))

    def close(self) -> None:
        self._is_closing = True
        socket.create_connection(("127.0.0.1", self.port), 20).close()
        self._thread.join(90)
        self._listener.close()
        self._data.close()


@pytest.fixture
def server() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.close()


@pytest.fixture
def it(server: Scripted) -> FtpConnector:
    return FtpConnector({"host": "127.0.0.1", "port": server.port, "tls": "off", "user": "ann", "password": "canary"})


PUT_PARAMS = {"path": "a", "text": "hello"}


def test_put_sends_the_expected_commands(server: Scripted, it: FtpConnector, ctx: Context) -> None:
    it.call("put", PUT_PARAMS, ctx)
    [(draft, content)] = server.files.items()
    assert content == b"hello"
    assert server.commands[:6] == ["USER ann", "PASS canary", "FEAT", "TYPE I", "PWD", "MLST /a"]
    assert server.commands[6:] == ["EPSV", f"STOR {draft}", f"RNFR {draft}", "RNTO /a"]


def test_the_address_in_a_pasv_reply_is_ignored(server: Scripted, it: FtpConnector, ctx: Context) -> None:
    elsewhere = socket.create_server(("127.0.0.2", server.data_port))
    high, low = divmod(server.data_port, 256)
    server.answers["EPSV"] = ["500 what?"]
    try:
        for address in ("127,0,0,2", "169,254,169,254", "10,0,0,1"):
            server.answers["PASV"] = [f"227 Entering Passive Mode ({address},{high},{low})"]
            it.call("put", {**PUT_PARAMS, "text": address}, ctx)
            assert server.files.popitem()[1] == address.encode()
        elsewhere.setblocking(False)
        with pytest.raises(BlockingIOError):
            elsewhere.accept()
    finally:
        elsewhere.close()


def test_a_host_name_that_resolves_to_another_machine_is_refused(server: Scripted) -> None:
    twin = socket.create_server(("127.0.0.2", server.data_port))
    names = RotatingNames(["127.0.0.1", "127.0.0.2"])
    settings = {"host": "turning.example", "port": server.port, "tls": "off", "user": "ann", "password": "x"}
    try:
        with open_context(names=names) as ctx, pytest.raises(TransientError, match="several machines"):
            FtpConnector(settings).call("put", PUT_PARAMS, ctx)
    finally:
        twin.close()
    assert not [command for command in server.commands if command.startswith("STOR")]


class RotatingNames(dict[str, str]):
    """A name whose address is another one each time."""

    def __init__(self, addresses: list[str]) -> None:
        super().__init__()
        self._addresses = iter(addresses)

    def __missing__(self, _: str) -> str:
        return next(self._addresses)


def test_clear_text_sent_before_tls_is_refused(server: Scripted, it: FtpConnector, ctx: Context) -> None:
    server.answers["AUTH"] = ["234 go on\r\n230 you are in"]
    with pytest.raises(SystemFailure, match="intercepted"):
        FtpConnector({**it.settings, "tls": "explicit"}).check(ctx)
    assert server.commands == ["AUTH TLS"]


@pytest.mark.parametrize(
    ("verb", "answer", "expected"),
    [
        ("GREETING", ["421 too many"], TransientError),
        ("GREETING", ["SSH-2.0-x"], SystemFailure),
        ("GREETING", ["220-" + "x" * 20_000], SystemFailure),
        ("GREETING", ["220-a", *(["x"] * 10_001)], SystemFailure),
        ("GREETING", ["*hang up"], TransientError),
        ("USER", ["530 no"], AuthError),
        ("PASS", ["530 canary is wrong"], AuthError),
        ("PASS", ["332 account?"], AuthError),
        ("PASS", ["421 later"], TransientError),
        ("FEAT", ["500 what?"], ConfigError),
        ("PWD", ["257 nowhere"], SystemFailure),
        ("PWD", ["*hang up"], TransientError),
        ("EPSV", ["229 (|||0|)"], SystemFailure),
        ("MLSD", ["425 no data"], TransientError),
        ("MLSD", ["550 no"], Rejected),
        ("MLSD", ["150 here", "*data", "426 broken"], TransientError),
        ("MLSD", ["150 here", "*data", "*hang up"], TransientError),
    ],
)
def test_replies_map_to_contract_errors(
    server: Scripted, it: FtpConnector, ctx: Context, verb: str, answer: list[str], expected: type[ConnectorError]
) -> None:
    server.answers[verb] = answer
    with pytest.raises(expected) as caught:
        it.check(ctx)
    assert type(caught.value) is expected
    assert caught.value.outcome == "not_done"
    assert "canary" not in caught.value.message + str(caught.value.details)


def test_the_outcome_is_unknown_only_after_the_rename_was_sent(server: Scripted, it: FtpConnector, ctx: Context) -> None:
    outcomes = []
    for verb in ("STOR", "RNFR", "RNTO"):
        server.answers = {verb: ["*hang up"]}
        with pytest.raises(TransientError) as caught:
            it.call("put", PUT_PARAMS, ctx)
        outcomes.append(caught.value.outcome)
    assert outcomes == ["not_done", "not_done", "unknown"]
    for verb, action in (("DELE", "delete"), ("MKD", "make_folder")):
        server.answers = {verb: ["*hang up"]}
        if action == "delete":
            server.answers["MLST"] = ["250-here", " type=file;size=1; /a", "250 end"]
        with pytest.raises(TransientError) as caught:
            it.call(action, {"path": "a"}, ctx)
        assert caught.value.outcome == "unknown"


def test_a_refused_rename_deletes_its_draft(server: Scripted, it: FtpConnector, ctx: Context) -> None:
    server.answers["RNTO"] = ["553 not over another"]
    with pytest.raises(Rejected, match="553") as caught:
        it.call("put", PUT_PARAMS, ctx)
    assert caught.value.outcome == "not_done"
    assert server.commands[-1].startswith("DELE /.gos-")


def listing(server: Scripted, *lines: str) -> None:
    server.files["/"] = "".join(f"{line}\r\n" for line in lines).encode()


def test_names_outside_the_folder_are_not_listed(server: Scripted, it: FtpConnector, ctx: Context) -> None:
    facts = "Type=file;Size=3;Modify=20010909014640.123;"
    listing(
        server, f"{facts} ok", f"{facts} ..", f"{facts} a/b", f"{facts} ", "type=cdir; x", "type=OS.unix=slink:/etc; link", "junk"
    )
    entries = it.call("list", {}, ctx)["entries"]
    assert [(each["name"], each["kind"], each["size"], each["modified"]) for each in entries] == [
        ("link", "other", 0, None),
        ("ok", "file", 3, "2001-09-09T01:46:40Z"),
    ]


def test_malformed_facts_are_rejected(server: Scripted, it: FtpConnector, ctx: Context) -> None:
    listing(server, "type=file;size=-3; a")
    with pytest.raises(SystemFailure, match="size"):
        it.call("list", {}, ctx)
    server.answers["MLST"] = ["250-here", " type=file;size=1; a", " type=file;size=1; b", "250 end"]
    with pytest.raises(SystemFailure, match="one file"):
        it.call("stat", {"path": "a"}, ctx)


def test_a_file_that_outgrows_the_limit_while_read_is_rejected(server: Scripted, it: FtpConnector, ctx: Context) -> None:
    server.answers["MLST"] = ["250-here", " type=file;size=5; /a", "250 end"]
    server.files["/a"] = b"x" * 3_000_000
    with pytest.raises(Rejected, match="more than the 10"):
        it.call("get", {"path": "a", "most_bytes": 10}, ctx)


def test_a_silent_server_fails_at_the_deadline(server: Scripted, it: FtpConnector) -> None:
    for verb in ("GREETING", "PWD", "MLST"):
        server.answers = {verb: []}
        with open_context(seconds=0.4) as ctx, pytest.raises(TransientError, match="in time") as caught:
            it.call("put", PUT_PARAMS, ctx)
        assert caught.value.outcome == "not_done"


def test_line_breaks_cannot_inject_a_command(it: FtpConnector, ctx: Context) -> None:
    with pytest.raises(ConfigError):
        it.call("get", {"path": "a\r\nDELE b"}, ctx)
    with pytest.raises(ConfigError, match="line breaks"):
        FtpConnector({**it.settings, "password": "x\r\nDELE b"}).check(ctx)
