from .documents import DocumentRequest as DocumentRequest
from .documents import extract_document as extract_document
from .overview import BackupOverview as BackupOverview
from .overview import describe_backup as describe_backup
from .places import download_backup as download_backup
from .places import list_place as list_place
from .tenants import extract_tenant as extract_tenant
