"""Every decider gets one e-mail, with a link and without the content of the request."""

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
from tests.governance.asking import TenantFixture
from tests.processes.world import wait_until
from tests.tenants.fencing import fenced

WAIT_SECONDS = 60.0
INTEGRATION = "letters"


class Mailbox:
    """A mail server that records the recipients, subject and text of each e-mail."""

    def __init__(self) -> None:
        self.emails: list[tuple[list[str], str, str]] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        message = message_from_string(envelope.content.decode())
        body = message.get_payload(decode=True)
        assert isinstance(body, bytes)
        self.emails.append((list(envelope.rcpt_tos), str(message["Subject"]), body.decode()))
        return "250 taken"


def wait_for(condition: Callable[[], bool]) -> None:
    wait_until(condition, WAIT_SECONDS)


@pytest.fixture
def resources(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Resources]:
    """A tenant of its own with two who approve, one of whom has no e-mail address, and one who may not.

    The live appliance looks every two seconds too, with another integration, and would record that there is no recipient here.
    """
    notify_tenant = Notices._notify_tenant
    monkeypatch.setattr(
        Notices, "_notify_tenant", lambda self, scope: notify_tenant(self, scope) if self._integration == INTEGRATION else 0
    )
    name = fresh("noticed")
    people = TenantFixture(running.tenant(name))
    people.person("ann", "owner")
    people.person("eve", "operator", approver=True)
    people.person("olga", "operator")
    boss = people.person("boss", "owner")
    db.write(lambda: db.execute("UPDATE person SET login = ? WHERE id = ?", (f"{name}-boss", boss.user_id)))
    db.write(lambda: db.execute("UPDATE approval SET notified_at = 1 WHERE notified_at IS NULL"))  # those of other tests
    with running.api(name) as api:
        yield Resources(running, name, api)


@pytest.fixture
def mailbox(resources: Resources) -> Iterator[Mailbox]:
    inbox, port = Mailbox(), free_port()
    controller = Controller(inbox, hostname="127.0.0.1", port=port)
    controller.start()
    add_mailbox(resources.client, port)
    yield inbox
    wait_for(lambda: calls(resources, "queued") + calls(resources, "running") == 0)  # a dropped connection warns
    controller.stop()


def add_mailbox(client: httpx.Client, port: int) -> None:
    settings = {"smtp_host": "127.0.0.1", "smtp_port": port, "smtp_tls": "off", "from": "gos@firma.example"}
    client.post("/api/v1/integrations", json={"slug": INTEGRATION, "connector": "email", "settings": settings}).raise_for_status()


def calls(resources: Resources, status: str) -> int:
    ((count,),) = db.rows("SELECT COUNT(*) FROM integration_call WHERE tenant_id = ? AND status = ?", (resources.tenant, status))
    return int(count)


def notices(resources: Resources, integration: str = INTEGRATION, email_seconds: int = 0) -> Notices:
    services = resources.running.services
    email = EmailDependencies(services.governance.executor, services.integrations, services.languages)
    return Notices(email, integration, email_seconds)


def test_every_decider_gets_one_email_with_a_link(resources: Resources, mailbox: Mailbox) -> None:
    approval_id = resources.request(title="Pay now <b>", reason="the secret reason")
    assert (notices(resources).send_due(), notices(resources).send_due()) == (2, 0)
    wait_for(lambda: len(mailbox.emails) >= 2)
    assert sorted(to for to, _, _ in mailbox.emails) == [[f"ann@{resources.tenant}.test"], [f"eve@{resources.tenant}.test"]]
    _, subject, text = mailbox.emails[0]
    assert subject.startswith("Your approval is needed in ")
    link = f"{resources.running.config.tenant_url(resources.tenant)}/console/approvals/{approval_id}"
    for part in (link, 'Requester\'s message: "Pay now <b>"', "Sign in to review and decide"):
        assert part in text, part
    assert "secret reason" not in text
    wait_for(lambda: calls(resources, "succeeded") == 2)


def test_nobody_gets_an_email_about_a_tenant_that_is_reset(resources: Resources, mailbox: Mailbox) -> None:
    resources.request(title="Pay now")
    sender, scope = notices(resources), resources.running.tenant(resources.tenant)
    with fenced(scope, "reset", ends_work=False):
        assert (sender.next_due(), sender.send_due()) == (None, 0)
    assert (sender.next_due(), sender.send_due()) == (0, 2)
    wait_for(lambda: len(mailbox.emails) >= 2)


