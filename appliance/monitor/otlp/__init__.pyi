from .audit_records import AuditCollector as AuditCollector
from .exporter import Exporter as Exporter
