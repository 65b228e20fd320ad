"""Sending by a real SMTP server, and what its refusals, its silence and its lies lead to."""

import base64
import itertools
from collections.abc import Iterator
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import Any

import pytest
from gos_connector_email import EmailConnector

from appliance.connectors.contract import (
    AddressNotAllowed,
    AuthError,
    ConfigError,
    ConnectorError,
    Context,
    Rejected,
    SystemFailure,
    TransientError,
)
from appliance.connectors.testing import HeldDocuments, open_context, schema_problems, with_documents

# aiosmtpd does not see that its connection is TLS already.
pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS:UserWarning")

LETTER: dict[str, Any] = {"to": ["ann@example.com"], "subject": "Hello", "text": "Hello"}


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context() as ctx:
        yield ctx


def send(settings: dict[str, Any], ctx: Context, **given: Any) -> dict[str, Any]:
    action = EmailConnector.actions[0]
    wanted = {**LETTER, **given}
    assert schema_problems(action.input, wanted) == []
    output = EmailConnector(settings).call("send", wanted, ctx)
    assert schema_problems(action.output, output) == []
    return output


def received(post: Any) -> tuple[str, list[str], EmailMessage]:
    [(sender, recipients, content)] = post.taken
    message = message_from_bytes(content, policy=default)
    assert isinstance(message, EmailMessage)
    assert message.defects == []
    return sender, recipients, message


def test_a_message_arrives_as_it_was_written(post: Any, ctx: Context) -> None:
    text = "Grüße ☃\n.\n..two\nFrom here\n" + "long " * 400 + "\ntrailing \n"
    output = send(
        post.settings,
        ctx,
        to=[{"address": "joerg@bücher.example", "name": 'Jörg, "A."'}, {"address": "bo@example.com", "name": 'O"Hara, Bo'}],
        cc=["cc@example.com"],
        bcc=["secret@example.com", "cc@example.com"],
        reply_to=["answers@example.com"],
        subject="Grüße " + "ünd so weiter " * 20,
        text=text,
        html="<p>Grüße ☃</p>",
        attachments=[
            {"name": "naïve ☃.txt", "content_type": "text/csv", "content": base64.b64encode(b"a\r\n.\r\nb\n").decode()},
            {"name": "a.bin", "content": base64.b64encode(bytes(range(256))).decode()},
        ],
        headers={"In-Reply-To": "<0@example.com>", "X-Note": "ö" * 200},
    )
    sender, recipients, message = received(post)
    everybody = ["joerg@xn--bcher-kva.example", "bo@example.com", "cc@example.com", "secret@example.com"]
    assert (sender, recipients, output["accepted"], output["refused"]) == ("orders@example.com", everybody, everybody, [])
    assert [(each.display_name, each.addr_spec) for each in message["To"].addresses] == [
        ('Jörg, "A."', "joerg@xn--bcher-kva.example"),
        ('O"Hara, Bo', "bo@example.com"),
    ]
    assert (message["From"], message["Cc"], message["Reply-To"], message["Bcc"]) == (
        "Orders <orders@example.com>",
        "cc@example.com",
        "answers@example.com",
        None,
    )
    assert (
        message["Subject"] == ("Grüße " + "ünd so weiter " * 20).strip() or message["Subject"] == "Grüße " + "ünd so weiter " * 20
    )
    assert (message["In-Reply-To"], message["X-Note"], message["Message-ID"]) == (
        "<0@example.com>",
        "ö" * 200,
        output["message_id"],
    )
    assert all(len(line) <= 998 for line in post.taken[0][2].splitlines())
    its_body_is(message, text)


def its_body_is(message: EmailMessage, text: str) -> None:
    plain, html = message.get_body(("plain",)), message.get_body(("html",))
    assert plain is not None
    assert html is not None
    assert plain.get_content().replace("\r\n", "\n") == text
    assert html.get_content().strip() == "<p>Grüße ☃</p>"
    first, second = message.iter_attachments()
    assert (first.get_filename(), first.get_content_type(), first.get_payload(decode=True)) == (
        "naïve ☃.txt",
        "text/csv",
        b"a\r\n.\r\nb\n",
    )
    assert (second.get_filename(), second.get_payload(decode=True)) == ("a.bin", bytes(range(256)))


