"""Probes a domain from outside: is it verified, and does it point to this appliance? Reads DNS and HTTP, writes nothing."""

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

from .expected_records import address_record, challenge_value, ownership_record
from .lookups import LookupResult, Lookups
from .models import DomainRow
from .names import CHALLENGE_PATH
from .records import DnsRecord, DomainSettings, Finding

HTTP_SECONDS = 4.0
_LARGEST_ANSWER = 4096
# What was found and what to do next; English here, translated where it is shown.
_TXT_ADVICE: Mapping[Finding, str] = {
    "unknown": mark_error("%(fault)s; it will be checked again."),
    "missing": mark_error("%(name)s has no TXT record yet. %(advice)s A new record can take a few hours to become visible."),
    "wrong": mark_error("%(name)s has another TXT record. Add the expected one next to it."),
}
_NOT_FETCHED = mark_error("The file could not be read at %(name)s: %(fault)s %(advice)s")
_OTHER_TEXT = mark_error("%(name)s returns something else at %(path)s. %(advice)s")
_FAULTY = mark_error("It does not point anywhere: %(fault)s. %(advice)s")
_NO_ADDRESS = mark_error("%(name)s has no address")
_UNCHECKED = mark_error("It is unknown whether this is the appliance's address, because domains.public_addresses is not set.")
_ELSEWHERE = mark_error("%(name)s points to %(addresses)s, which is not this appliance; remove that record. %(advice)s")
_NOT_APPROVED = mark_error("The operator has not approved it yet.")


@dataclass(frozen=True)
class ProbeResult:
    """The result of a probe; `proven` and `leads_here` are None when unknown, `error` is the first problem to fix."""

    records: tuple[DnsRecord, ...]
    proven: bool | None
    leads_here: bool | None
    error: str | None

    @property
    def has_temporary_failure(self) -> bool:
        """Whether a name server did not respond, so that the result says nothing."""
        return any(record.finding == "unknown" for record in self.records if record.purpose != "redirect")


class Prober:
    """Probes domains through `lookups` (DNS) and `egress` (HTTP); `lookups` resolves names for both."""

    def __init__(self, settings: DomainSettings, lookups: Lookups, egress: Egress, http_port: int = 80) -> None:
        self._settings = settings
        self._lookups = lookups
        self._egress = replace(egress, resolver=lookups.resolve_host)
        self._port = http_port
        self._networks = parse_networks(settings.public_addresses)

    def probe(self, tenant_id: str, row: DomainRow, *, is_held: bool) -> ProbeResult:
        """Check every record of the domain. A held domain that was verified by a file now points here instead of to the server
        with the file, so only its address is checked."""
        records: list[DnsRecord] = []
        proof = ownership_record(row)
        if proof is not None and not (row.method == "http" and is_held):
            records.append(self._check_txt(proof) if proof.type == "TXT" else self._check_file(proof, row))
        finding = records[0].finding if records else "ok"
        if row.method == "operator" and not is_held:
            finding = "missing"
        addresses = [
            self._check_address(address_record(self._settings, tenant_id, row, name), tenant_id, row) for name in row.names
        ]
        records += [record for record, _ in addresses]
        leads_here = addresses[0][1]
        proven = None if finding == "unknown" else finding == "ok"
        faulty = next((record for record in records if record.finding not in ("ok", "unchecked")), None)
        error = faulty.advice if faulty is not None else None
        if row.method == "operator" and not is_held:
            error = _NOT_APPROVED
        return ProbeResult(tuple(records), proven, leads_here, error)

    def _check_txt(self, record: DnsRecord) -> DnsRecord:
        result = self._lookups.texts(record.name)
        if record.expected[0] in (value.strip().strip('"') for value in result.values):
            return replace(record, observed=record.expected, finding="ok", advice="")
        finding = _finding_of_missing(result)
        advice = _TXT_ADVICE[finding] % {"fault": result.error, "name": record.name, "advice": record.advice}
        return replace(record, observed=result.values[:5], finding=finding, advice=advice)

    def _check_file(self, record: DnsRecord, row: DomainRow) -> DnsRecord:
        """Check the file at every name of the domain; only redirects within the name are accepted."""
        client = EgressClient(self._egress)
        try:
            for name in row.names:
                try:
                    observed = self._fetch(client, name, row)
                except ConnectorError as error:
                    failure = f"{name}: {error.message}"
                    advice = _NOT_FETCHED % {"name": name, "fault": error.message, "advice": record.advice}
                    return replace(record, observed=(failure[:200],), finding="missing", advice=advice)
                if observed != challenge_value(row):
                    advice = _OTHER_TEXT % {"name": name, "path": f"{CHALLENGE_PATH}{row.token}", "advice": record.advice}
                    return replace(record, observed=(observed[:200],), finding="wrong", advice=advice)
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

    def _check_address(self, record: DnsRecord, tenant_id: str, row: DomainRow) -> tuple[DnsRecord, bool | None]:
        """Check the record; True if the name points here by a CNAME to us or because all its addresses are ours, None if
        unknown."""
        result = self._lookups.addresses(record.name)
        observed = (*result.aliases, *result.values)[:20]
        content = self._settings.content
        if any(alias == content or alias.endswith(f".{content}") for alias in result.aliases):
            return replace(record, observed=observed, finding="ok", advice=""), True
        if not result.values:
            finding = _finding_of_missing(result)
            advice = _FAULTY % {"fault": result.error or _NO_ADDRESS % {"name": record.name}, "advice": record.advice}
            unknown = replace(record, observed=observed, finding=finding, advice=advice)
            return unknown, None if finding == "unknown" else False
        if not self._networks:
            return replace(record, observed=observed, finding="unchecked", advice=_UNCHECKED), None
        foreign = [value for value in result.values if not self._is_ours(value)]
        if not foreign:
            return replace(record, observed=observed, finding="ok", advice=""), True
        advice = _ELSEWHERE % {"name": record.name, "addresses": ", ".join(foreign[:3]), "advice": record.advice}
        return replace(record, observed=observed, finding="wrong", advice=advice), False

    def _is_ours(self, value: str) -> bool:
        address = ipaddress.ip_address(value)
        return any(network.version == address.version and address in network for network in self._networks)


def _finding_of_missing(result: LookupResult) -> Finding:
    if result.is_temporary:
        return "unknown"
    return "wrong" if result.values else "missing"


def parse_networks(entries: Iterable[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Parse `domains.public_addresses`; ConfigInvalid."""
    networks = []
    for entry in entries:
        try:
            networks.append(ipaddress.ip_network(entry))
        except ValueError as error:
            raise ConfigInvalid(
                Sentence("domains.public_addresses: %(entry)s is not an IP address or network", entry=repr(entry))
            ) from error
    return networks
