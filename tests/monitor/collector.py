"""A collector on loopback that parses exports with the classes of the OpenTelemetry project."""

from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from appliance.connectors.testing import LoopbackServer

TRACES, METRICS, LOGS = "/v1/traces", "/v1/metrics", "/v1/logs"


class Collector(LoopbackServer):
    """Accepts everything until another answer is configured."""

    def __init__(self) -> None:
        super().__init__()
        self.answer(TRACES, 200, b"")
        self.answer(METRICS, 200, b"")
        self.answer(LOGS, 200, b"")

    def spans(self) -> list[Span]:
        """All received spans, in order."""
        spans = []
        for each in self._received(TRACES):
            request = ExportTraceServiceRequest.FromString(each)
            spans += [span for resource in request.resource_spans for scoped in resource.scope_spans for span in scoped.spans]
        return spans

    def resource(self) -> dict[str, Any]:
        return to_dict(ExportTraceServiceRequest.FromString(self._received(TRACES)[0]).resource_spans[0].resource.attributes)

    def log_requests(self) -> list[ExportLogsServiceRequest]:
        """All received requests with log records, in order."""
        return [ExportLogsServiceRequest.FromString(each) for each in self._received(LOGS)]

    def log_records(self) -> list[LogRecord]:
        """All received log records, in order."""
        return [
            record
            for request in self.log_requests()
            for resource in request.resource_logs
            for scoped in resource.scope_logs
            for record in scoped.log_records
        ]

    def metrics(self) -> dict[str, Any]:
        """The last push of each metric, by name."""
        request = ExportMetricsServiceRequest.FromString(self._received(METRICS)[-1])
        return {
            each.name: each for resource in request.resource_metrics for scoped in resource.scope_metrics for each in scoped.metrics
        }

    def bodies(self) -> bytes:
        """All received bytes."""
        return b"".join(each.body for each in self.received)

    def _received(self, path: str) -> list[bytes]:
        return [each.body for each in self.received if each.path == path]


def to_dict(attributes: Any) -> dict[str, Any]:
    """Attributes as a dictionary."""
    pairs: list[KeyValue] = list(attributes)
    return {each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in pairs}
