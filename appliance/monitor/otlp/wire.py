"""Encodes spans, metrics and records of audit trails as OTLP messages, with the classes that the OpenTelemetry project generates.

Its SDK and exporter are not used: they are seven packages with their own threads, queues and environment variables, and cannot
export histograms that were counted elsewhere.
"""

from collections.abc import Iterable, Mapping

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1 import trace_pb2

from appliance.monitor import metrics
from appliance.monitor.forwarding.records import AuditRecord
from appliance.monitor.metrics import SECONDS, Sample
from appliance.monitor.spans import Span

About = Mapping[str, str | int]

_SCOPE = InstrumentationScope(name="gos")
_KINDS = {
    "internal": trace_pb2.Span.SPAN_KIND_INTERNAL, "server": trace_pb2.Span.SPAN_KIND_SERVER,
    "client": trace_pb2.Span.SPAN_KIND_CLIENT,
}  # fmt: skip
_FAILED = trace_pb2.Status(code=trace_pb2.Status.STATUS_CODE_ERROR)


def encode_traces(resource: About, spans: Iterable[Span]) -> bytes:
    """Encode spans as an ExportTraceServiceRequest."""
    scoped = trace_pb2.ScopeSpans(scope=_SCOPE, spans=map(_span, spans))
    spans_message = trace_pb2.ResourceSpans(resource=_resource(resource), scope_spans=[scoped])
    return bytes(ExportTraceServiceRequest(resource_spans=[spans_message]).SerializeToString())


def encode_metrics(resource: About, registry: metrics.Registry, began_ns: int, now_ns: int) -> bytes:
    """Encode all metrics since `began_ns` as an ExportMetricsServiceRequest."""
    scoped = otlp.ScopeMetrics(scope=_SCOPE, metrics=[_metric(each, began_ns, now_ns) for each in registry.samples()])
    metrics_message = otlp.ResourceMetrics(resource=_resource(resource), scope_metrics=[scoped])
    return bytes(ExportMetricsServiceRequest(resource_metrics=[metrics_message]).SerializeToString())


def encode_audit_records(resource: About, records: Iterable[AuditRecord], now_ns: int) -> bytes:
    """Encode records of audit trails, which are sent at `now_ns`, as an ExportLogsServiceRequest."""
    scoped = logs_pb2.ScopeLogs(scope=_SCOPE, log_records=[_log_record(each, now_ns) for each in records])
    message = logs_pb2.ResourceLogs(resource=_resource(resource), scope_logs=[scoped])
    return bytes(ExportLogsServiceRequest(resource_logs=[message]).SerializeToString())


def decode_logs_answer(content: bytes) -> ExportLogsServiceResponse:
    """Decode what a collector answers to records; ValueError if it is no such message."""
    answer = ExportLogsServiceResponse()
    try:
        answer.ParseFromString(content)
    except DecodeError as error:
        raise ValueError("no answer of OTLP") from error
    return answer


def _log_record(record: AuditRecord, now_ns: int) -> logs_pb2.LogRecord:
    return logs_pb2.LogRecord(
        time_unix_nano=record.at * 1_000_000, observed_time_unix_nano=now_ns, severity_number=logs_pb2.SEVERITY_NUMBER_INFO,
        severity_text="INFO", body=_value(record.line), attributes=_attributes(record.members()), event_name="gos.audit",
    )  # fmt: skip


def _resource(about: About) -> Resource:
    return Resource(attributes=_attributes(about))


def _span(span: Span) -> trace_pb2.Span:
    began = span.began_ms * 1_000_000
    about = {**span.about, "error.type": span.failed} if span.failed else span.about
    return trace_pb2.Span(
        trace_id=bytes.fromhex(span.place.trace), span_id=bytes.fromhex(span.place.span), parent_span_id=bytes.fromhex(span.parent),
        name=_clean(span.name), kind=_KINDS[span.kind], start_time_unix_nano=began,
        end_time_unix_nano=began + max(0, int(span.took_ms * 1_000_000)), attributes=_attributes(about),
        status=_FAILED if span.failed else None,
    )  # fmt: skip


def _metric(sample: Sample, began_ns: int, now_ns: int) -> otlp.Metric:
    message = otlp.Metric(name=sample.name, description=sample.help)
    for key, value in sample.values:
        about = _attributes(dict(zip(sample.labels, key, strict=True)))
        if sample.kind == "histogram":
            counts, total = value
            message.histogram.data_points.add(
                attributes=about, start_time_unix_nano=began_ns, time_unix_nano=now_ns, count=sum(counts), sum=total,
                bucket_counts=counts, explicit_bounds=SECONDS,
            )  # fmt: skip
        else:
            points = message.gauge.data_points if sample.kind == "gauge" else message.sum.data_points
            points.add(attributes=about, start_time_unix_nano=began_ns, time_unix_nano=now_ns, as_double=value)
    if sample.kind == "histogram":
        message.histogram.aggregation_temporality = otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
    elif sample.kind != "gauge":
        message.sum.aggregation_temporality = otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
        message.sum.is_monotonic = True
    return message


def _attributes(about: About) -> list[KeyValue]:
    return [KeyValue(key=name, value=_value(value)) for name, value in about.items()]


def _value(value: str | int) -> AnyValue:
    return AnyValue(string_value=_clean(value)) if isinstance(value, str) else AnyValue(int_value=value)


def _clean(text: str) -> str:
    """Replace lone surrogates, which have no UTF-8 encoding and which the message would refuse."""
    return text.encode("utf-8", "replace").decode()
