"""What the DNS says of a name, asked anew every time, within a deadline, and never believed to be well-formed.

The library comes with the first question: most appliances have no domain that is checked.
"""

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from appliance.connectors.network import parse_address
from appliance.core import clock
from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence
from appliance.core.texts import mark_error

if TYPE_CHECKING:
    import dns.name
    import dns.resolver

SECONDS = 4.0  # for all questions of one look at one name
MOST_HOPS = 8
MOST_VALUES = 50
LONGEST_VALUE = 512
_NO_NAME = mark_error("There is no name %(name)s in the DNS")
_SLOW = mark_error("The name servers did not answer about %(name)s in time")
_CIRCLE = mark_error("The CNAME records of %(name)s lead in a circle or too far")
_FAILED = mark_error("The name servers failed to answer about %(name)s (SERVFAIL)")
_UNREADABLE = mark_error("The name servers' answer about %(name)s cannot be read (%(kind)s)")


@dataclass(frozen=True)
class Seen:
    """What was found.  `error` says why there is nothing; `passing`: it may be there, nobody could say.

    `aliases` are the names on the way (CNAME), without the one that was asked for.
    """

    values: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    error: str = ""
    passing: bool = False


class _Fault(Exception):
    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.message, self.passing = message, passing


class Lookups:
    """Questions to the configured name servers (`address`, `address:port`), or to the system's."""

    def __init__(self, resolvers: Iterable[str] = ()) -> None:
        self._servers = [_server(entry) for entry in resolvers]

    def texts(self, name: str) -> Seen:
        """The TXT records of a name, each as one text."""
        return self._guarded(name, ("TXT",))

    def addresses(self, name: str) -> Seen:
        """The addresses of a name, of both families, aliases followed."""
        return self._guarded(name, ("A", "AAAA"))

    def resolve_host(self, host: str, port: int) -> list[str]:
        """The addresses as `Egress` wants them; OSError when there are none."""
        seen = self.addresses(host)
        if not seen.values:
            raise socket.gaierror(seen.error or f"{host} has no address")
        return list(seen.values)

    def _guarded(self, name: str, kinds: tuple[str, ...]) -> Seen:
        ends = clock.monotonic() + SECONDS
        values: dict[str, None] = {}
        aliases: dict[str, None] = {}
        faults: list[_Fault] = []
        for kind in kinds:
            try:
                found, way = self._follow(name, kind, ends)
                values |= dict.fromkeys(found[:MOST_VALUES])
                aliases |= dict.fromkeys(way)
            except _Fault as fault:
                faults.append(fault)
        if values or not faults:
            told = "" if values or aliases else f"{name} has no {' or '.join(kinds)} record"
            return Seen(tuple(values), tuple(aliases), told)
        worst = next((fault for fault in faults if fault.passing), faults[0])
        return Seen((), tuple(aliases), worst.message, worst.passing)

    def _follow(self, name: str, kind: str, ends: float) -> tuple[list[str], list[str]]:
        """Values and aliases; a server that gives a CNAME without its target is asked again for that."""
        import dns.name

        way: list[str] = []
        asked = dns.name.from_text(f"{name}.")
        for _ in range(MOST_HOPS):
            answer = self._ask(asked, kind, ends)
            chain = [str(rrset[0].target) for rrset in answer.chaining_result.cnames]
            way += [each.rstrip(".").lower() for each in chain]
            if len(way) > MOST_HOPS or len(set(way)) != len(way) or name in way:
                break
            if answer.rrset is not None or not chain:
                return [_text(record) for record in answer.rrset or ()], way
            asked = answer.canonical_name
        raise _Fault(f"The CNAME records of {name} lead in a circle or too far", passing=False)

    def _ask(self, asked: "dns.name.Name", kind: str, ends: float) -> "dns.resolver.Answer":
        import dns.exception
        import dns.message
        import dns.resolver

        left = ends - clock.monotonic()
        text = str(asked).rstrip(".")
        if left <= 0:
            raise _Fault(_SLOW % {"name": text}, passing=True)
        try:
            return self._resolver().resolve(asked, kind, raise_on_no_answer=False, lifetime=left, search=False)
        except dns.resolver.NXDOMAIN as error:
            raise _Fault(_NO_NAME % {"name": text}, passing=False) from error
        except dns.exception.Timeout as error:
            raise _Fault(_SLOW % {"name": text}, passing=True) from error
        except dns.resolver.NoNameservers as error:
            if any(isinstance(cause[3], dns.message.ChainTooLong) for cause in error.kwargs.get("errors", ())):
                raise _Fault(_CIRCLE % {"name": text}, passing=False) from error
            raise _Fault(_FAILED % {"name": text}, passing=True) from error
        except (dns.exception.DNSException, OSError, ValueError) as error:
            raise _Fault(_UNREADABLE % {"name": text, "kind": type(error).__name__}, passing=True) from error

    def _resolver(self) -> "dns.resolver.Resolver":
        import dns.nameserver
        import dns.resolver

        if not self._servers:
            return dns.resolver.Resolver()  # the system's may change while we run
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers = [dns.nameserver.Do53Nameserver(address, port) for address, port in self._servers]
        return resolver


def _text(record: object) -> str:
    strings = getattr(record, "strings", None)
    text = b"".join(strings).decode("utf-8", "replace") if strings is not None else str(getattr(record, "address", ""))
    return "".join(sign if sign.isprintable() else "�" for sign in text[:LONGEST_VALUE])


def _server(entry: str) -> tuple[str, int]:
    host, _, port = entry.rpartition(":")
    if parse_address(entry) is not None:
        host, port = entry.strip("[]"), "53"
    address = parse_address(host)
    if address is None or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ConfigInvalid(Sentence(
            "domains.resolvers: %(entry)s is no address of a name server, such as 9.9.9.9 or 127.0.0.1:5353", entry=repr(entry)
        ))
    return str(address), int(port)
