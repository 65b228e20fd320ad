"""What a test is given as `gos`: tenants, rest, a movable clock, a mailbox and a foreign system, for one appliance."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path

from appliance.solutions import order_system_url
from appliance.tenants import people

from .draining import SECONDS, await_rest, open_work
from .outside import ForeignSystem, Mailbox
from .running import Running
from .tenants import QaTenant

PASSWORD = "every door opens to whoever tests it"  # noqa: S105  of people who live as long as a test run
MAIL = "mail"
UNAUTHORISED = 401
_numbers = count(1)


class NotHere(AssertionError):
    """This cannot be done with an appliance that runs elsewhere."""


@dataclass
class MovableClock:
    """The clock of the appliance in this process."""

    gos: "LocalGos"

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let so much time pass: what runs comes to rest first, then everything that fell due meanwhile is done.

        Sessions and API keys grow old too: `gos_page_as` signs in again, a page that was open does so itself when it
        is loaded, and a tenant's `api` gets another key once its own has ended.  `Date` in step code stays with the
        machine's clock.
        """
        passed = round(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000)
        if passed < 0:
            raise ValueError("time only goes on")
        self.gos.drain()
        self.gos.running.move_clock(passed)
        self.gos.renew_keys()
        self.gos.drain()


@dataclass
class Gos(ABC):
    """An appliance under test; `close` gives back what it opened."""

    tenants: dict[str, QaTenant] = field(default_factory=dict)
    opened: ExitStack = field(default_factory=ExitStack)

    @abstractmethod
    def tenant(self, name: str = "", *, solution: str | Path | None = None, secrets: Mapping[str, str] | None = None) -> QaTenant:
        """The tenant of this name, or a new one, with the solution folder (or `starter`) in it."""

    @abstractmethod
    def drain(self, seconds: float = SECONDS) -> None:
        """Wait until nothing goes on by itself; StillRunning names what still runs after `seconds`.

        Who waits for a person, an event or a time to come is at rest.
        """

    @property
    @abstractmethod
    def clock(self) -> MovableClock:
        """The appliance's clock."""

    @property
    @abstractmethod
    def domain(self) -> str:
        """Host and port below which every page of the console lies."""

    @property
    @abstractmethod
    def content_domain(self) -> str:
        """Host and port below which WebApps and public documents lie."""

    def own_hosts(self) -> set[str]:
        """The domains of their own that WebApps of these tenants have."""
        return {host for each in self.tenants.values() for host in each.own_hosts()}

    @cached_property
    def plain(self) -> QaTenant:
        """A tenant with nothing in it; of an appliance elsewhere the one there is."""
        return self.tenant()

    @cached_property
    def foreign(self) -> ForeignSystem:
        """A foreign system on loopback."""
        system = ForeignSystem()
        self.opened.callback(system.close)
        return system

    @cached_property
    def mail(self) -> Mailbox:
        """A mailbox on loopback; `connect_mail` lets a tenant send to it."""
        box = Mailbox()
        self.opened.callback(box.close)
        return box

    def connect_mail(self, tenant: QaTenant, slug: str = MAIL) -> None:
        """Give the tenant an integration that sends letters to `mail`; approvers are told through the one named `mail`."""
        tenant.ask("POST", "/integrations", {"slug": slug, "connector": "email", "settings": self.mail.settings})

    def close(self) -> None:
        self.opened.close()


@dataclass
class LocalGos(Gos):
    """An appliance inside the test's process."""

    running: Running = field(kw_only=True)

    def tenant(self, name: str = "", *, solution: str | Path | None = None, secrets: Mapping[str, str] | None = None) -> QaTenant:
        wanted = name or f"qa{next(_numbers)}"
        if wanted not in self.tenants:
            api = self.opened.enter_context(self.running.api(wanted))
            url, demo = self.running.config.tenant_url(wanted), order_system_url(self.running.config)
            self.tenants[wanted] = QaTenant(wanted, url, api, self, demo)
        found = self.tenants[wanted]
        if solution is not None:
            found.apply(solution, secrets)
        return found

    def login(self, tenant_id: str, role: str) -> tuple[str, str]:
        """Login and password of somebody with this role, made when there is nobody yet."""
        login = f"{role}@{tenant_id}.test"
        if login not in {member.login for member in people.list_members(self.running.tenant(tenant_id))}:
            self.running.user(login, PASSWORD)
            held = "operator" if role == "approver" else role
            people.add_member(self.running.tenant(tenant_id), login, held, approver=role == "approver")
        return login, PASSWORD

    def renew_keys(self) -> None:
        """Give the clients of tenants another key where theirs has ended: every later test of the module uses them."""
        for each in self.tenants.values():
            if each.api.get("/api/v1/tenant").status_code == UNAUTHORISED:
                each.api.headers["X-API-Key"] = self.running.key(each.id)

    def drain(self, seconds: float = SECONDS) -> None:
        told = self.running.config.approvals
        tells_at_once = bool(told.email_integration) and not told.letter_seconds
        await_rest(lambda: open_work(self.running.services.queue, self.tenants, tells_at_once=tells_at_once), seconds)

    @cached_property
    def clock(self) -> MovableClock:
        return MovableClock(self)

    @property
    def domain(self) -> str:
        return f"{self.running.config.domains.base}{self.running.config.port_suffix}"

    @property
    def content_domain(self) -> str:
        return f"{self.running.config.domains.content}{self.running.config.port_suffix}"

    def close(self) -> None:
        """Once what is served has come to rest: a connection that is dropped tells another test of it."""
        try:
            if "mail" in self.__dict__ or "foreign" in self.__dict__:
                self.drain()
        finally:
            super().close()
