"""DNS lookups without a cache, within a deadline; responses are not trusted to be well-formed.

The DNS library is imported on first use, because most appliances have no custom domain.
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

SECONDS = 4.0  # for all queries of one lookup
MOST_HOPS = 8
MOST_VALUES = 50
LONGEST_VALUE = 512
_NO_NAME = mark_error("%(name)s does not exist in the DNS")
_SLOW = mark_error("The name servers did not answer for %(name)s in time")
_CIRCLE = mark_error("The CNAME records of %(name)s form a loop or a chain that is too long")
_FAILED = mark_error("The name servers failed to answer for %(name)s (SERVFAIL)")
_UNREADABLE = mark_error("The name servers' answer for %(name)s is not readable (%(kind)s)")


@dataclass(frozen=True)
class LookupResult:
    """The result of a lookup. `error` says why there are no values; `passing` means that the failure is temporary.

    `aliases` are the CNAME targets on the way, without the queried name.
    """

    values: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    error: str = ""
    is_temporary: bool = False


class _LookupFailed(Exception):
    def __init__(self, message: str, *, is_temporary: bool) -> None:
        super().__init__(message)
        self.message, self.passing = message, is_temporary


class Lookups:
    """Queries the configured name servers (`address` or `address:port`), or those of the system."""

    def __init__(self, resolvers: Iterable[str] = ()) -> None:
        self._servers = [_server(entry) for entry in resolvers]

    def texts(self, name: str) -> LookupResult:
        """The TXT records of a name, each joined to one string."""
        return self._look_up(name, ("TXT",))

    def addresses(self, name: str) -> LookupResult:
        """The IPv4 and IPv6 addresses of a name, following CNAMEs."""
        return self._look_up(name, ("A", "AAAA"))

    def resolve_host(self, host: str, port: int) -> list[str]:
        """The addresses in the form that `Egress` expects; OSError when there are none."""
        result = self.addresses(host)
        if not result.values:
            raise socket.gaierror(result.error or f"{host} has no address")
        return list(result.values)

    def _look_up(self, name: str, kinds: tuple[str, ...]) -> LookupResult:
        deadline = clock.monotonic() + SECONDS
        values: dict[str, None] = {}
        aliases: dict[str, None] = {}
        failures: list[_LookupFailed] = []
        for kind in kinds:
            try:
                texts, chain = self._follow(name, kind, deadline)
                values |= dict.fromkeys(texts[:MOST_VALUES])
                aliases |= dict.fromkeys(chain)
            except _LookupFailed as each:
                failures.append(each)
        if values or not failures:
            error = "" if values or aliases else f"{name} has no {' or '.join(kinds)} record"
            return LookupResult(tuple(values), tuple(aliases), error)
        failure = next((fault for fault in failures if fault.passing), failures[0])
        return LookupResult((), tuple(aliases), failure.message, failure.passing)

    def _follow(self, name: str, kind: str, deadline: float) -> tuple[list[str], list[str]]:
        """Values and aliases; the target of a CNAME is queried again when the server did not include it."""
        import dns.name

        aliases: list[str] = []
        name_to_query = dns.name.from_text(f"{name}.")
        for _ in range(MOST_HOPS):
            answer = self._query(name_to_query, kind, deadline)
            chain = [str(rrset[0].target) for rrset in answer.chaining_result.cnames]
            aliases += [each.rstrip(".").lower() for each in chain]
            if len(aliases) > MOST_HOPS or len(set(aliases)) != len(aliases) or name in aliases:
                break
            if answer.rrset is not None or not chain:
                return [_text(record) for record in answer.rrset or ()], aliases
            name_to_query = answer.canonical_name
        raise _LookupFailed(f"The CNAME records of {name} form a loop or a chain that is too long", is_temporary=False)

    def _query(self, name: "dns.name.Name", kind: str, deadline: float) -> "dns.resolver.Answer":
        import dns.exception
        import dns.message
        import dns.resolver

        remaining = deadline - clock.monotonic()
        text = str(name).rstrip(".")
        if remaining <= 0:
            raise _LookupFailed(_SLOW % {"name": text}, is_temporary=True)
        try:
            return self._resolver().resolve(name, kind, raise_on_no_answer=False, lifetime=remaining, search=False)
        except dns.resolver.NXDOMAIN as error:
            raise _LookupFailed(_NO_NAME % {"name": text}, is_temporary=False) from error
        except dns.exception.Timeout as error:
            raise _LookupFailed(_SLOW % {"name": text}, is_temporary=True) from error
        except dns.resolver.NoNameservers as error:
            if any(isinstance(cause[3], dns.message.ChainTooLong) for cause in error.kwargs.get("errors", ())):
                raise _LookupFailed(_CIRCLE % {"name": text}, is_temporary=False) from error
            raise _LookupFailed(_FAILED % {"name": text}, is_temporary=True) from error
        except (dns.exception.DNSException, OSError, ValueError) as error:
            raise _LookupFailed(_UNREADABLE % {"name": text, "kind": type(error).__name__}, is_temporary=True) from error

    def _resolver(self) -> "dns.resolver.Resolver":
        import dns.nameserver
        import dns.resolver

        if not self._servers:
            return dns.resolver.Resolver()  # read each time, because the system configuration may change
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
            "domains.resolvers: %(entry)s is not the address of a name server, such as 9.9.9.9 or 127.0.0.1:5353",
            entry=repr(entry),
        ))
    return str(address), int(port)
