"""Fills a tenant with canaries, and finds them in what another one is answered."""

import base64
import hashlib
import html
import itertools
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from appliance.core.database import db
from appliance.testing.running import Running
from tests.api import resources
from tests.api.resources import Resources, fresh

MARK = "kanari"
NAME = re.compile(MARK.encode() + rb"[0-9]+")
ID = re.compile(rb"\b[a-z]{2,8}_[0-9A-Za-z]{21}\b")
TEXTS = ("description", "title", "label", "note", "instructions")
NOISE = {
    "log_line", "tally", "tally_late", "tally_mark", "tally_wide", "audit_entry", "audit_chain", "idempotency", "document_text",
    "document_preview", "webhook_delivery", "webapp_request", "webapp_traffic", "execution_event", "alert_event",
}  # fmt: skip
"""Tables that change by themselves."""
BY_ITSELF = {
    "last_used_at", "checked_at", "touched_at", "failed_in_row", "failing_since", "last_success_at", "state", "checks", "tries",
    "next_check_at", "records", "error", "leads_here", "grant_digest", "allowed_until", "forms", "fence", "lease_until", "owner",
}  # fmt: skip
"""Columns that periodic jobs write."""


def forms(text: str) -> list[bytes]:
    """A secret in its encodings: plain, backwards, in hex, escaped, and in base64 at every offset."""
    raw = text.encode()
    encodings = [raw, raw[::-1], raw.hex().encode(), raw.hex().upper().encode(), html.escape(text).encode()]
    for shift in range(3):
        part = base64.b64encode(b"\0" * shift + raw).rstrip(b"=")[(0, 2, 3)[shift] : -2]
        encodings += [part, part.replace(b"+", b"-").replace(b"/", b"_")]
    return encodings


_marked_numbers = (f"{MARK}{number}" for number in itertools.count(1))


class MarkedResources(Resources):
    """Creates things whose texts have a canary that nobody else ever sends, and notes their ids."""

    def __init__(self, running: Running, tenant: str, client: httpx.Client, content: str) -> None:
        super().__init__(running, tenant, client)
        self.content, self.ids = content, set[bytes]()
        client.event_hooks["response"].append(self._note_ids)

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return super().ask(method, path, self._mark(body), **more)

    def _mark(self, value: Any) -> Any:
        if isinstance(value, dict):
            marked = {name: self._mark(each) for name, each in value.items()}
            return {name: f"{v} {self.content}" if name in TEXTS and isinstance(v, str) else v for name, v in marked.items()}
        return [self._mark(each) for each in value] if isinstance(value, list) else value

    def _note_ids(self, response: httpx.Response) -> None:
        response.read()
        self.ids.update(ID.findall(response.content))


@contextmanager
def marked_names() -> Iterator[None]:
    """Within the context, names that `fresh` makes have the mark."""
    before, resources._numbers = resources._numbers, _marked_numbers  # type: ignore[assignment]
    try:
        yield
    finally:
        resources._numbers = before


@dataclass
class Canaries:
    """What must never be answered: `secret` texts in any encoding, and ids and marked names that were not sent."""

    content: str
    secret: dict[str, str] = field(default_factory=dict)
    ids: set[bytes] = field(default_factory=set)
    sent: set[bytes] = field(default_factory=set)
    _forms: dict[str, list[bytes]] = field(default_factory=dict)

    @classmethod
    def new(cls) -> "Canaries":
        return cls(f"inhalt{secrets.token_hex(8)}")

    def keep(self, name: str, text: str) -> str:
        """`text`, which must not be answered from now on."""
        self.secret[name], self._forms[name] = text, forms(text)
        return text

    def note_sent(self, *parts: bytes) -> None:
        """Responses may repeat what was sent, from now on."""
        for part in parts:
            self.sent.update(NAME.findall(part))
            self.sent.update(ID.findall(part))

    def find(self, response: bytes) -> list[str]:
        """What a response gives away."""
        leaks = [name for name, encodings in self._forms.items() if any(form in response for form in encodings)]
        others = (set(NAME.findall(response)) | (self.ids & set(ID.findall(response)))) - self.sent
        return leaks + sorted(each.decode() for each in others)


def plant_contents(theirs: MarkedResources, canaries: Canaries) -> None:
    """Content of every kind in the other tenant, beside what the examples create."""
    content = canaries.keep("content of another tenant", canaries.content)
    collection = theirs.collection()
    theirs.ask("POST", f"/datapool/{collection}/entities", {"number": content, "total": 1})
    theirs.ask("POST", "/documents", None, params={"name": f"{content}.txt"}, content=f"document {content}\n")
    process = theirs.process(steps=[{"id": "echo", "rule": {"expression": "= input.text"}}])
    theirs.execution(process, {"text": content})
    source = f'export default () => {{ throw new Error("{content}") }}'
    broken = theirs.process(steps=[{"id": "broken", "code": {"language": "javascript", "source": source}}])
    theirs.execution(broken)
    theirs.request(title=content)
    theirs.key()


def plant_secrets(tenant: Resources, canaries: Canaries) -> None:
    """Secret values in every place that takes one, which not even their own tenant is ever answered."""

    def secret(place: str) -> str:
        return canaries.keep(f"{place} of {tenant.tenant}", f"sekret{secrets.token_hex(12)}")

    name = tenant.secret()
    tenant.ask("PUT", f"/secrets/{name}", {"value": secret("secret")})
    profile = {"slug": fresh("model"), "kind": "openai", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
    tenant.ask("POST", "/llm-profiles", {**profile, "api_key": secret("key of a model")})
    auth = {"kind": "bearer", "token": secret("token of an integration")}
    settings = {"base_url": f"http://127.0.0.1:{tenant.running.config.server.port}/demo", "auth": auth}
    tenant.ask("POST", "/integrations", {"slug": fresh("sealed"), "connector": "http", "settings": settings})
    canaries.keep(f"API key of {tenant.tenant}", tenant.client.headers["x-api-key"])


def plant_installation(running: Running, canaries: Canaries) -> None:
    """The key file, and what is stored of passwords and keys."""
    canaries.keep("key file", (running.config.data / "key").read_text().strip())
    for login, text in db.rows("SELECT login, password_hash FROM person"):
        canaries.keep(f"password hash of {login}", str(text))
    for name, digest in db.rows("SELECT id, digest FROM api_key"):
        canaries.keep(f"digest of {name}", bytes(digest).hex())


def columns_of(table: str) -> set[str]:
    if db.is_sqlite():
        return {row[1] for row in db.rows(f'PRAGMA table_info("{table}")')}
    return {row[0] for row in db.rows("SELECT column_name FROM information_schema.columns WHERE table_name = ?", (table,))}


def tables() -> Iterable[str]:
    sql = "SELECT name FROM sqlite_master WHERE type = 'table'"
    if not db.is_sqlite():
        sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    return sorted(name for (name,) in db.rows(sql))


def state_of(tenant: str) -> dict[str, tuple[int, str]]:
    """Row counts and digests of a tenant's tables, without what changes by itself."""
    state = {}
    for name in tables():
        columns = columns_of(name)
        if "tenant_id" in columns and name not in NOISE:
            selected = ", ".join(f'"{column}"' for column in sorted(columns - BY_ITSELF))
            rows = sorted(map(repr, db.rows(f'SELECT {selected} FROM "{name}" WHERE tenant_id = ?', (tenant,))))  # noqa: S608
            state[name] = (len(rows), hashlib.sha256("\n".join(rows).encode()).hexdigest()[:12])
    return state
