"""The log of downloads: each one through a share, and those from public paths by the minute."""

import csv
import io
import ipaddress
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from appliance.core import clock, ids
from appliance.core.database import db
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import TenantScope
from appliance.documents.models import DocumentRow
from appliance.formats import FORMULA
from appliance.monitor import delete_older

from .delivery_models import DownloadRow

MINUTE = 60_000
COLUMNS = ("at", "share_id", "address", "agent", "revision", "count", "bytes", "outcome", "person")
MOST_EXPORTED = 100_000
_AGENTS = (
    ("bot", r"bot\b|crawler|spider|preview|facebookexternalhit|slurp"), ("Edge", r"\bEdg"), ("Firefox", r"\bFirefox/"),
    ("Opera", r"\bOPR/"), ("Chrome", r"\b(?:Headless)?Chrom"), ("Safari", r"\bSafari/"), ("curl", r"^curl/"), ("Wget", r"^Wget/"),
    ("Python", r"python|httpx|aiohttp"),
)  # fmt: skip
_KNOWN_AGENTS = [(family, re.compile(pattern, re.IGNORECASE)) for family, pattern in _AGENTS]


@dataclass(frozen=True)
class Download:
    """One download through a share; without `share_id` the `count` deliveries of one minute from the public path.

    `outcome` is `started` (also when the appliance ended before it knew), `complete`, `broken_off`, `failed` (before its first
    byte, and then it was not counted), `wrong_password` or `wrong_code`; `person` is the address that was proven where the
    share has an audience.
    """

    id: str
    at: int
    share_id: str | None
    revision: int
    count: int
    bytes: int
    address: str
    agent: str
    outcome: str
    person: str = ""


@dataclass(frozen=True)
class Origin:
    """Whom a request comes from, as far as it is kept: no whole address, no whole name of a browser, but the person who
    has proven an e-mail address."""

    address: str
    agent: str
    person: str = ""

    @classmethod
    def of(cls, address: str, user_agent: str) -> "Origin":
        return cls(shorten_address(address), agent_family(user_agent))


def shorten_address(address: str) -> str:
    """The network of an address: 24 bits of IPv4, 48 of IPv6; empty for what is no address."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return str(ipaddress.ip_network((found, 24 if found.version == 4 else 48), strict=False))


def agent_family(user_agent: str) -> str:
    """`Firefox`, `curl`, `bot`, …; `other` for what is not known."""
    return next((family for family, pattern in _KNOWN_AGENTS if pattern.search(user_agent[:500])), "other")


def note(scope: TenantScope, document_id: str, share_id: str, what: tuple[int, str], origin: Origin) -> str:
    """Inside a write: a line about a download of (revision, outcome); answers its id."""
    download_id, (revision, outcome) = ids.new("dwl"), what
    scope.insert(
        DownloadRow, id=download_id, document_id=document_id, share_id=share_id, at=clock.now_ms(), revision=revision,
        count=1, bytes=0, address=origin.address, agent=origin.agent, outcome=outcome, person=origin.person,
    )  # fmt: skip
    return download_id


def list_downloads(scope: TenantScope, document_id: str, request: PageRequest) -> Page[Download]:
    """The downloads of a document, newest first; NotFound."""
    scope.get(DocumentRow, id=document_id)
    query = scope.select(DownloadRow).where(DownloadRow.document_id == document_id)
    return paginate(query, request, {"at": DownloadRow.at, "id": DownloadRow.id}, default="-at").map(_download)


def export_downloads(scope: TenantScope, document_id: str) -> Iterator[str]:
    """The same as lines of CSV, oldest first, with a head; NotFound."""
    scope.get(DocumentRow, id=document_id)
    query = scope.select(DownloadRow).where(DownloadRow.document_id == document_id)
    line = io.StringIO()
    writer = csv.writer(line)
    writer.writerow(COLUMNS)
    for row in query.order_by(DownloadRow.at, DownloadRow.id).limit(MOST_EXPORTED).iterator():
        yield _taken(line)
        # A person may choose an address that a spreadsheet would take for a formula.
        person = f"'{row.person}" if row.person.startswith(FORMULA) else row.person
        writer.writerow([clock.rfc3339(row.at), *(getattr(row, name) for name in COLUMNS[1:-1]), person])
    yield _taken(line)


def _taken(line: io.StringIO) -> str:
    text = line.getvalue()
    line.seek(0)
    line.truncate()
    return text


def purge(before_ms: int) -> int:
    """Delete the lines that are older; answers how many."""
    return delete_older("document_download", "id", "at", before_ms)


class PublicDeliveries:
    """Counts what leaves from public paths, and writes it down now and then: a line for each minute and revision, so that the
    log grows with time and not with how often somebody asks.  What was counted in the last second is lost with a crash."""

    def __init__(self) -> None:
        self._counted: dict[tuple[str, str, int, int], list[int]] = {}
        self._lock = threading.Lock()

    def count(self, tenant_id: str, document_id: str, revision: int, size: int) -> None:
        """One delivery of so many bytes."""
        key = (tenant_id, document_id, revision, clock.now_ms() // MINUTE)
        with self._lock:
            found = self._counted.setdefault(key, [0, 0])
            found[0] += 1
            found[1] += size

    def write_down(self) -> None:
        """Add what has been counted to the log."""
        with self._lock:
            counted, self._counted = self._counted, {}
        def add() -> None:
            for key, (count, size) in counted.items():
                _add(key, count, size)

        if counted:
            db.write(add)


def _add(key: tuple[str, str, int, int], count: int, size: int) -> None:
    """A row of the minute; nothing when the document is gone."""
    tenant_id, document_id, revision, minute = key
    db.execute(
        "INSERT INTO document_download (tenant_id, id, document_id, at, revision, count, bytes, address, agent, outcome) "
        "SELECT tenant_id, ?, id, ?, ?, ?, ?, '', '', 'complete' FROM document WHERE tenant_id = ? AND id = ? "
        "ON CONFLICT (tenant_id, id) DO UPDATE SET count = document_download.count + excluded.count, "
        "bytes = document_download.bytes + excluded.bytes",
        (f"pub_{minute}_{revision}_{document_id}", minute * MINUTE, revision, count, size, tenant_id, document_id),
    )


def _download(row: DownloadRow) -> Download:
    return Download(
        row.id, row.at, row.share_id, row.revision, row.count, row.bytes, row.address, row.agent, row.outcome,
        row.person,
    )  # fmt: skip
