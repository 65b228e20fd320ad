"""One look at a domain from outside: is it theirs, does it lead here?  Reads the world, writes nothing."""

import ipaddress
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from appliance.connectors.contract import ConnectorError, HttpRequest
from appliance.connectors.egress import Egress, EgressClient
from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence
from appliance.core.texts import mark_error

from .expecting import address_record, challenge_value, ownership_record
from .lookups import Lookups, Seen
from .models import DomainRow
from .names import CHALLENGE_PATH
from .records import DnsRecord, Finding, Settings

HTTP_SECONDS = 4.0
_LARGEST_ANSWER = 4096
# What was found and what to do about it; English here, and told in the reader's language by whoever shows it.
_TXT_ADVICE: Mapping[Finding, str] = {
    "unknown": mark_error("%(fault)s; it is asked again."),
    "missing": mark_error("%(name)s has no TXT record yet. %(advice)s A new record can take some hours to be seen."),
    "wrong": mark_error("%(name)s has another TXT record. Add the one that is expected beside it."),
}
_NOT_FETCHED = mark_error("The file could not be read at %(name)s: %(fault)s %(advice)s")
_OTHER_TEXT = mark_error("%(name)s answers something else at %(path)s. %(advice)s")
_FAULTY = mark_error("It leads nowhere: %(fault)s. %(advice)s")
_NO_ADDRESS = mark_error("%(name)s has no address")
_UNCHECKED = mark_error("Whether this is the appliance's address cannot be told: domains.public_addresses is not set.")
_ELSEWHERE = mark_error("%(name)s leads to %(addresses)s, which is not this appliance; remove that record. %(advice)s")
_NOT_APPROVED = mark_error("The operator has not approved it yet.")


@dataclass(frozen=True)
class Look:
    """What was seen; `proven` and `leads_here` are None when nobody could say, `error` is the first thing to mend."""

    records: tuple[DnsRecord, ...]
    proven: bool | None
    leads_here: bool | None
    error: str | None

    @property
    def passing(self) -> bool:
        """Whether the servers that were asked did not answer, so that nothing follows."""
        return any(record.finding == "unknown" for record in self.records if record.purpose != "redirect")


class Outside:
    """The world as `lookups` and `egress` reach it; names are resolved by `lookups` for both."""

    def __init__(self, settings: Settings, lookups: Lookups, egress: Egress, http_port: int = 80) -> None:
        self._settings = settings
        self._lookups = lookups
        self._egress = replace(egress, resolver=lookups.resolve_host)
        self._port = http_port
        self._networks = parse_networks(settings.public_addresses)

    def look(self, tenant_id: str, row: DomainRow, *, held: bool) -> Look:
        """Look at everything that is to be there.  A domain that was proven by a file has led away from the server with the
        file since: what it is held by is that it leads here."""
        records: list[DnsRecord] = []
        proof = ownership_record(row)
        if proof is not None and not (row.method == "http" and held):
            records.append(self._txt(proof) if proof.type == "TXT" else self._http(proof, row))
        owned = records[0].finding if records else "ok"
        if row.method == "operator" and not held:
            owned = "missing"
        names = [self._address(address_record(self._settings, tenant_id, row, name), tenant_id, row) for name in row.names]
        records += [record for record, _ in names]
        leads_here = names[0][1]
        proven = None if owned == "unknown" else owned == "ok"
        wrong = next((record for record in records if record.finding not in ("ok", "unchecked")), None)
        error = wrong.advice if wrong is not None else None
        if row.method == "operator" and not held:
            error = _NOT_APPROVED
        return Look(tuple(records), proven, leads_here, error)

    def _txt(self, record: DnsRecord) -> DnsRecord:
        seen = self._lookups.texts(record.name)
        if record.expected[0] in (value.strip().strip('"') for value in seen.values):
            return replace(record, observed=record.expected, finding="ok", advice="")
        finding = _missing(seen)
        told = _TXT_ADVICE[finding] % {"fault": seen.error, "name": record.name, "advice": record.advice}
        return replace(record, observed=seen.values[:5], finding=finding, advice=told)

    def _http(self, record: DnsRecord, row: DomainRow) -> DnsRecord:
        """The file at every name of the domain; redirects count only within the name."""
        client = EgressClient(self._egress)
        try:
            for name in row.names:
                try:
                    observed = self._fetch(client, name, row)
                except ConnectorError as error:
                    told = f"{name}: {error.message}"
                    advice = _NOT_FETCHED % {"name": name, "fault": error.message, "advice": record.advice}
                    return replace(record, observed=(told[:200],), finding="missing", advice=advice)
                if observed != challenge_value(row):
                    told = _OTHER_TEXT % {"name": name, "path": f"{CHALLENGE_PATH}{row.token}", "advice": record.advice}
                    return replace(record, observed=(observed[:200],), finding="wrong", advice=told)
        finally:
            client.close()
        return replace(record, observed=record.expected, finding="ok", advice="")

    def _fetch(self, client: EgressClient, name: str, row: DomainRow) -> str:
        port = "" if self._port == 80 else f":{self._port}"
        url = f"http://{name}{port}{CHALLENGE_PATH}{row.token}"
        request = HttpRequest("GET", url, max_bytes=_LARGEST_ANSWER)
        answer = client.send(request, time.monotonic() + HTTP_SECONDS)
        if answer.status != 200 or urlsplit(answer.url).hostname != name:
            return f"{answer.status} from {answer.url}"
        text = answer.content.decode("utf-8", "replace").strip()
        return "".join(sign if sign.isprintable() else "�" for sign in text)

    def _address(self, record: DnsRecord, tenant_id: str, row: DomainRow) -> tuple[DnsRecord, bool | None]:
        """The record, and whether the name leads here: by an alias that is ours, or because all its addresses are."""
        seen = self._lookups.addresses(record.name)
        observed = (*seen.aliases, *seen.values)[:20]
        content = self._settings.content
        if any(alias == content or alias.endswith(f".{content}") for alias in seen.aliases):
            return replace(record, observed=observed, finding="ok", advice=""), True
        if not seen.values:
            finding = _missing(seen)
            told = _FAULTY % {"fault": seen.error or _NO_ADDRESS % {"name": record.name}, "advice": record.advice}
            unknown = replace(record, observed=observed, finding=finding, advice=told)
            return unknown, None if finding == "unknown" else False
        if not self._networks:
            return replace(record, observed=observed, finding="unchecked", advice=_UNCHECKED), None
        strangers = [value for value in seen.values if not self._is_ours(value)]
        if not strangers:
            return replace(record, observed=observed, finding="ok", advice=""), True
        told = _ELSEWHERE % {"name": record.name, "addresses": ", ".join(strangers[:3]), "advice": record.advice}
        return replace(record, observed=observed, finding="wrong", advice=told), False

    def _is_ours(self, value: str) -> bool:
        address = ipaddress.ip_address(value)
        return any(network.version == address.version and address in network for network in self._networks)


def _missing(seen: Seen) -> Finding:
    if seen.passing:
        return "unknown"
    return "wrong" if seen.values else "missing"


def parse_networks(entries: Iterable[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """The networks of `domains.public_addresses`; ConfigInvalid."""
    networks = []
    for entry in entries:
        try:
            networks.append(ipaddress.ip_network(entry))
        except ValueError as error:
            raise ConfigInvalid(
                Sentence("domains.public_addresses: %(entry)s is no address or network", entry=repr(entry))
            ) from error
    return networks
