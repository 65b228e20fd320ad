"""The directory of the configuration, by the connector `ldap`: one connection for each question, to the first server that answers.

The connector never contacts a server that the directory refers to, because passwords belong to those of the configuration.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

from appliance.connectors.context import CallContext
from appliance.connectors.contract import Connector, ConnectorError, Json, Level
from appliance.connectors.egress import Egress, EgressClient
from appliance.connectors.registry import load_connector
from appliance.core.config.directories import Directory, read_authority, read_bind_password, server_of
from appliance.core.errors import ApplianceError
from appliance.core.sentences import Sentence

from .entries import DirectoryPerson, read_person, requested_attributes, subject_value
from .names import any_of, equals, escape_value

T = TypeVar("T")
log = logging.getLogger(__name__)
MOST_GROUPS = 5000
MOST_NESTED = 10
BATCH = 50
IN_CHAIN = "1.2.840.113556.1.4.1941"  # LDAP_MATCHING_RULE_IN_CHAIN
# Results of a bind that concern the person: the password is wrong, or the account is locked, expired or disabled.
_REFUSED = frozenset({19, 48, 49, 50, 53})


class DirectoryFailed(ApplianceError):
    """The directory cannot be asked, or its answer cannot be used; the message is for its administrator."""

    code, status = "directory_failed", 502


class DirectoryClient:
    """Reads one directory; `egress` must admit its servers.  ConfigInvalid if a file of its settings cannot be read."""

    def __init__(self, directory: Directory, egress: Egress) -> None:
        self.directory, self._egress = directory, egress
        self._password, self._authority = read_bind_password(directory), read_authority(directory)
        self._first = 0

    def find_person(self, login: str) -> DirectoryPerson | None:
        """The person with this login who may sign in by `user_filter`; None without one.  DirectoryFailed."""
        names = [equals(each, login) for each in self.directory.login_attributes]
        people = list(self._search_people(any_of(names), limit=2))
        if len(people) > 1:
            raise DirectoryFailed(Sentence(
                "two entries have the same login: %(first)s and %(second)s; make login_attributes or user_filter narrower",
                first=people[0].dn, second=people[1].dn,
            ))
        return people[0] if people else None

    def find_people(self, subjects: Sequence[str]) -> dict[str, DirectoryPerson]:
        """Those of these people who may still sign in by `user_filter`, by their subject.  DirectoryFailed."""
        matches: dict[str, DirectoryPerson] = {}
        for start in range(0, len(subjects), BATCH):
            batch = [equals(self.directory.id_attribute, subject_value(each)) for each in subjects[start : start + BATCH]]
            matches |= {each.subject: each for each in self._search_people(any_of(batch), limit=2 * BATCH)}
        return matches

    def _search_people(self, condition: str, limit: int) -> Iterator[DirectoryPerson]:
        requested = requested_attributes(self.directory)
        search = {"filter": f"(&{self.directory.user_filter}{condition})", "attributes": requested, "limit": limit}
        for entry in self._search(search):
            person = read_person(self.directory, entry)
            if person is None:
                raise DirectoryFailed(Sentence(
                    "%(dn)s has no %(attribute)s that %(user)s can read; correct id_attribute",
                    dn=entry["dn"], attribute=self.directory.id_attribute, user=self.directory.bind_dn or "the appliance",
                ))
            yield person

    def is_password_right(self, person: DirectoryPerson, password: str) -> bool:
        """Sign in to the directory as the person; False if it refuses them for any reason.  DirectoryFailed.

        An empty password would sign in nobody, successfully (RFC 4513 § 5.1.2).
        """
        if not password or not person.dn:
            return False
        credentials = {"bind_dn": person.dn, "password": password}

        def check(connector: Connector, context: CallContext) -> bool:
            try:
                connector.check(context)
            except ConnectorError as error:
                if error.details.get("code") not in _REFUSED:
                    raise
                log.info("the directory %s does not sign %s in: %s", self.directory.id, person.dn, error.details.get("message", ""))
                return False
            return True

        return self._ask(check, credentials)

    # -- groups

    def list_groups(self, person: DirectoryPerson) -> frozenset[str]:
        """The DNs of the person's groups.  DirectoryFailed, also when the directory does not list all of them."""
        match self.directory.groups:
            case "none":
                return frozenset()
            case "member_of":
                if person.has_more_groups:
                    raise DirectoryFailed("the directory does not list all groups in memberOf; set groups to search or in_chain")
                return frozenset(person.member_of)
            case "in_chain":
                return frozenset(self._find_groups([f"({self.directory.group_attribute}:{IN_CHAIN}:={escape_value(person.dn)})"]))
        member = person.name if self.directory.group_attribute.lower() == "memberuid" else person.dn
        groups = frozenset(self._find_groups([equals(self.directory.group_attribute, member)]))
        return self._with_parents(groups) if self.directory.groups == "nested" else groups

    def _with_parents(self, groups: frozenset[str]) -> frozenset[str]:
        """The groups with those that they are members of, and so on; a circle of groups ends."""
        every, new = groups, groups
        for _ in range(MOST_NESTED):
            names = sorted(new)
            parents: set[str] = set()
            for start in range(0, len(names), BATCH):
                batch = names[start : start + BATCH]
                parents |= self._find_groups([equals(self.directory.group_attribute, each) for each in batch])
            new = frozenset(parents) - every
            if not new:
                return every
            every |= new
        raise DirectoryFailed(Sentence("groups are nested more than %(most)s deep", most=MOST_NESTED))

    def _find_groups(self, conditions: list[str]) -> set[str]:
        base = self.directory.group_base_dn or self.directory.base_dn
        search = {"base": base, "filter": any_of(conditions), "attributes": ["1.1"], "limit": MOST_GROUPS}
        return {entry["dn"] for entry in self._search(search, is_complete=True)}

    # -- the connector

    def check(self) -> str:
        """Which server answers; bind_dn, base_dn, user_filter and id_attribute are tried.  DirectoryFailed names the problem."""
        answer = self._ask(lambda connector, context: connector.check(context))
        list(self._search_people("(objectClass=*)", limit=1))
        return answer

    def _search(self, search: Json, *, is_complete: bool = False) -> list[dict[str, Any]]:
        output = self._ask(lambda connector, context: connector.call("search", search, context))
        if is_complete and output["truncated"]:
            raise DirectoryFailed("the directory does not list all groups; correct its size limit for bind_dn")
        entries: list[dict[str, Any]] = output["entries"]
        return entries

    def _ask(self, work: Callable[[Connector, CallContext], T], credentials: Json | None = None) -> T:
        """Ask the server that answered last, then the others; DirectoryFailed tells what the last one said."""
        urls, failure = self.directory.urls, ""
        for offset in range(len(urls)):
            number = (self._first + offset) % len(urls)
            try:
                result = self._ask_server(urls[number], work, credentials)
            except ConnectorError as error:
                log.warning("the directory %s: %s", self.directory.id, error.message)
                failure = _with_our_names(error.message)
            else:
                self._first = number
                return result
        raise DirectoryFailed(failure)

    def _ask_server(self, url: str, work: Callable[[Connector, CallContext], T], credentials: Json | None) -> T:
        host, port, tls = server_of(url)
        settings: dict[str, Any] = {"host": host, "port": port, "tls": tls}
        if self._authority is not None:
            settings["ca"] = self._authority
        if credentials is None:
            settings["base_dn"] = self.directory.base_dn
            credentials = {"bind_dn": self.directory.bind_dn, "password": self._password} if self.directory.bind_dn else {}
        connector = self._connector_class({**settings, **credentials})
        try:
            deadline = time.monotonic() + self.directory.timeout_seconds
            return work(connector, CallContext(self._egress, self._http, "", deadline, _log_line))
        finally:
            connector.close()

    @cached_property
    def _connector_class(self) -> type[Connector]:
        installed = load_connector("ldap")
        if installed is None:
            raise DirectoryFailed("the connector ldap is not installed; install gos-connector-ldap")
        return installed.connector

    @cached_property
    def _http(self) -> EgressClient:
        """A context has one; the connector never uses it."""
        return EgressClient(self._egress)


def _with_our_names(message: str) -> str:
    """The connector's message with the names that its settings have in `sign_in.directories`."""
    return message.replace("`ca`", "`ca_file`").replace("`password`", "`bind_password`")


def _log_line(level: Level, message: str, _fields: Json) -> None:
    log.log(logging.getLevelNamesMapping()[level.upper()], "%s", message)
