"""The log of downloads: one entry per download through a share, and one per minute for public paths."""

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
from appliance.formats import FORMULA_PREFIXES
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
    """A download through a share; without `share_id`, the `count` deliveries from the public path within a minute.

    `outcome` is `started` (also if the appliance stopped before the end), `complete`, `broken_off`, `failed` (before the first
    byte, so not counted), `wrong_password` or `wrong_code`. `person` is the verified e-mail address, for shares with an
    audience.
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
    """The stored origin of a request: the network instead of the address, the browser family instead of the user agent, and the
    person who verified an e-mail address."""

    address: str
    agent: str
    person: str = ""

    @classmethod
    def of(cls, address: str, user_agent: str) -> "Origin":
        return cls(shorten_address(address), agent_family(user_agent))


def shorten_address(address: str) -> str:
    """The network of an address (/24 for IPv4, /48 for IPv6); empty if it is not an IP address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    return str(ipaddress.ip_network((parsed, 24 if parsed.version == 4 else 48), strict=False))


def agent_family(user_agent: str) -> str:
    """`Firefox`, `curl`, `bot`, …; `other` when unknown."""
    return next((family for family, pattern in _KNOWN_AGENTS if pattern.search(user_agent[:500])), "other")


def record(scope: TenantScope, document_id: str, share_id: str, result: tuple[int, str], origin: Origin) -> str:
    """Inside a write: log a download with its (revision, outcome); returns its id."""
    download_id, (revision, outcome) = ids.new("dwl"), result
    scope.insert(
        DownloadRow, id=download_id, document_id=document_id, share_id=share_id, at=clock.now_ms(), revision=revision,
        count=1, bytes=0, address=origin.address, agent=origin.agent, outcome=outcome, person=origin.person,
    )  # fmt: skip
    return download_id


def list_downloads(scope: TenantScope, document_id: str, request: PageRequest) -> Page[Download]:
    """The downloads of a document, newest first; NotFound."""
    scope.get(DocumentRow, id=document_id)
    query = scope.select(DownloadRow).where(DownloadRow.document_id == document_id)
    return paginate(query, request, {"at": DownloadRow.at, "id": DownloadRow.id}, default="-at").map(_to_download)


def export_downloads(scope: TenantScope, document_id: str) -> Iterator[str]:
    """The same as CSV lines with a header, oldest first; NotFound."""
    scope.get(DocumentRow, id=document_id)
    query = scope.select(DownloadRow).where(DownloadRow.document_id == document_id)
    line = io.StringIO()
    writer = csv.writer(line)
    writer.writerow(COLUMNS)
    for row in query.order_by(DownloadRow.at, DownloadRow.id).limit(MOST_EXPORTED).iterator():
        yield _drain(line)
        # An address chosen by a person could be interpreted as a formula by a spreadsheet.
        person = f"'{row.person}" if row.person.startswith(FORMULA_PREFIXES) else row.person
        writer.writerow([clock.rfc3339(row.at), *(getattr(row, name) for name in COLUMNS[1:-1]), person])
    yield _drain(line)


def _drain(line: io.StringIO) -> str:
    text = line.getvalue()
    line.seek(0)
    line.truncate()
    return text


def purge(before_ms: int) -> int:
    """Delete older entries; returns how many."""
    return delete_older("document_download", "id", "at", before_ms)


class PublicDeliveries:
    """Counts public deliveries, and stores them periodically as one entry per minute and revision, so that the log does not
    grow with the number of requests. A crash loses about a second of counts."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int, int], list[int]] = {}
        self._lock = threading.Lock()

    def count(self, tenant_id: str, document_id: str, revision: int, size: int) -> None:
        """Count one delivery of `size` bytes."""
        key = (tenant_id, document_id, revision, clock.now_ms() // MINUTE)
        with self._lock:
            totals = self._counts.setdefault(key, [0, 0])
            totals[0] += 1
            totals[1] += size

    def has_counts(self) -> bool:
        """Whether there is anything to flush."""
        return bool(self._counts)

    def flush(self) -> None:
        """Add the counts to the log."""
        with self._lock:
            counts, self._counts = self._counts, {}
        def add() -> None:
            for key, (count, size) in counts.items():
                _add(key, count, size)

        if counts:
            db.write(add)


def _add(key: tuple[str, str, int, int], count: int, size: int) -> None:
    """Add to the entry of the minute; does nothing when the document was deleted."""
    tenant_id, document_id, revision, minute = key
    db.execute(
        "INSERT INTO document_download (tenant_id, id, document_id, at, revision, count, bytes, address, agent, outcome) "
        "SELECT tenant_id, ?, id, ?, ?, ?, ?, '', '', 'complete' FROM document WHERE tenant_id = ? AND id = ? "
        "ON CONFLICT (tenant_id, id) DO UPDATE SET count = document_download.count + excluded.count, "
        "bytes = document_download.bytes + excluded.bytes",
        (f"pub_{minute}_{revision}_{document_id}", minute * MINUTE, revision, count, size, tenant_id, document_id),
    )


def _to_download(row: DownloadRow) -> Download:
    return Download(
        id=row.id, at=row.at, share_id=row.share_id, revision=row.revision, count=row.count, bytes=row.bytes, address=row.address,
        agent=row.agent, outcome=row.outcome, person=row.person,
    )  # fmt: skip