def test_documents_are_attached(post: Any, ctx: Any) -> None:
    documents = HeldDocuments()
    pdf = documents.create("offer ☃.pdf", [b"%PDF", b"-1\r\n.\r\n"], "application/pdf")
    mail = documents.create("old.eml", [b"Subject: x\r\n\r\n"], "message/rfc822")
    attached = [{"document": pdf}, {"document": mail, "name": "b.eml"}]
    send(post.settings, with_documents(ctx, documents), attachments=attached)
    first, second = received(post)[2].iter_attachments()
    told = (first.get_filename(), first.get_content_type(), first.get_payload(decode=True))
    assert told == ("offer ☃.pdf", "application/pdf", b"%PDF-1\r\n.\r\n")
    assert (second.get_filename(), second.get_content_type()) == ("b.eml", "application/octet-stream")
    huge = documents.create("huge", [bytes(41 << 20)])
    for document, told_of in (("doc_9", "no document"), (huge, "more than")):
        with pytest.raises(ConfigError, match=told_of):
            send(post.settings, with_documents(ctx, documents), attachments=[{"document": document}])
    assert len(post.taken) == 1


def test_the_key_makes_the_message_id(post: Any) -> None:
    ids = []
    for key in ("one", "one", "two"):
        with open_context(key=key) as ctx:
            ids.append(send(post.settings, ctx)["message_id"])
    assert ids[0] == ids[1] != ids[2]
    assert ids[0].endswith("@example.com>")


def test_text_or_html_alone_is_a_message(post: Any, ctx: Context) -> None:
    EmailConnector(post.settings).call("send", {"to": ["a@example.com"], "subject": "", "html": "<b>x</b>"}, ctx)
    EmailConnector(post.settings).call("send", {"bcc": ["a@example.com"], "subject": "y"}, ctx)
    kinds = [message_from_bytes(content).get_content_type() for _, _, content in post.taken]
    assert kinds == ["text/html", "text/plain"]


