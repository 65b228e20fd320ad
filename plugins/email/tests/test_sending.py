"""Sending through a real SMTP server, and handling of refusals, silent servers and malformed replies."""

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

# aiosmtpd does not detect that its connection already uses TLS.
pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS:UserWarning")

EMAIL: dict[str, Any] = {"to": ["ann@example.com"], "subject": "Hello", "text": "Hello"}


@pytest.fixture
def ctx() -> Iterator[Context]:
    with open_context() as ctx:
        yield ctx


def send(settings: dict[str, Any], ctx: Context, **fields: Any) -> dict[str, Any]:
    action = EmailConnector.actions[0]
    params = {**EMAIL, **fields}
    assert schema_problems(action.input, params) == []
    output = EmailConnector(settings).call("send", params, ctx)
    assert schema_problems(action.output, output) == []
    return output


def received(smtp: Any) -> tuple[str, list[str], EmailMessage]:
    [(sender, recipients, content)] = smtp.messages
    message = message_from_bytes(content, policy=default)
    assert isinstance(message, EmailMessage)
    assert message.defects == []
    return sender, recipients, message


def test_a_message_arrives_as_it_was_written(smtp: Any, ctx: Context) -> None:
    text = "Grüße ☃\n.\n..two\nFrom here\n" + "long " * 400 + "\ntrailing \n"
    output = send(
        smtp.settings,
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
    sender, recipients, message = received(smtp)
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
    assert all(len(line) <= 998 for line in smtp.messages[0][2].splitlines())
    assert_body(message, text)


def assert_body(message: EmailMessage, text: str) -> None:
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


def test_documents_are_attached(smtp: Any, ctx: Any) -> None:
    documents = HeldDocuments()
    pdf = documents.create("offer ☃.pdf", [b"%PDF", b"-1\r\n.\r\n"], "application/pdf")
    mail = documents.create("old.eml", [b"Subject: x\r\n\r\n"], "message/rfc822")
    attached = [{"document": pdf}, {"document": mail, "name": "b.eml"}]
    send(smtp.settings, with_documents(ctx, documents), attachments=attached)
    first, second = received(smtp)[2].iter_attachments()
    attachment = (first.get_filename(), first.get_content_type(), first.get_payload(decode=True))
    assert attachment == ("offer ☃.pdf", "application/pdf", b"%PDF-1\r\n.\r\n")
    assert (second.get_filename(), second.get_content_type()) == ("b.eml", "application/octet-stream")
    huge = documents.create("huge", [bytes(41 << 20)])
    for document, reason in (("doc_9", "no document"), (huge, "more than")):
        with pytest.raises(ConfigError, match=reason):
            send(smtp.settings, with_documents(ctx, documents), attachments=[{"document": document}])
    assert len(smtp.messages) == 1


def test_the_message_id_depends_on_the_idempotency_key(smtp: Any) -> None:
    ids = []
    for key in ("one", "one", "two"):
        with open_context(key=key) as ctx:
            ids.append(send(smtp.settings, ctx)["message_id"])
    assert ids[0] == ids[1] != ids[2]
    assert ids[0].endswith("@example.com>")


def test_text_or_html_alone_is_sent(smtp: Any, ctx: Context) -> None:
    EmailConnector(smtp.settings).call("send", {"to": ["a@example.com"], "subject": "", "html": "<b>x</b>"}, ctx)
    EmailConnector(smtp.settings).call("send", {"bcc": ["a@example.com"], "subject": "y"}, ctx)
    kinds = [message_from_bytes(content).get_content_type() for _, _, content in smtp.messages]
    assert kinds == ["text/html", "text/plain"]


@pytest.mark.parametrize(
    "fields",
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
def test_line_breaks_cannot_inject_headers_or_commands(smtp: Any, ctx: Context, fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        EmailConnector(smtp.settings).call("send", {**EMAIL, **fields}, ctx)
    assert caught.value.outcome == "not_done"
    assert smtp.messages == []


def test_a_message_needs_a_sender_and_a_server(smtp: Any, ctx: Context) -> None:
    without = {name: value for name, value in smtp.settings.items() if name != "from"}
    with pytest.raises(ConfigError, match="`from`"):
        send(without, ctx)
    assert send(without, ctx, **{"from": "me@example.com"})["accepted"] == ["ann@example.com"]
    with pytest.raises(ConfigError, match="smtp_host"):
        send({"from": "a@example.com"}, ctx)


def test_refused_recipients_are_reported_and_the_others_receive_the_message(smtp: Any, ctx: Context) -> None:
    smtp.refusals = {"no@example.com": "550 5.1.1 nobody", "later@example.com": "450 busy"}
    output = send(smtp.settings, ctx, to=["no@example.com", "ann@example.com", "later@example.com"])
    assert output["accepted"] == ["ann@example.com"]
    assert output["refused"] == [
        {"address": "no@example.com", "code": 550, "message": "5.1.1 nobody"},
        {"address": "later@example.com", "code": 450, "message": "busy"},
    ]
    assert received(smtp)[1] == ["ann@example.com"]
    with pytest.raises(Rejected, match="nobody") as caught:
        send(smtp.settings, ctx, to=["no@example.com"])
    assert caught.value.details["refused"][0]["code"] == 550
    with pytest.raises(TransientError, match="now"):
        send(smtp.settings, ctx, to=["no@example.com", "later@example.com"])
    assert len(smtp.messages) == 1


@pytest.mark.parametrize(("reply", "kind"), [("554 spam", Rejected), ("451 later", TransientError)])
def test_a_refused_message_is_not_sent(smtp: Any, ctx: Context, reply: str, kind: type[ConnectorError]) -> None:
    smtp.reply = reply
    with pytest.raises(kind, match=reply[4:]) as caught:
        send(smtp.settings, ctx)
    assert (type(caught.value), caught.value.outcome, caught.value.details) == (kind, "not_done", {"code": int(reply[:3])})


@pytest.mark.parametrize("tls", ["tls", "starttls", "off"])
def test_each_encryption_works_and_reports_wrong_settings(smtp_server: Any, ctx: Context, tls: str) -> None:
    with smtp_server(tls) as smtp:
        assert "takes mail" in EmailConnector(smtp.settings).check(ctx)
        send(smtp.settings, ctx)
        assert len(smtp.messages) == 1
        mistakes: dict[str, list[tuple[dict[str, Any], type[ConnectorError], str]]] = {
            "tls": [({"password": "wrong"}, AuthError, "password"), ({"ca": "x"}, ConfigError, "PEM")],
            "starttls": [({"password": "wrong"}, AuthError, "password"), ({"smtp_tls": "tls"}, ConfigError, "TLS"),
                         ({"smtp_tls": "off"}, ConfigError, "smtp_tls")],
            "off": [({"smtp_tls": "starttls"}, ConfigError, "STARTTLS"), ({"user": "u"}, ConfigError, "sign-in")],
        }  # fmt: skip
        for changed, kind, words in mistakes[tls]:
            with pytest.raises(kind, match=words) as caught:
                EmailConnector({**smtp.settings, **changed}).check(ctx)
            assert "sésame" not in caught.value.message + str(caught.value.details)
        if tls != "off":
            del smtp.settings["ca"]
            with pytest.raises(ConfigError, match="certificate"):
                EmailConnector(smtp.settings).check(ctx)
            assert len(smtp.messages) == 1


def test_a_server_that_requires_a_sign_in_is_an_auth_error(smtp_server: Any, ctx: Context) -> None:
    with smtp_server("tls") as smtp:
        del smtp.settings["user"]
        with pytest.raises(AuthError, match="sign-in"):
            send(smtp.settings, ctx)


def test_a_message_beyond_the_servers_size_limit_is_not_sent(smtp_server: Any, ctx: Context) -> None:
    with smtp_server("tls", data_size_limit=2_000) as smtp:
        with pytest.raises(Rejected, match="2000"):
            send(smtp.settings, ctx, text="x" * 3_000)
        assert smtp.messages == []


def test_an_unreachable_server_is_an_error_and_nothing_is_done(ctx: Context) -> None:
    base = {"smtp_tls": "off", "from": "a@example.com"}
    with pytest.raises(TransientError) as caught:
        send({**base, "smtp_host": "127.0.0.1", "smtp_port": 1}, ctx)
    assert caught.value.outcome == "not_done"
    with pytest.raises(ConnectorError) as unknown:
        send({**base, "smtp_host": "no-such-host.invalid"}, ctx)
    assert unknown.value.outcome == "not_done"
    with pytest.raises(AddressNotAllowed), open_context(allow=()) as closed:
        send({**base, "smtp_host": "127.0.0.1"}, closed)


# -- a server that sends wrong replies or none


def scripted_answer(**answers: bytes | None) -> Any:
    """Replies by the first word of a command, `dot` for the end of the message; None hangs up, empty bytes send nothing."""

    def answer(line: bytes) -> bytes | None:
        word = line.split(maxsplit=1)[0].decode().lower() if line.strip() else ""
        word = "dot" if line == b".\r\n" else word.split(":")[0]
        defaults = {"ehlo": b"250-here\r\n250 AUTH LOGIN PLAIN\r\n", "mail": b"250 ok\r\n", "rcpt": b"250 ok\r\n",
                 "data": b"354 go\r\n", "dot": b"250 taken\r\n", "auth": b"235 in\r\n"}  # fmt: skip
        return {**defaults, **answers}.get(word, b"")

    return answer


def settings_for(server: Any) -> dict[str, Any]:
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
def test_the_outcome_after_a_lost_connection(scripted: Any, answers: Any, outcome: str) -> None:
    for seconds in (0.5, 5, 30):
        server = scripted(b"220 hi\r\n", scripted_answer(**answers))
        with pytest.raises(TransientError) as caught, open_context(seconds=seconds) as ctx:
            send(settings_for(server), ctx)
        if "dot" not in answers or b".\r\n" in server.lines:  # otherwise a busy machine did not get this far in time
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
def test_each_server_reply_maps_to_an_error_class(
    scripted: Any, ctx: Context, greeting: bytes, answers: Any, kind: type[ConnectorError]
) -> None:
    server = scripted(greeting, scripted_answer(**answers))
    with pytest.raises(kind) as caught:
        send(settings_for(server), ctx)
    assert (type(caught.value), caught.value.outcome) == (kind, "not_done")
    assert not any(line == b".\r\n" for line in server.lines)


def test_a_malformed_final_reply_leaves_the_outcome_unknown(scripted: Any, ctx: Context) -> None:
    with pytest.raises(SystemFailure) as caught:
        send(settings_for(scripted(b"220 hi\r\n", scripted_answer(dot=b"hello\r\n"))), ctx)
    assert caught.value.outcome == "unknown"


def test_nothing_received_before_tls_is_trusted(scripted: Any, ctx: Context) -> None:
    answers = {"ehlo": b"250-here\r\n250 STARTTLS\r\n", "starttls": b"220 go\r\n250 injected\r\n"}
    server = scripted(b"220 hi\r\n", scripted_answer(**answers))
    with pytest.raises(SystemFailure, match="clear text"):
        send({**settings_for(server), "smtp_tls": "starttls", "user": "u", "password": "p"}, ctx)
    mailbox = {"imap_host": "127.0.0.1", "imap_tls": "starttls", "user": "u", "password": "p"}
    preauth = scripted(b"* PREAUTH welcome\r\n", lambda _: b"")
    with pytest.raises(SystemFailure, match="sign in"):
        EmailConnector({**mailbox, "imap_port": preauth.port}).check(ctx)
    stripped = scripted(b"* OK hi\r\n", lambda line: b"* CAPABILITY IMAP4rev1\r\n" + line.split()[0] + b" OK\r\n")
    with pytest.raises(ConfigError, match="STARTTLS"):
        EmailConnector({**mailbox, "imap_port": stripped.port}).check(ctx)
    assert not any(b"LOGIN" in line or b"AUTH" in line for line in [*server.lines, *preauth.lines, *stripped.lines])


def test_sign_in_uses_login_when_plain_is_not_offered(scripted: Any, ctx: Context) -> None:
    responses = itertools.chain([b"334 VXNlcg==\r\n", b"334 UGFzcw==\r\n", b"235 in\r\n"])

    def answer(line: bytes) -> bytes:
        if line.startswith(b"EHLO"):
            return b"250-here\r\n250 AUTH LOGIN\r\n"
        return next(responses)

    server = scripted(b"220 hi\r\n", answer)
    assert "takes mail" in EmailConnector({**settings_for(server), "user": "ann", "password": "pässword"}).check(ctx)
    assert [base64.b64decode(line) for line in server.lines[2:4]] == [b"ann", "pässword".encode()]
