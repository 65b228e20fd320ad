"""Whoever may decide is told by e-mail, once, with a link and without what it is about."""

import time
from collections.abc import Callable, Iterator
from email import message_from_string
from typing import Any

import httpx
import pytest
from aiosmtpd.controller import Controller

from appliance.connectors.testing import free_port
from appliance.core.database import db
from appliance.governance.approvals.email_dependencies import EmailDependencies
from appliance.governance.approvals.notices import Notices
from appliance.testing.running import Running
from tests.api.resources import Resources, fresh
from tests.governance.asking import Town

WAIT_SECONDS = 60.0
LETTERS = "letters"


class Post:
    """Takes e-mails: whom each was for, and its text."""

    def __init__(self) -> None:
        self.letters: list[tuple[list[str], str, str]] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        message = message_from_string(envelope.content.decode())
        body = message.get_payload(decode=True)
        assert isinstance(body, bytes)
        self.letters.append((list(envelope.rcpt_tos), str(message["Subject"]), body.decode()))
        return "250 taken"


def wait_for(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)  # between two looks, until it holds or the time is up


@pytest.fixture
def town(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Resources]:
    """A tenant of its own with two who approve, one of whom has no e-mail address, and one who may not.

    The live appliance looks every two seconds too, with another integration, and would note that nobody here wants letters.
    """
    tell = Notices._notify_tenant
    monkeypatch.setattr(Notices, "_notify_tenant", lambda self, scope: tell(self, scope) if self._integration == LETTERS else 0)
    name = fresh("noticed")
    here = Town(running.tenant(name))
    here.person("ann", "owner")
    here.person("eve", "operator", approver=True)
    here.person("olga", "operator")
    boss = here.person("boss", "owner")
    db.write(lambda: db.execute("UPDATE person SET login = ? WHERE id = ?", (f"{name}-boss", boss.user_id)))
    db.write(lambda: db.execute("UPDATE approval SET notified_at = 1 WHERE notified_at IS NULL"))  # those of other tests
    with running.api(name) as api:
        yield Resources(running, name, api)


@pytest.fixture
def post(town: Resources) -> Iterator[Post]:
    found, port = Post(), free_port()
    controller = Controller(found, hostname="127.0.0.1", port=port)
    controller.start()
    add_mailbox(town.client, port)
    yield found
    wait_for(lambda: calls(town, "queued") + calls(town, "running") == 0)  # a connection dropped by a stopping server warns
    controller.stop()


def add_mailbox(client: httpx.Client, port: int) -> None:
    settings = {"smtp_host": "127.0.0.1", "smtp_port": port, "smtp_tls": "off", "from": "gos@firma.example"}
    client.post("/api/v1/integrations", json={"slug": LETTERS, "connector": "email", "settings": settings}).raise_for_status()


def calls(town: Resources, status: str) -> int:
    ((count,),) = db.rows("SELECT COUNT(*) FROM integration_call WHERE tenant_id = ? AND status = ?", (town.tenant, status))
    return int(count)


def notices(town: Resources, integration: str = LETTERS, letter_seconds: int = 0) -> Notices:
    services = town.running.services
    return Notices(EmailDependencies(services.executor, services.integrations, services.languages), integration, letter_seconds)


def test_whoever_may_decide_gets_one_letter_with_a_link(town: Resources, post: Post) -> None:
    asked = town.request(title="Pay now <b>", reason="the secret reason")
    assert (notices(town).send_due(), notices(town).send_due()) == (2, 0)
    wait_for(lambda: len(post.letters) >= 2)
    assert sorted(to for to, _, _ in post.letters) == [[f"ann@{town.tenant}.test"], [f"eve@{town.tenant}.test"]]
    _, subject, text = post.letters[0]
    assert subject.startswith("Your approval is needed in ")
    link = f"{town.running.config.tenant_url(town.tenant)}/console/approvals/{asked}"
    for part in (link, 'Requester\'s message: "Pay now <b>"', "Sign in to review and decide"):
        assert part in text, part
    assert "secret reason" not in text
    wait_for(lambda: calls(town, "succeeded") == 2)