@pytest.mark.parametrize(
    "given",
    [
        {"subject": "a\r\nBcc: x@example.com"},
        {"subject": "a\nb"},
        {"subject": "a\u2028b"},
        {"subject": "half \ud800"},
        {"text": "half \ud800"},
        {"to": ["a@example.com>\r\nRCPT TO:<b@example.com"]},
        {"to": ["a@example.com> SIZE=1"]},
        {"to": ["Ann <a@example.com>"]},
        {"to": ["a@"]},
        {"to": ["ä@example.com"]},
        {"to": ["a@-"]},
        {"to": ["a@" + "ä" * 70 + ".example"]},
        {"to": [{"address": "a@example.com", "name": "A\nBcc: b"}]},
        {"from": {"address": "a@example.com", "name": "A\r\n"}},
        {"headers": {"Bcc": "b@example.com"}},
        {"headers": {"content-type": "text/html"}},
        {"headers": {"X-A\r\nBcc": "b"}},
        {"headers": {"X-A": "b\r\nBcc: c"}},
        {"attachments": [{"name": "a\r\nX: y", "content": ""}]},
        {"attachments": [{"name": "a", "content": "###"}]},
        {"attachments": [{"name": "a", "content": "", "content_type": "message/rfc822"}]},
        {"to": []},
    ],
)
def test_nothing_given_can_open_a_line_of_its_own(post: Any, ctx: Context, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        EmailConnector(post.settings).call("send", {**LETTER, **given}, ctx)
    assert caught.value.outcome == "not_done"
    assert post.taken == []


def test_a_message_needs_a_sender_and_a_server(post: Any, ctx: Context) -> None:
    without = {name: value for name, value in post.settings.items() if name != "from"}
    with pytest.raises(ConfigError, match="`from`"):
        send(without, ctx)
    assert send(without, ctx, **{"from": "me@example.com"})["accepted"] == ["ann@example.com"]
    with pytest.raises(ConfigError, match="smtp_host"):
        send({"from": "a@example.com"}, ctx)


def test_who_is_refused_is_told_while_the_others_get_it(post: Any, ctx: Context) -> None:
    post.refusals = {"no@example.com": "550 5.1.1 nobody", "later@example.com": "450 busy"}
    output = send(post.settings, ctx, to=["no@example.com", "ann@example.com", "later@example.com"])
    assert output["accepted"] == ["ann@example.com"]
    assert output["refused"] == [
        {"address": "no@example.com", "code": 550, "message": "5.1.1 nobody"},
        {"address": "later@example.com", "code": 450, "message": "busy"},
    ]
    assert received(post)[1] == ["ann@example.com"]
    with pytest.raises(Rejected, match="nobody") as caught:
        send(post.settings, ctx, to=["no@example.com"])
    assert caught.value.details["refused"][0]["code"] == 550
    with pytest.raises(TransientError, match="now"):
        send(post.settings, ctx, to=["no@example.com", "later@example.com"])
    assert len(post.taken) == 1


@pytest.mark.parametrize(("verdict", "kind"), [("554 spam", Rejected), ("451 later", TransientError)])
def test_a_refused_message_is_not_sent(post: Any, ctx: Context, verdict: str, kind: type[ConnectorError]) -> None:
    post.verdict = verdict
    with pytest.raises(kind, match=verdict[4:]) as caught:
        send(post.settings, ctx)
    assert (type(caught.value), caught.value.outcome, caught.value.details) == (kind, "not_done", {"code": int(verdict[:3])})


@pytest.mark.parametrize("tls", ["tls", "starttls", "off"])
def test_each_encryption_works_and_its_mistakes_are_named(posting_with: Any, ctx: Context, tls: str) -> None:
    with posting_with(tls) as post:
        assert "takes mail" in EmailConnector(post.settings).check(ctx)
        send(post.settings, ctx)
        assert len(post.taken) == 1
        mistakes: dict[str, list[tuple[dict[str, Any], type[ConnectorError], str]]] = {
            "tls": [({"password": "wrong"}, AuthError, "password"), ({"ca": "x"}, ConfigError, "PEM")],
            "starttls": [({"password": "wrong"}, AuthError, "password"), ({"smtp_tls": "tls"}, ConfigError, "TLS"),
                         ({"smtp_tls": "off"}, ConfigError, "smtp_tls")],
            "off": [({"smtp_tls": "starttls"}, ConfigError, "STARTTLS"), ({"user": "u"}, ConfigError, "sign-in")],
        }  # fmt: skip
        for changed, kind, words in mistakes[tls]:
            with pytest.raises(kind, match=words) as caught:
                EmailConnector({**post.settings, **changed}).check(ctx)
            assert "sésame" not in caught.value.message + str(caught.value.details)
        if tls != "off":
            del post.settings["ca"]
            with pytest.raises(ConfigError, match="certificate"):
                EmailConnector(post.settings).check(ctx)
            assert len(post.taken) == 1


def test_a_server_that_wants_a_sign_in_says_so(posting_with: Any, ctx: Context) -> None:
    with posting_with("tls") as post:
        del post.settings["user"]
        with pytest.raises(AuthError, match="sign-in"):
            send(post.settings, ctx)


def test_a_message_beyond_the_servers_size_is_not_begun(posting_with: Any, ctx: Context) -> None:
    with posting_with("tls", data_size_limit=2_000) as post:
        with pytest.raises(Rejected, match="2000"):
            send(post.settings, ctx, text="x" * 3_000)
        assert post.taken == []


def test_no_server_no_mail(ctx: Context) -> None:
    base = {"smtp_tls": "off", "from": "a@example.com"}
    with pytest.raises(TransientError) as caught:
        send({**base, "smtp_host": "127.0.0.1", "smtp_port": 1}, ctx)
    assert caught.value.outcome == "not_done"
    with pytest.raises(ConnectorError) as unknown:
        send({**base, "smtp_host": "no-such-host.invalid"}, ctx)
    assert unknown.value.outcome == "not_done"
    with pytest.raises(AddressNotAllowed), open_context(allow=()) as closed:
        send({**base, "smtp_host": "127.0.0.1"}, closed)


# -- a server that lies, or goes silent


def lying(**answers: bytes | None) -> Any:
    """Answers by the command's first word; `dot` is the end of the message, `silent` and `hang` are what they say."""

    def answer(line: bytes) -> bytes | None:
        word = line.split(maxsplit=1)[0].decode().lower() if line.strip() else ""
        word = "dot" if line == b".\r\n" else word.split(":")[0]
        usual = {"ehlo": b"250-here\r\n250 AUTH LOGIN PLAIN\r\n", "mail": b"250 ok\r\n", "rcpt": b"250 ok\r\n",
                 "data": b"354 go\r\n", "dot": b"250 taken\r\n", "auth": b"235 in\r\n"}  # fmt: skip
        return {**usual, **answers}.get(word, b"")

    return answer


def at(server: Any) -> dict[str, Any]:
    return {"smtp_host": "127.0.0.1", "smtp_port": server.port, "smtp_tls": "off", "from": "a@example.com"}


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ({"ehlo": None}, "not_done"),
        ({"rcpt": None}, "not_done"),
        ({"data": None}, "not_done"),
        ({"data": b""}, "not_done"),
        ({"dot": None}, "unknown"),
        ({"dot": b""}, "unknown"),
    ],
)
def test_a_lost_connection_tells_whether_the_mail_may_be_out(scripted: Any, answers: Any, outcome: str) -> None:
    for seconds in (0.5, 5, 30):
        server = scripted(b"220 hi\r\n", lying(**answers))
        with pytest.raises(TransientError) as caught, open_context(seconds=seconds) as ctx:
            send(at(server), ctx)
        if "dot" not in answers or b".\r\n" in server.lines:  # else a busy machine was too slow to come so far
            break
    assert caught.value.outcome == outcome