def test_an_email_is_in_the_language_of_its_recipient(resources: Resources, mailbox: Mailbox) -> None:
    db.write(lambda: db.execute("UPDATE person SET language = 'de' WHERE login = ?", (f"ann@{resources.tenant}.test",)))
    resources.request(title="Pay now")
    notices(resources).send_due()
    wait_for(lambda: calls(resources, "succeeded") == 2)
    emails = {to[0].partition("@")[0]: (subject, text) for to, subject, text in mailbox.emails}
    subject, text = emails["ann"]
    assert subject.startswith("Ihre Freigabe wird in ")
    assert subject.endswith(" gebraucht")
    for part in ('Nachricht der anfragenden Person: "Pay now"', "Eine Antwort auf diese E-Mail entscheidet nichts."):
        assert part in text, part
    assert emails["eve"][0].startswith("Your approval is needed in ")


def test_an_email_queued_before_a_crash_is_not_sent_twice(resources: Resources, mailbox: Mailbox) -> None:
    approval_id = resources.request()
    assert notices(resources).send_due() == 2
    forget_emails(approval_id)
    assert notices(resources).send_due() == 2
    wait_for(lambda: calls(resources, "succeeded") == 2)
    assert len(mailbox.emails) == 2


def forget_emails(approval_id: str) -> None:
    """As after a crash between queueing an e-mail and recording it."""
    db.write(lambda: db.execute("DELETE FROM approval_told WHERE approval_id = ?", (approval_id,)))
    db.write(lambda: db.execute("UPDATE approval SET notified_at = NULL WHERE id = ?", (approval_id,)))


def an_hour_passes(resources: Resources) -> None:
    db.write(lambda: db.execute("UPDATE approval_told SET at = at - 3600000 WHERE tenant_id = ?", (resources.tenant,)))


def test_requests_soon_after_an_email_are_counted_in_the_next_one(resources: Resources, mailbox: Mailbox) -> None:
    sender = notices(resources, email_seconds=600)
    resources.request()
    assert sender.send_due() == 2
    for number in range(3):
        resources.request(title=f"The {number}. of a flood")
        assert sender.send_due() == 0
    an_hour_passes(resources)
    assert (sender.send_due(), sender.send_due()) == (2, 0)
    wait_for(lambda: calls(resources, "succeeded") == 4)
    reminders = [(subject, text) for _, subject, text in mailbox.emails if "requests wait for you" in subject]
    assert [subject.partition(" ")[0] for subject, _ in reminders] == ["3", "3"]
    assert "3 x a request for your approval" in reminders[0][1]
    assert f"{resources.running.config.tenant_url(resources.tenant)}/console/approvals" in reminders[0][1]
    assert "flood" not in reminders[0][1]


def test_after_a_crash_an_email_about_several_requests_is_not_sent_again(resources: Resources, mailbox: Mailbox) -> None:
    sender = notices(resources, email_seconds=600)
    first = resources.request()
    assert sender.send_due() == 2
    forget_emails(first)
    resources.request()
    assert sender.send_due() == 2, "the same key, now about two: the first counts as sent, the other waits"
    assert sender.send_due() == 0
    an_hour_passes(resources)
    assert sender.send_due() == 2
    wait_for(lambda: calls(resources, "succeeded") == 4)
    assert len(mailbox.emails) == 4


def test_an_email_that_cannot_be_queued_is_logged(resources: Resources) -> None:
    add_mailbox(resources.client, 9)
    resources.ask("PUT", "/kill-switches", {"kind": "integration", "name": INTEGRATION, "off": True, "reason": "a flood"})
    approval_id = resources.request()
    assert notices(resources).send_due() == 0
    lines = [line for line in resources.ask("GET", "/logs?level=error") if approval_id in line["message"]]
    assert len(lines) == 2
    assert "a flood" in lines[0]["message"]
    assert notices(resources).send_due() == 0


def test_without_an_email_integration_no_email_is_sent(resources: Resources) -> None:
    resources.request()
    assert (notices(resources, "").send_due(), notices(resources).send_due()) == (0, 0)
    assert db.rows("SELECT COUNT(*) FROM approval WHERE tenant_id = ? AND notified_at IS NULL", (resources.tenant,)) == [(0,)]
