"""Reading a mailbox of a real Dovecot: whatever was sent comes out readable, and nothing changes that was not asked for."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from gos_connector_email import EmailConnector
from gos_connector_email.mailbox import MOST_POLLED
from gos_connector_email.replies import decode_folder, encode_folder

from appliance.connectors.contract import AuthError, ConfigError, ConnectorError, Context, Polled, Rejected, SystemFailure
from appliance.connectors.testing import ConnectorContract, HeldDocuments, open_context, schema_problems, with_documents

# aiosmtpd does not see that its connection is TLS already.
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
    def settings(self, mailbox: Any, posting_with: Any) -> Iterator[dict[str, Any]]:
        mailbox.put(PLAIN % b"First")
        with posting_with("tls") as post:
            yield {**post.settings, **mailbox.settings}

    @pytest.fixture
    def broken_settings(self, mailbox: Any) -> dict[str, Any]:
        return {**mailbox.settings, "imap_port": 1}


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context() as ctx:
        yield ctx


class Reader:
    """The connector on one mailbox; what it answers is valid."""

    def __init__(self, mailbox: Any, ctx: Context) -> None:
        self.mailbox, self.ctx = mailbox, ctx
        self.it = EmailConnector(mailbox.settings)

    def __call__(self, name: str, **given: Any) -> dict[str, Any]:
        action = next(action for action in self.it.actions if action.name == name)
        assert schema_problems(action.input, given) == []
        output = self.it.call(name, given, self.ctx)
        assert schema_problems(action.output, output) == []
        return output

    def uids(self, **criteria: Any) -> list[int]:
        return [each["uid"] for each in self("search", criteria=criteria)["messages"]]

    def poll(self, cursor: Any = None, **query: Any) -> Polled:
        found = self.it.poll("new_mail", query, cursor, self.ctx)
        for item in found.items:
            assert schema_problems(self.it.triggers[0].item, dict(item.data)) == []
        return found


@pytest.fixture
def reader(mailbox: Any, ctx: Context) -> Reader:
    return Reader(mailbox, ctx)


def test_a_message_comes_with_its_parts_decoded(reader: Reader) -> None:
    reader.mailbox.put(MIXED)
    [found] = reader("search")["messages"]
    assert found["subject"] == "Grüße ☃"
    assert found["from"] == [{"name": "Jörg, A.", "address": "joerg@example.com"}, {"name": "", "address": "bo@example.com"}]
    read = reader("read", uid=found["uid"], uidvalidity=found["uidvalidity"])
    assert (read["text"], read["html"], read["truncated"]) == ("Grüße", "<p>Grüße</p>", False)
    assert (read["message_id"], read["references"]) == ("<1@example.com>", ["<a@x>", "<0@example.com>"])
    told = [(each["name"], each["content_type"], each["size"], base64.b64decode(each["content"])) for each in read["attachments"]]
    assert told == [("naïve.txt", "text/plain", 5, b"hello"), ("a.pdf", "application/pdf", 4, b"\0\1\2\3")]
    assert reader.uids(seen=True) == []


def test_attachments_are_given_as_far_as_they_fit(reader: Reader) -> None:
    reader.mailbox.put(MIXED)
    [uid] = reader.uids()
    assert [each["content"] for each in reader("read", uid=uid, attached_bytes=4)["attachments"]] == [None, "AAECAw=="]
    assert [each["content"] for each in reader("read", uid=uid, attached_bytes=0)["attachments"]] == [None, None]


def test_attachments_become_documents(mailbox: Any, ctx: Any) -> None:
    documents = HeldDocuments()
    reader = Reader(mailbox, with_documents(ctx, documents))
    mailbox.put(MIXED)
    [uid] = reader.uids()
    first, second = reader("read", uid=uid, as_documents=True)["attachments"]
    assert (first["content"], second["content"]) == (None, None)
    assert documents.documents[first["document"]] == ("naïve.txt", "text/plain", b"hello")
    assert documents.documents[second["document"]] == ("a.pdf", "application/pdf", b"\0\1\2\3")
    kept = [each.get("document") for each in reader("read", uid=uid, as_documents=True, attached_bytes=4)["attachments"]]
    assert (kept[0], len(documents.documents)) == (None, 3)


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
def test_what_was_written_badly_is_read_all_the_same(reader: Reader, content: bytes) -> None:
    reader.mailbox.put(content)
    [found] = reader("search")["messages"]
    read = reader("read", uid=found["uid"])
    assert read["date"] is None
    if "no-such" in str(content):
        assert (read["subject"], read["text"]) == ("☃", "☃")


def test_values_of_a_search_stay_values(reader: Reader) -> None:
    reader.mailbox.put(PLAIN % b'say "hi" \\ {3}')
    reader.mailbox.put(PLAIN % b"ALL")
    reader.mailbox.put(MIXED)
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


def test_flags_are_set_and_taken_away(reader: Reader) -> None:
    for subject in (b"a", b"b"):
        reader.mailbox.put(PLAIN % subject)
    for _ in range(2):
        assert reader("flag", uids=[1, 7], add=["seen", "flagged", "$Done"]) == {"changed": [1], "missing": [7]}
    assert (reader.uids(seen=True), reader.uids(keyword="$Done")) == ([1], [1])
    assert reader("search", criteria={"flagged": True})["messages"][0]["flags"] == ["$Done", "flagged", "seen"]
    reader("flag", uids=[1], remove=["seen"])
    assert reader.uids(seen=False) == [2, 1]
    for wrong in ({}, {"add": ["a) b"]}, {"add": ["\\Seen"]}):
        with pytest.raises(ConfigError):
            reader.it.call("flag", {"uids": [1], **wrong}, reader.ctx)


def test_a_message_is_moved_once_however_often_it_is_asked(reader: Reader) -> None:
    name = 'Grüße & "Co"/☃'
    reader.mailbox.run("create", '"' + encode_folder(name).decode().replace('"', '\\"') + '"')
    for subject in (b"a", b"b", b"c"):
        reader.mailbox.put(PLAIN % subject)
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


def test_a_folder_made_anew_is_not_taken_for_the_old_one(reader: Reader) -> None:
    reader.mailbox.put(PLAIN % b"old", "Archive")
    before = reader("search", folder="Archive")["uidvalidity"]
    reader.mailbox.run("delete", "Archive")
    reader.mailbox.run("create", "Archive")
    reader.mailbox.put(PLAIN % b"new", "Archive")
    for action, more in (("read", {"uid": 1}), ("move", {"uids": [1], "to": "INBOX"}), ("flag", {"uids": [1], "add": ["seen"]})):
        with pytest.raises(ConfigError, match="made anew"):
            reader(action, folder="Archive", uidvalidity=before, **more)
    assert reader.mailbox.count("Archive") == 1


def test_new_mail_is_told_once_and_from_now_on(reader: Reader) -> None:
    reader.mailbox.put(PLAIN % b"old")
    first = reader.poll()
    assert (list(first.items), first.more) == ([], False)
    assert list(reader.poll(first.cursor).items) == []
    reader.mailbox.put(PLAIN % b"new")
    found = reader.poll(first.cursor)
    assert [item.data["subject"] for item in found.items] == ["new"]
    assert found.items[0].key == f"{found.items[0].data['uidvalidity']}-2"
    assert list(reader.poll(found.cursor).items) == []
    assert [item.data["subject"] for item in reader.poll(begin="start").items] == ["old", "new"]
    assert reader.uids(seen=True) == []


def test_a_message_that_vanished_before_the_poll_does_not_bring_an_old_one_back(reader: Reader) -> None:
    reader.mailbox.put(PLAIN % b"old")
    cursor = reader.poll().cursor
    reader.mailbox.put(PLAIN % b"gone")
    reader("move", uids=[2], to="Archive")
    assert list(reader.poll(cursor).items) == []
    reader.mailbox.put(PLAIN % b"new")
    assert [item.data["subject"] for item in reader.poll(cursor).items] == ["new"]


def test_much_new_mail_comes_in_parts(reader: Reader) -> None:
    with reader.mailbox.client() as client:
        for number in range(MOST_POLLED + 5):
            client.append("INBOX", "", "", PLAIN % str(number).encode())
    first = reader.poll(begin="start")
    rest = reader.poll(first.cursor)
    assert (len(first.items), first.more, rest.more) == (MOST_POLLED, True, False)
    told = [item.data["subject"] for item in [*first.items, *rest.items]]
    assert told == [str(number) for number in range(MOST_POLLED + 5)]


def test_new_mail_of_a_folder_made_anew_is_all_that_is_in_it(reader: Reader) -> None:
    reader.mailbox.put(PLAIN % b"old", "Archive")
    cursor = reader.poll(folder="Archive").cursor
    reader.mailbox.run("delete", "Archive")
    reader.mailbox.run("create", "Archive")
    reader.mailbox.put(PLAIN % b"new", "Archive")
    found = reader.poll(cursor, folder="Archive")
    assert [item.data["subject"] for item in found.items] == ["new"]
    assert found.items[0].key != f"{cursor['uidvalidity']}-1"


@pytest.mark.parametrize("tls", ["tls", "starttls"])
def test_it_signs_in_over_tls_only_and_says_what_is_wrong(reader: Reader, tls: str) -> None:
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


def test_clear_text_is_spoken_where_it_is_wished_and_allowed(reader: Reader, scripted: Any) -> None:
    plain = {**reader.mailbox.settings, "imap_tls": "off", "imap_port": reader.mailbox.plain_port}
    assert "folders" in EmailConnector(plain).check(reader.ctx)
    forbids = scripted(b"* OK hi\r\n", lambda line: b"* CAPABILITY IMAP4rev1 LOGINDISABLED\r\n" + line.split()[0] + b" OK\r\n")
    with pytest.raises(ConfigError, match="imap_tls"):
        EmailConnector({**plain, "imap_port": forbids.port}).check(reader.ctx)
    assert len(forbids.lines) == 1


def test_what_is_not_there_is_said(reader: Reader) -> None:
    for action, given, kind in (
        ("search", {"folder": "Nowhere"}, (ConfigError, Rejected)),
        ("search", {"folder": "a\r\nb"}, ConfigError),
        ("read", {"uid": 9}, ConfigError),
        ("send", {"subject": "x", "to": ["a@b"]}, ConfigError),
    ):
        with pytest.raises(kind):
            reader.it.call(action, given, reader.ctx)
    with pytest.raises(ConfigError, match="smtp_host"):
        EmailConnector({}).check(reader.ctx)


@pytest.mark.parametrize("name", ["INBOX", "A&B", "Grüße/☃ 𝄞", "a&-b", "~peter/mail/台北/日本語", ""])
def test_a_folders_name_survives_its_encoding(name: str) -> None:
    assert encode_folder(name).isascii()
    assert decode_folder(encode_folder(name)) == name


def test_a_folders_name_is_encoded_as_the_standard_shows() -> None:
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
def test_a_server_that_talks_nonsense_is_a_failure(ctx: Context, scripted: Any, replies: bytes, kind: type[ConnectorError]) -> None:
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
