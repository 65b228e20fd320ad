"""Reading a mailbox on a real Dovecot: every message is readable, and reading changes nothing."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from gos_connector_email import EmailConnector
from gos_connector_email.mailbox import MAX_POLLED
from gos_connector_email.replies import decode_folder, encode_folder

from appliance.connectors.contract import AuthError, ConfigError, ConnectorError, Context, Polled, Rejected, SystemFailure
from appliance.connectors.testing import ConnectorContract, HeldDocuments, open_context, schema_problems, with_documents

# aiosmtpd does not detect that its connection already uses TLS.
pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS:UserWarning")

PLAIN = b"From: Ann <ann@example.com>\r\nTo: orders@example.com\r\nSubject: %s\r\n\r\nHello\r\n"
MIXED = (
    b"From: =?utf-8?q?J=C3=B6rg=2C_A=2E?= <joerg@example.com>, bo@example.com\r\n"
    b"To: orders@example.com\r\nSubject: =?iso-8859-1?q?Gr=FC=DFe?=\r\n =?utf-8?b?IOKYgw==?=\r\nMessage-ID: <1@example.com>\r\n"
    b"In-Reply-To: <0@example.com>\r\nReferences: <a@x> <0@example.com>\r\nMIME-Version: 1.0\r\n"
    b'Content-Type: multipart/mixed; boundary="o"\r\n\r\n'
    b'--o\r\nContent-Type: multipart/alternative; boundary="i"\r\n\r\n'
    b"--i\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nGr=FC=DFe\r\n"
    b"--i\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>Gr\xc3\xbc\xc3\x9fe</p>\r\n--i--\r\n"
    b"--o\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Disposition: attachment;"
    b" filename*=utf-8''na%C3%AFve.txt\r\nContent-Transfer-Encoding: base64\r\n\r\naGVsbG8=\r\n"
    b"--o\r\nContent-Type: application/pdf; name=a.pdf\r\nContent-Transfer-Encoding: base64\r\n\r\nAAECAw==\r\n--o--\r\n"
)


class TestContract(ConnectorContract):
    connector = EmailConnector

    @pytest.fixture
    def settings(self, mailbox: Any, smtp_server: Any) -> Iterator[dict[str, Any]]:
        mailbox.append(PLAIN % b"First")
        with smtp_server("tls") as smtp:
            yield {**smtp.settings, **mailbox.settings}

    @pytest.fixture
    def broken_settings(self, mailbox: Any) -> dict[str, Any]:
        return {**mailbox.settings, "imap_port": 1}


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context() as ctx:
        yield ctx


class Reader:
    """The connector on one mailbox; validates every output against its schema."""

    def __init__(self, mailbox: Any, ctx: Context) -> None:
        self.mailbox, self.ctx = mailbox, ctx
        self.it = EmailConnector(mailbox.settings)

    def __call__(self, name: str, **params: Any) -> dict[str, Any]:
        action = next(action for action in self.it.actions if action.name == name)
        assert schema_problems(action.input, params) == []
        output = self.it.call(name, params, self.ctx)
        assert schema_problems(action.output, output) == []
        return output

    def uids(self, **criteria: Any) -> list[int]:
        return [each["uid"] for each in self("search", criteria=criteria)["messages"]]

    def poll(self, cursor: Any = None, **query: Any) -> Polled:
        polled = self.it.poll("new_mail", query, cursor, self.ctx)
        for item in polled.items:
            assert schema_problems(self.it.triggers[0].item, dict(item.data)) == []
        return polled


@pytest.fixture
def reader(mailbox: Any, ctx: Context) -> Reader:
    return Reader(mailbox, ctx)


def test_a_message_is_read_with_its_parts_decoded(reader: Reader) -> None:
    reader.mailbox.append(MIXED)
    [message] = reader("search")["messages"]
    assert message["subject"] == "Grüße ☃"
    assert message["from"] == [{"name": "Jörg, A.", "address": "joerg@example.com"}, {"name": "", "address": "bo@example.com"}]
    read = reader("read", uid=message["uid"], uidvalidity=message["uidvalidity"])
    assert (read["text"], read["html"], read["truncated"]) == ("Grüße", "<p>Grüße</p>", False)
    assert (read["message_id"], read["references"]) == ("<1@example.com>", ["<a@x>", "<0@example.com>"])
    attachments = [
        (each["name"], each["content_type"], each["size"], base64.b64decode(each["content"])) for each in read["attachments"]
    ]
    assert attachments == [("naïve.txt", "text/plain", 5, b"hello"), ("a.pdf", "application/pdf", 4, b"\0\1\2\3")]
    assert reader.uids(seen=True) == []


def test_attachments_are_included_up_to_the_byte_limit(reader: Reader) -> None:
    reader.mailbox.append(MIXED)
    [uid] = reader.uids()
    assert [each["content"] for each in reader("read", uid=uid, attached_bytes=4)["attachments"]] == [None, "AAECAw=="]
    assert [each["content"] for each in reader("read", uid=uid, attached_bytes=0)["attachments"]] == [None, None]


def test_attachments_become_documents(mailbox: Any, ctx: Any) -> None:
    documents = HeldDocuments()
    reader = Reader(mailbox, with_documents(ctx, documents))
    mailbox.append(MIXED)
    [uid] = reader.uids()
    first, second = reader("read", uid=uid, as_documents=True)["attachments"]
    assert (first["content"], second["content"]) == (None, None)
    assert documents.documents[first["document"]] == ("naïve.txt", "text/plain", b"hello")
    assert documents.documents[second["document"]] == ("a.pdf", "application/pdf", b"\0\1\2\3")
    stored = [each.get("document") for each in reader("read", uid=uid, as_documents=True, attached_bytes=4)["attachments"]]
    assert (stored[0], len(documents.documents)) == (None, 3)


@pytest.mark.parametrize(
    "content",
    [
        b"Subject: =?utf-8?b?!!!?=\r\nFrom: <<>>,,\r\nDate: never\r\n\r\n\xff\xfe",
        b"Subject: \xe2\x98\x83\r\nContent-Type: text/plain; charset=no-such\r\n\r\n\xe2\x98\x83",
        b"Content-Type: multipart/mixed\r\n\r\nno boundary",
        b'Content-Type: message/rfc822\r\nContent-Disposition: attachment; filename="=?x?q?y?="\r\n\r\nSubject: in\r\n\r\nx',
        b"Content-Transfer-Encoding: base64\r\nContent-Type: text/html\r\n\r\n%%%",
        b"no header at all\r\n",
        b"From: a@b" + b", c@d" * 3000 + b"\r\nReferences: " + b"<a@b> " * 300 + b"\r\n\r\n",
    ],
)
def test_malformed_messages_are_readable(reader: Reader, content: bytes) -> None:
    reader.mailbox.append(content)
    [message] = reader("search")["messages"]
    read = reader("read", uid=message["uid"])
    assert read["date"] is None
    if "no-such" in str(content):
        assert (read["subject"], read["text"]) == ("☃", "☃")


def test_search_values_cannot_inject_commands(reader: Reader) -> None:
    reader.mailbox.append(PLAIN % b'say "hi" \\ {3}')
    reader.mailbox.append(PLAIN % b"ALL")
    reader.mailbox.append(MIXED)
    assert reader.uids(subject='say "hi" \\') == [1]
    assert reader.uids(subject='" ALL') == []
    assert reader.uids(subject="grüße ☃") == [3]
    assert reader.uids(subject="ALL", **{"from": "ann"}) == [2]
    assert reader.uids(headers={"Message-ID": "<1@example.com>"}) == [3]
    assert reader.uids(after_uid=2) == [3]
    assert reader.uids(after_uid=3) == []
    assert reader.uids(larger=400) == [3]
    assert reader.uids(since="2020-01-01", before="2021-01-01") == []
    assert len(reader.uids(since="2020-01-01")) == 3
    limited = reader("search", limit=2)
    assert ([each["uid"] for each in limited["messages"]], limited["total"]) == ([3, 2], 3)
    for wrong in ({"subject": "a\r\nx LOGOUT"}, {"headers": {"A B": "x"}}, {"keyword": "a b"}, {"since": "2026-13-01"}):
        with pytest.raises(ConfigError):
            reader.it.call("search", {"criteria": wrong}, reader.ctx)


def test_flags_are_set_and_removed(reader: Reader) -> None:
    for subject in (b"a", b"b"):
        reader.mailbox.append(PLAIN % subject)
    for _ in range(2):
        assert reader("flag", uids=[1, 7], add=["seen", "flagged", "$Done"]) == {"changed": [1], "missing": [7]}
    assert (reader.uids(seen=True), reader.uids(keyword="$Done")) == ([1], [1])
    assert reader("search", criteria={"flagged": True})["messages"][0]["flags"] == ["$Done", "flagged", "seen"]
    reader("flag", uids=[1], remove=["seen"])
    assert reader.uids(seen=False) == [2, 1]
    for wrong in ({}, {"add": ["a) b"]}, {"add": ["\\Seen"]}):
        with pytest.raises(ConfigError):
            reader.it.call("flag", {"uids": [1], **wrong}, reader.ctx)


def test_moving_a_message_twice_moves_it_once(reader: Reader) -> None:
    name = 'Grüße & "Co"/☃'
    reader.mailbox.run("create", '"' + encode_folder(name).decode().replace('"', '\\"') + '"')
    for subject in (b"a", b"b", b"c"):
        reader.mailbox.append(PLAIN % subject)
    assert name in [each["name"] for each in reader("folders")["folders"]]
    assert reader("move", uids=[1, 3], to=name) == {"changed": [1, 3], "missing": []}
    assert reader("move", uids=[1, 3], to=name) == {"changed": [], "missing": [1, 3]}
    assert [each["subject"] for each in reader("search", folder=name)["messages"]] == ["c", "a"]
    assert reader.uids() == [2]
    with pytest.raises(ConfigError, match="no such folder"):
        reader("move", uids=[2], to="Nowhere")
    with pytest.raises(ConfigError, match="already"):
        reader("move", uids=[2], to="INBOX")
    assert reader.uids() == [2]


def test_uids_of_a_recreated_folder_are_refused(reader: Reader) -> None:
    reader.mailbox.append(PLAIN % b"old", "Archive")
    before = reader("search", folder="Archive")["uidvalidity"]
    reader.mailbox.run("delete", "Archive")
    reader.mailbox.run("create", "Archive")
    reader.mailbox.append(PLAIN % b"new", "Archive")
    for action, more in (("read", {"uid": 1}), ("move", {"uids": [1], "to": "INBOX"}), ("flag", {"uids": [1], "add": ["seen"]})):
        with pytest.raises(ConfigError, match="was recreated"):
            reader(action, folder="Archive", uidvalidity=before, **more)
    assert reader.mailbox.count("Archive") == 1


def test_new_mail_is_reported_once_starting_now(reader: Reader) -> None:
    reader.mailbox.append(PLAIN % b"old")
    first = reader.poll()
    assert (list(first.items), first.more) == ([], False)
    assert list(reader.poll(first.cursor).items) == []
    reader.mailbox.append(PLAIN % b"new")
    polled = reader.poll(first.cursor)
    assert [item.data["subject"] for item in polled.items] == ["new"]
    assert polled.items[0].key == f"{polled.items[0].data['uidvalidity']}-2"
    assert list(reader.poll(polled.cursor).items) == []
    assert [item.data["subject"] for item in reader.poll(begin="start").items] == ["old", "new"]
    assert reader.uids(seen=True) == []


def test_a_message_removed_before_the_poll_does_not_report_an_old_one(reader: Reader) -> None:
    reader.mailbox.append(PLAIN % b"old")
    cursor = reader.poll().cursor
    reader.mailbox.append(PLAIN % b"gone")
    reader("move", uids=[2], to="Archive")
    assert list(reader.poll(cursor).items) == []
    reader.mailbox.append(PLAIN % b"new")
    assert [item.data["subject"] for item in reader.poll(cursor).items] == ["new"]


def test_many_new_messages_are_reported_in_batches(reader: Reader) -> None:
    with reader.mailbox.client() as client:
        for number in range(MAX_POLLED + 5):
            client.append("INBOX", "", "", PLAIN % str(number).encode())
    first = reader.poll(begin="start")
    rest = reader.poll(first.cursor)
    assert (len(first.items), first.more, rest.more) == (MAX_POLLED, True, False)
    subjects = [item.data["subject"] for item in [*first.items, *rest.items]]
    assert subjects == [str(number) for number in range(MAX_POLLED + 5)]


def test_a_recreated_folder_reports_all_its_messages(reader: Reader) -> None:
    reader.mailbox.append(PLAIN % b"old", "Archive")
    cursor = reader.poll(folder="Archive").cursor
    reader.mailbox.run("delete", "Archive")
    reader.mailbox.run("create", "Archive")
    reader.mailbox.append(PLAIN % b"new", "Archive")
    polled = reader.poll(cursor, folder="Archive")
    assert [item.data["subject"] for item in polled.items] == ["new"]
    assert polled.items[0].key != f"{cursor['uidvalidity']}-1"


@pytest.mark.parametrize("tls", ["tls", "starttls"])
def test_sign_in_requires_tls_and_reports_what_is_wrong(reader: Reader, tls: str) -> None:
    port = {"tls": reader.mailbox.settings["imap_port"], "starttls": reader.mailbox.plain_port}[tls]
    right = {**reader.mailbox.settings, "imap_tls": tls, "imap_port": port}
    assert "folders" in EmailConnector(right).check(reader.ctx)
    untrusted = {name: value for name, value in right.items() if name != "ca"}
    cases: list[tuple[dict[str, Any], type[ConnectorError], str]] = [
        ({**right, "password": "wrong"}, AuthError, "allow"),
        (untrusted, ConfigError, "certificate"),
        ({**right, "ca": "none"}, ConfigError, "PEM"),
        ({**right, "imap_tls": "tls", "imap_port": reader.mailbox.plain_port}, ConfigError, "TLS"),
        ({name: value for name, value in right.items() if name != "user"}, ConfigError, "sign-in"),
    ]
    for settings, kind, words in cases:
        with pytest.raises(kind, match=words) as caught:
            EmailConnector(settings).check(reader.ctx)
        assert "sésame" not in str(caught.value.details) + caught.value.message
        assert caught.value.outcome == "not_done"


def test_clear_text_is_used_when_configured_and_allowed(reader: Reader, scripted: Any) -> None:
    plain = {**reader.mailbox.settings, "imap_tls": "off", "imap_port": reader.mailbox.plain_port}
    assert "folders" in EmailConnector(plain).check(reader.ctx)
    forbids = scripted(b"* OK hi\r\n", lambda line: b"* CAPABILITY IMAP4rev1 LOGINDISABLED\r\n" + line.split()[0] + b" OK\r\n")
    with pytest.raises(ConfigError, match="imap_tls"):
        EmailConnector({**plain, "imap_port": forbids.port}).check(reader.ctx)
    assert len(forbids.lines) == 1


def test_missing_folders_messages_and_servers_are_reported(reader: Reader) -> None:
    for action, params, kind in (
        ("search", {"folder": "Nowhere"}, (ConfigError, Rejected)),
        ("search", {"folder": "a\r\nb"}, ConfigError),
        ("read", {"uid": 9}, ConfigError),
        ("send", {"subject": "x", "to": ["a@b"]}, ConfigError),
    ):
        with pytest.raises(kind):
            reader.it.call(action, params, reader.ctx)
    with pytest.raises(ConfigError, match="smtp_host"):
        EmailConnector({}).check(reader.ctx)


@pytest.mark.parametrize("name", ["INBOX", "A&B", "Grüße/☃ 𝄞", "a&-b", "~peter/mail/台北/日本語", ""])
def test_folder_names_survive_encoding(name: str) -> None:
    assert encode_folder(name).isascii()
    assert decode_folder(encode_folder(name)) == name


def test_folder_names_are_encoded_as_in_the_standards_example() -> None:
    assert encode_folder("~peter/mail/台北/日本語") == b"~peter/mail/&U,BTFw-/&ZeVnLIqe-"
    assert decode_folder(b"&!!-") == "&!!-"


GREETING = b"* OK ready\r\n"


@pytest.mark.parametrize(
    ("replies", "kind"),
    [
        (b"* 1 FETCH (UID 1 FLAGS (\r\n", SystemFailure),
        (b"* 1 FETCH {99999999999}\r\n", SystemFailure),
        (b"* 1 FETCH " + b"(" * 500 + b"\r\n", SystemFailure),
        (b"* 1 FETCH (UID 1 RFC822.SIZE many)\r\n", SystemFailure),
        (b"* 1 FETCH (UID 1 FLAGS () RFC822.SIZE 99999999)\r\n", Rejected),
        (b"250 ok\r\n", SystemFailure),
    ],
)
def test_malformed_replies_are_a_failure(ctx: Context, scripted: Any, replies: bytes, kind: type[ConnectorError]) -> None:
    def answer(line: bytes) -> bytes:
        tag = line.split()[0]
        if b"EXAMINE" in line:
            return b"* OK [UIDVALIDITY 1] x\r\n* OK [UIDNEXT 2] x\r\n" + tag + b" OK\r\n"
        return (replies if b"FETCH" in line else b"") + tag + b" OK done\r\n"

    server = scripted(GREETING, answer)
    it = EmailConnector({"imap_host": "127.0.0.1", "imap_port": server.port, "imap_tls": "off", "user": "u", "password": "p"})
    with pytest.raises(kind) as caught:
        it.call("read", {"uid": 1}, ctx)
    assert type(caught.value) is kind
