"""The DNS records that a domain needs. Pure functions."""

from appliance.core.texts import mark_error

from .models import DomainRow
from .names import CHALLENGE_LABEL, CHALLENGE_PATH, is_apex, partner_of
from .records import DnsRecord, DomainSettings

# Advice for whoever edits the DNS; English here, translated where it is shown.
_TXT = mark_error("Add this TXT record at the domain's DNS provider, and keep it there.")
_FILE = mark_error("Make the current web server return this text at this URL.")
_CNAME = mark_error("Add this CNAME record.")
_ADDRESSES = mark_error("Add A and AAAA records with these addresses, or an ALIAS to %(target)s if your DNS provider supports it.")
_ASK = mark_error("Add an A record with the address of this appliance (ask the operator), or an ALIAS to %(target)s.")


def challenge_value(row: DomainRow) -> str:
    """The value that proves the claim; unique to each claim, so that another tenant's record does not count."""
    return f"gos-challenge={row.token}"


def challenge_name(row: DomainRow) -> str:
    """Where the TXT record goes. For a pair this is the name without `www.`, because its owner controls both."""
    names = [row.host, partner_of(row.host, row.redirect_from) or row.host]
    return f"{CHALLENGE_LABEL}.{min(names, key=len)}"


def ownership_record(row: DomainRow) -> DnsRecord | None:
    """The record that proves ownership; None when the operator approves the domain instead."""
    value = challenge_value(row)
    if row.method == "txt":
        return DnsRecord("ownership", challenge_name(row), "TXT", (value,), advice=_TXT)
    if row.method == "http":
        url = f"http://{row.host}{CHALLENGE_PATH}{row.token}"
        return DnsRecord("ownership", url, "HTTP", (value,), advice=_FILE)
    return None


def address_record(settings: DomainSettings, tenant_id: str, row: DomainRow, name: str) -> DnsRecord:
    """The record that points the name to this appliance: a CNAME, or addresses where DNS allows no CNAME."""
    purpose = "address" if name == row.host else "redirect"
    target = settings.app_host(tenant_id, row.app_id)
    if not is_apex(name):
        return DnsRecord(purpose, name, "CNAME", (target,), advice=_CNAME)  # type: ignore[arg-type]
    advice = (_ADDRESSES if settings.public_addresses else _ASK) % {"target": target}
    return DnsRecord(purpose, name, "A", settings.public_addresses, advice=advice)  # type: ignore[arg-type]


def expected_records(settings: DomainSettings, tenant_id: str, row: DomainRow) -> list[DnsRecord]:
    """Every record the domain needs, not checked yet."""
    proof = ownership_record(row)
    partner = partner_of(row.host, row.redirect_from)
    names = [row.host] if partner is None else [row.host, partner]
    return [*([proof] if proof else []), *(address_record(settings, tenant_id, row, name) for name in names)]
