"""Every column with sealed values, as their packages declare them."""

from appliance.backups.jobs import SEALED_COLUMNS as JOB_COLUMNS
from appliance.core.crypto import SealedColumn
from appliance.governance import SEALED_COLUMNS as GOVERNANCE_COLUMNS
from appliance.integrations import SEALED_COLUMNS as INTEGRATION_COLUMNS
from appliance.llm import SEALED_COLUMNS as LLM_COLUMNS
from appliance.monitor import SEALED_COLUMNS as MONITOR_COLUMNS
from appliance.processes.engine import SEALED_COLUMNS as PROCESS_COLUMNS
from appliance.tenants import SEALED_COLUMNS as TENANT_COLUMNS
from appliance.webapps.certificates import SEALED_COLUMNS as CERTIFICATE_COLUMNS

SEALED_COLUMNS: tuple[SealedColumn, ...] = (
    *TENANT_COLUMNS, *INTEGRATION_COLUMNS, *MONITOR_COLUMNS, *LLM_COLUMNS, *GOVERNANCE_COLUMNS, *CERTIFICATE_COLUMNS,
    *PROCESS_COLUMNS, *JOB_COLUMNS,
)  # fmt: skip