@pytest.mark.parametrize(
    ("greeting", "answers", "kind"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", {}, SystemFailure),
        (b"x" * 20_000, {}, SystemFailure),
        (b"220-on\r\n" * 300, {}, SystemFailure),
        (b"421 too busy\r\n", {}, TransientError),
        (b"554 go away\r\n", {}, Rejected),
        (b"220 hi\r\n", {"ehlo": b"250-\r\n250 \r\n", "data": b"250 what\r\n"}, SystemFailure),
        (b"220 hi\r\n", {"rcpt": b"354 what\r\n"}, SystemFailure),
        (b"220 hi\r\n", {"rcpt": b"421 closing\r\n"}, TransientError),
        (b"220 hi\r\n", {"mail": b"530 sign in\r\n"}, AuthError),
        (b"220 hi\r\n", {"mail": b"550 not from here\r\n"}, Rejected),
    ],
)
def test_what_a_server_says_has_its_class(
    scripted: Any, ctx: Context, greeting: bytes, answers: Any, kind: type[ConnectorError]
) -> None:
    server = scripted(greeting, lying(**answers))
    with pytest.raises(kind) as caught:
        send(at(server), ctx)
    assert (type(caught.value), caught.value.outcome) == (kind, "not_done")
    assert not any(line == b".\r\n" for line in server.lines)


def test_a_nonsense_verdict_leaves_it_unknown(scripted: Any, ctx: Context) -> None:
    with pytest.raises(SystemFailure) as caught:
        send(at(scripted(b"220 hi\r\n", lying(dot=b"hello\r\n"))), ctx)
    assert caught.value.outcome == "unknown"


def test_nothing_said_before_tls_is_believed(scripted: Any, ctx: Context) -> None:
    answers = {"ehlo": b"250-here\r\n250 STARTTLS\r\n", "starttls": b"220 go\r\n250 injected\r\n"}
    server = scripted(b"220 hi\r\n", lying(**answers))
    with pytest.raises(SystemFailure, match="clear text"):
        send({**at(server), "smtp_tls": "starttls", "user": "u", "password": "p"}, ctx)
    mailbox = {"imap_host": "127.0.0.1", "imap_tls": "starttls", "user": "u", "password": "p"}
    preauth = scripted(b"* PREAUTH welcome\r\n", lambda _: b"")
    with pytest.raises(SystemFailure, match="sign in"):
        EmailConnector({**mailbox, "imap_port": preauth.port}).check(ctx)
    stripped = scripted(b"* OK hi\r\n", lambda line: b"* CAPABILITY IMAP4rev1\r\n" + line.split()[0] + b" OK\r\n")
    with pytest.raises(ConfigError, match="STARTTLS"):
        EmailConnector({**mailbox, "imap_port": stripped.port}).check(ctx)
    assert not any(b"LOGIN" in line or b"AUTH" in line for line in [*server.lines, *preauth.lines, *stripped.lines])


def test_it_signs_in_by_login_where_there_is_no_plain(scripted: Any, ctx: Context) -> None:
    said = itertools.chain([b"334 VXNlcg==\r\n", b"334 UGFzcw==\r\n", b"235 in\r\n"])

    def answer(line: bytes) -> bytes:
        if line.startswith(b"EHLO"):
            return b"250-here\r\n250 AUTH LOGIN\r\n"
        return next(said)

    server = scripted(b"220 hi\r\n", answer)
    assert "takes mail" in EmailConnector({**at(server), "user": "ann", "password": "pässword"}).check(ctx)
    assert [base64.b64decode(line) for line in server.lines[2:4]] == [b"ann", "pässword".encode()]
