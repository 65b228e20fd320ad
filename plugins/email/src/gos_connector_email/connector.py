"""The email connector: each call opens one session with the SMTP server or the IMAP server."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, ClassVar

from appliance.connectors.contract import Action, ConfigError, Connector, Context, Json, Peer, Polled, Trigger
from gos_connector_email import mailbox
from gos_connector_email.attachments import load_attachments, store_as_documents
from gos_connector_email.composing import compose
from gos_connector_email.declaration import ACTIONS, SETTINGS, TRIGGERS
from gos_connector_email.imap import Imap
from gos_connector_email.smtp import Smtp

_PORTS = {("smtp", "tls"): 465, ("smtp", "starttls"): 587, ("smtp", "off"): 25, ("imap", "tls"): 993}
_IMAP_PORT = 143


class EmailConnector(Connector):
    """Sends through an SMTP server and reads a mailbox on an IMAP server; either is optional."""

    contract_version = 1
    name = "email"
    title = "Email"
    version = "0.1.0"
    tested_against = "Dovecot 2.3, aiosmtpd 1.4"
    settings_schema: ClassVar[Json] = SETTINGS
    actions: ClassVar[tuple[Action, ...]] = ACTIONS
    triggers: ClassVar[tuple[Trigger, ...]] = TRIGGERS

    def __init__(self, settings: Json) -> None:
        super().__init__(settings)
        self._mailbox_actions: Mapping[str, Callable[[Imap, Json], dict[str, Any]]] = {
            "folders": lambda imap, _: {"folders": imap.folders()},
            "search": mailbox.search, "read": mailbox.read, "flag": mailbox.flag, "move": mailbox.move,
        }  # fmt: skip

    def check(self, ctx: Context) -> str:
        results = []
        if "smtp_host" in self.settings:
            with self._smtp(ctx):
                results.append(f"{self._peer('smtp')} takes mail")
        if "imap_host" in self.settings:
            with self._imap(ctx) as imap:
                results.append(f"{self._peer('imap')} has {len(imap.folders())} folders")
        if not results:
            raise ConfigError("No server is configured; give `smtp_host` to send, `imap_host` to read, or both.")
        return f"{' and '.join(results)}."

    def call(self, action: str, input: Json, ctx: Context) -> dict[str, Any]:  # noqa: A002 - the contract's word
        if action == "send":
            return self._send(input, ctx)
        if action not in self._mailbox_actions:
            raise ConfigError(f"{self.title} has no action {action!r}; it has send, {', '.join(self._mailbox_actions)}.")
        with self._imap(ctx) as imap:
            output = self._mailbox_actions[action](imap, input)
        return store_as_documents(output, ctx.documents) if action == "read" and input.get("as_documents", False) else output

    def poll(self, trigger: str, query: Json, cursor: Any, ctx: Context) -> Polled:
        if trigger != "new_mail":
            return super().poll(trigger, query, cursor, ctx)
        with self._imap(ctx) as imap:
            return mailbox.new_mail(imap, query, cursor)

    def _send(self, message: Json, ctx: Context) -> dict[str, Any]:
        sender = message.get("from", self.settings.get("from"))
        if sender is None:
            raise ConfigError("The message has no sender; give `from` in the settings or in the call.")
        email = compose(message, load_attachments(message, ctx.documents), sender, ctx.idempotency_key)
        with self._smtp(ctx) as smtp:
            delivery = smtp.deliver(email.sender, email.recipients, email.content)
        if delivery.refused:
            ctx.log("warn", f"The server refused {len(delivery.refused)} of {len(email.recipients)} recipients.")
        return {"message_id": email.message_id, "accepted": delivery.accepted, "refused": delivery.refused}

    @contextmanager
    def _smtp(self, ctx: Context) -> Iterator[Smtp]:
        with closing(Smtp(self._peer("smtp"), ctx, self.settings.get("user"), self.settings.get("password", ""))) as smtp:
            yield smtp

    @contextmanager
    def _imap(self, ctx: Context) -> Iterator[Imap]:
        peer = self._peer("imap")
        if "user" not in self.settings:
            raise ConfigError("Reading a mailbox needs a sign-in; give `user` and `password`.")
        with closing(Imap(peer, ctx, self.settings["user"], self.settings.get("password", ""))) as imap:
            yield imap

    def _peer(self, protocol: str) -> Peer:
        host = self.settings.get(f"{protocol}_host")
        if host is None:
            what = "send" if protocol == "smtp" else "read"
            raise ConfigError(f"This integration has no server to {what} mail; give `{protocol}_host` in its settings.")
        tls = self.settings.get(f"{protocol}_tls", "tls")
        port = self.settings.get(f"{protocol}_port", _PORTS.get((protocol, tls), _IMAP_PORT))
        return Peer(protocol.upper(), host, port, tls, self.settings.get("ca"))
