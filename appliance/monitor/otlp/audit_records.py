"""Sends records of audit trails to a collector as OTLP logs.

What the collector does not take with a status of 2xx waits.  Records that it takes in part (`partial_success`) are not sent again,
as the specification of OTLP demands: they are refused for good, and counted.
"""

import logging
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime

import httpx
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from appliance.core import clock
from appliance.core.config.sections import Otlp
from appliance.monitor.forwarding.records import NOTHING_REJECTED, AuditRecord, RecordsRefused, Rejection, Undelivered

from . import wire
from .client import ANSWER_SECONDS, make_client

log = logging.getLogger(__name__)
MOST_ANSWER_BYTES, MOST_REASON = 64 << 10, 300
_ABOUT_RECORDS = frozenset({400, 413, 422})


class AuditCollector:
    """The collector of `audit.otlp`; `settings` has its endpoint, headers and authorities, `resource` identifies the appliance."""

    name = "otlp"

    def __init__(self, settings: Otlp, resource: Mapping[str, str]) -> None:
        self.address = settings.endpoint
        self._settings, self._resource = settings, resource
        self._client: httpx.Client | None = None

    def check(self) -> None:
        """Send no records, which a collector accepts as it would accept some; Undelivered."""
        self._post([])

    def begin(self) -> None:
        """Nothing: the client opens connections again."""

    def send(self, records: Sequence[AuditRecord]) -> Rejection:
        """Send the records; returns how many the collector has refused for good, and why.  Undelivered, RecordsRefused."""
        partial = self._post(records).partial_success
        rejected = max(0, min(partial.rejected_log_records, len(records)))
        if not rejected:
            return NOTHING_REJECTED
        first, last = records[0], records[-1]
        reason = " ".join(partial.error_message.replace("\0", " ").split())[:MOST_REASON]
        message = "audit.otlp: the collector has refused %s of the entries %s to %s of the audit trail of %s: %s"
        log.error(message, rejected, first.seq, last.seq, first.tenant_id, reason or "it does not say why")
        return Rejection(rejected, reason)

    def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _post(self, records: Sequence[AuditRecord]) -> ExportLogsServiceResponse:
        if self._client is None:
            self._client = make_client(self._settings)
        content = wire.encode_audit_records(self._resource, records, clock.now_ms() * 1_000_000)
        try:
            with self._client.stream("POST", f"{self.address.rstrip('/')}/v1/logs", content=content) as response:
                return _read_answer(response)
        except httpx.HTTPError as error:
            raise Undelivered(f"cannot be reached ({type(error).__name__}: {error})") from error


def _read_answer(response: httpx.Response) -> ExportLogsServiceResponse:
    """The collector's message; one that says nothing if the body is of another kind than the request was."""
    if not response.is_success:
        kind = RecordsRefused if response.status_code in _ABOUT_RECORDS else Undelivered
        raise kind(f"answered {response.status_code}", read_retry_after(response.headers.get("Retry-After", "")))
    if not response.headers.get("Content-Type", "").startswith("application/x-protobuf"):
        return ExportLogsServiceResponse()
    content, deadline = b"", clock.monotonic() + ANSWER_SECONDS
    for piece in response.iter_bytes():
        content += piece
        if len(content) > MOST_ANSWER_BYTES:
            raise Undelivered("answered more than an answer of OTLP has")
        if clock.monotonic() > deadline:  # the client's limit is for each piece
            raise Undelivered(f"did not end its answer within {ANSWER_SECONDS:.0f} s")
    try:
        return wire.decode_logs_answer(content)
    except ValueError as error:
        raise Undelivered("answered with a message that is none of OTLP") from error


def read_retry_after(value: str) -> int:
    """The milliseconds that a `Retry-After` asks to wait, from a number of seconds or a date; 0 without one."""
    try:
        if value.strip().isdecimal():
            return int(value) * 1000
        return max(0, int(parsedate_to_datetime(value).timestamp() * 1000) - clock.now_ms())
    except (ValueError, OverflowError):
        return 0
