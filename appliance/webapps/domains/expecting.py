"""What is to be in the DNS for a domain; pure."""

from appliance.core.texts import mark_error

from .models import DomainRow
from .names import CHALLENGE_LABEL, CHALLENGE_PATH, is_apex, partner_of
from .records import DnsRecord, Settings

# What whoever keeps the DNS is to do; English here, and told in the reader's language by whoever shows it.
_TXT = mark_error("Add this TXT record where the domain's DNS is kept, and leave it there.")
_FILE = mark_error("Have today's server answer this address with this text.")
_CNAME = mark_error("Add this CNAME record.")
_ADDRESSES = mark_error("Add A and AAAA records with these addresses, or an ALIAS to %(target)s if your DNS has that.")
_ASK = mark_error("Add an A record with the address of this appliance (ask the operator), or an ALIAS to %(target)s.")


def challenge_value(row: DomainRow) -> str:
    """What proves the claim: made anew with every claim, so that no other tenant's record fits."""
    return f"gos-challenge={row.token}"


def proven_name(row: DomainRow) -> str:
    """Where the TXT record belongs: of a pair the name without `www.`, because who writes there speaks for both."""
    names = [row.host, partner_of(row.host, row.redirect_from) or row.host]
    return f"{CHALLENGE_LABEL}.{min(names, key=len)}"


def ownership_record(row: DomainRow) -> DnsRecord | None:
    """The proof that is asked for; None where the operator's word counts."""
    value = challenge_value(row)
    if row.method == "txt":
        return DnsRecord("ownership", proven_name(row), "TXT", (value,), advice=_TXT)
    if row.method == "http":
        url = f"http://{row.host}{CHALLENGE_PATH}{row.token}"
        return DnsRecord("ownership", url, "HTTP", (value,), advice=_FILE)
    return None


def address_record(settings: Settings, tenant_id: str, row: DomainRow, name: str) -> DnsRecord:
    """Where the name is to lead: a CNAME, or addresses where DNS allows none."""
    purpose = "address" if name == row.host else "redirect"
    target = settings.app_host(tenant_id, row.app_id)
    if not is_apex(name):
        return DnsRecord(purpose, name, "CNAME", (target,), advice=_CNAME)  # type: ignore[arg-type]
    advice = (_ADDRESSES if settings.public_addresses else _ASK) % {"target": target}
    return DnsRecord(purpose, name, "A", settings.public_addresses, advice=advice)  # type: ignore[arg-type]


def expected_records(settings: Settings, tenant_id: str, row: DomainRow) -> list[DnsRecord]:
    """Everything that is to be there, nothing of it looked at."""
    proof = ownership_record(row)
    partner = partner_of(row.host, row.redirect_from)
    names = [row.host] if partner is None else [row.host, partner]
    return [*([proof] if proof else []), *(address_record(settings, tenant_id, row, name) for name in names)]