def test_a_letter_is_in_the_language_that_its_reader_has_chosen(town: Resources, post: Post) -> None:
    db.write(lambda: db.execute("UPDATE person SET language = 'de' WHERE login = ?", (f"ann@{town.tenant}.test",)))
    town.request(title="Pay now")
    notices(town).send_due()
    wait_for(lambda: calls(town, "succeeded") == 2)
    letters = {to[0].partition("@")[0]: (subject, text) for to, subject, text in post.letters}
    subject, text = letters["ann"]
    assert subject.startswith("Ihre Freigabe wird in ")
    assert subject.endswith(" gebraucht")
    for part in ('Nachricht der anfragenden Person: "Pay now"', "Eine Antwort auf diese E-Mail entscheidet nichts."):
        assert part in text, part
    assert letters["eve"][0].startswith("Your approval is needed in ")


def test_a_letter_that_was_queued_before_a_crash_is_not_sent_twice(town: Resources, post: Post) -> None:
    asked = town.request()
    assert notices(town).send_due() == 2
    forget_letters(asked)
    assert notices(town).send_due() == 2
    wait_for(lambda: calls(town, "succeeded") == 2)
    assert len(post.letters) == 2


def forget_letters(asked: str) -> None:
    """As after a crash between a letter and the note of it."""
    db.write(lambda: db.execute("DELETE FROM approval_told WHERE approval_id = ?", (asked,)))
    db.write(lambda: db.execute("UPDATE approval SET notified_at = NULL WHERE id = ?", (asked,)))


def an_hour_passes(town: Resources) -> None:
    db.write(lambda: db.execute("UPDATE approval_told SET at = at - 3600000 WHERE tenant_id = ?", (town.tenant,)))


def test_what_is_asked_soon_after_a_letter_is_in_the_next_with_its_number(town: Resources, post: Post) -> None:
    sender = notices(town, letter_seconds=600)
    town.request()
    assert sender.send_due() == 2
    for number in range(3):
        town.request(title=f"The {number}. of a flood")
        assert sender.send_due() == 0
    an_hour_passes(town)
    assert (sender.send_due(), sender.send_due()) == (2, 0)
    wait_for(lambda: calls(town, "succeeded") == 4)
    late = [(subject, text) for _, subject, text in post.letters if "requests wait for you" in subject]
    assert [subject.partition(" ")[0] for subject, _ in late] == ["3", "3"]
    assert "3 x a request for your approval" in late[0][1]
    assert f"{town.running.config.tenant_url(town.tenant)}/console/approvals" in late[0][1]
    assert "flood" not in late[0][1]


def test_after_a_crash_a_letter_about_several_is_not_sent_again_and_the_rest_is_told_later(town: Resources, post: Post) -> None:
    sender = notices(town, letter_seconds=600)
    first = town.request()
    assert sender.send_due() == 2
    forget_letters(first)
    town.request()
    assert sender.send_due() == 2, "the same key, now about two: the first is told, the other waits"
    assert sender.send_due() == 0
    an_hour_passes(town)
    assert sender.send_due() == 2
    wait_for(lambda: calls(town, "succeeded") == 4)
    assert len(post.letters) == 4


def test_a_letter_that_cannot_be_queued_is_told_in_the_log(town: Resources) -> None:
    add_mailbox(town.client, 9)
    town.ask("PUT", "/kill-switches", {"kind": "integration", "name": LETTERS, "off": True, "reason": "a flood"})
    asked = town.request()
    assert notices(town).send_due() == 0
    lines = [line for line in town.ask("GET", "/logs?level=error") if asked in line["message"]]
    assert len(lines) == 2
    assert "a flood" in lines[0]["message"]
    assert notices(town).send_due() == 0


def test_without_such_an_integration_nobody_is_told(town: Resources) -> None:
    town.request()
    assert (notices(town, "").send_due(), notices(town).send_due()) == (0, 0)
    assert db.rows("SELECT COUNT(*) FROM approval WHERE tenant_id = ? AND notified_at IS NULL", (town.tenant,)) == [(0,)]
