"""The `gos` fixture for one appliance: tenants, `drain`, a movable clock, a mailbox and a foreign system."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from pathlib import Path

from appliance.solutions import order_system_url
from appliance.tenants import people

from .draining import SECONDS, list_open_work, wait_until_idle
from .external_systems import ForeignSystem, Mailbox
from .running import Running
from .tenants import QaTenant

PASSWORD = "every door opens to whoever tests it"  # noqa: S105  of people who live as long as a test run
MAIL = "mail"
UNAUTHORISED = 401
_numbers = count(1)


class NotSupportedRemotely(AssertionError):
    """The operation is not possible with an appliance that runs elsewhere."""


@dataclass
class MovableClock:
    """The clock of the appliance in this process."""

    gos: "LocalGos"

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Advance the clock: running work finishes first, then everything that has become due is done.

        Sessions and API keys expire too: `gos_page_as` signs in again, an open page does so when it is loaded, and a
        tenant's `api` gets a new key once its own has expired.  `Date` in step code still uses the machine's clock.
        """
        passed = round(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000)
        if passed < 0:
            raise ValueError("the clock can only be advanced; use positive values")
        self.gos.drain()
        self.gos.running.move_clock(passed)
        self.gos.renew_keys()
        self.gos.drain()


@dataclass
class Gos(ABC):
    """An appliance under test; `close` releases everything it opened."""

    tenants: dict[str, QaTenant] = field(default_factory=dict)
    opened: ExitStack = field(default_factory=ExitStack)

    @abstractmethod
    def tenant(self, name: str = "", *, solution: str | Path | None = None, secrets: Mapping[str, str] | None = None) -> QaTenant:
        """The tenant with this name, created if needed, with the solution folder (or `starter`) applied."""

    @abstractmethod
    def drain(self, seconds: float = SECONDS) -> None:
        """Wait until no work continues by itself; StillRunning lists what is left after `seconds`.

        Waiting for a person, an event or a future time counts as idle.
        """

    @property
    @abstractmethod
    def clock(self) -> MovableClock:
        """The appliance's clock."""

    @property
    @abstractmethod
    def domain(self) -> str:
        """The base domain of the console's hosts, with its port."""

    @property
    @abstractmethod
    def content_domain(self) -> str:
        """The base domain of the hosts of WebApps and public documents, with its port."""

    def own_hosts(self) -> set[str]:
        """The custom domains of WebApps in these tenants."""
        return {host for each in self.tenants.values() for host in each.own_hosts()}

    @cached_property
    def plain(self) -> QaTenant:
        """An empty tenant; with an appliance elsewhere, its only tenant."""
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
        """Create an integration in the tenant that sends e-mail to `mail`; the one named `mail` also notifies approvers."""
        tenant.ask("POST", "/integrations", {"slug": slug, "connector": "email", "settings": self.mail.settings})

    def close(self) -> None:
        self.opened.close()


@dataclass
class LocalGos(Gos):
    """An appliance inside the test's process."""

    running: Running = field(kw_only=True)

    def tenant(self, name: str = "", *, solution: str | Path | None = None, secrets: Mapping[str, str] | None = None) -> QaTenant:
        tenant_id = name or f"qa{next(_numbers)}"
        if tenant_id not in self.tenants:
            api = self.opened.enter_context(self.running.api(tenant_id))
            url, demo = self.running.config.tenant_url(tenant_id), order_system_url(self.running.config)
            self.tenants[tenant_id] = QaTenant(tenant_id, url, api, self, demo)
        tenant = self.tenants[tenant_id]
        if solution is not None:
            tenant.apply(solution, secrets)
        return tenant

    def login(self, tenant_id: str, role: str) -> tuple[str, str]:
        """Login and password of a member with this role, created if needed."""
        login = f"{role}@{tenant_id}.test"
        if login not in {member.login for member in people.list_members(self.running.tenant(tenant_id), with_disabled=True)}:
            self.running.user(login, PASSWORD)
            member_role = "operator" if role == "approver" else role
            people.add_member(self.running.tenant(tenant_id), login, member_role, approver=role == "approver")
        return login, PASSWORD

    def renew_keys(self) -> None:
        """Replace expired keys in the tenants' clients, because later tests of the module use the same clients."""
        for each in self.tenants.values():
            if each.api.get("/api/v1/tenant").status_code == UNAUTHORISED:
                each.api.headers["X-API-Key"] = self.running.key(each.id)

    def drain(self, seconds: float = SECONDS) -> None:
        settings = self.running.config.approvals
        notifies_at_once = bool(settings.email_integration) and not settings.letter_seconds
        wait_until_idle(lambda: list_open_work(self.running.services.queue, self.tenants, tells_at_once=notifies_at_once), seconds)

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
        """Close after pending calls have finished; a dropped connection would cause errors in another test."""
        try:
            if "mail" in self.__dict__ or "foreign" in self.__dict__:
                self.drain()
        finally:
            super().close()
