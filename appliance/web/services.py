"""The services that edges call, created once by the composition root and passed to every edge."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from appliance.agents import AgentRuns
from appliance.agents.skills import Skills
from appliance.agents.tools import Toolbox
from appliance.backups import BackupUpkeep
from appliance.blobs import Blobs
from appliance.core.catalogues import Languages
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.queue import TaskQueue
from appliance.datapool import FileImports
from appliance.documents import Documents, Uploads
from appliance.documents.contents import Previews
from appliance.documents.sharing import Publications, Shares
from appliance.governance import Governor, Invitations
from appliance.governance.executor import GovernedExecutor, TenantThreads
from appliance.governance.policies import PolicyService
from appliance.integrations import Integrations
from appliance.llm import LanguageModels
from appliance.monitor import DiskGauge, KeyTraffic, Webhooks
from appliance.monitor.alerts import Alerts
from appliance.processes import ProcessFlow
from appliance.sandbox import Pool
from appliance.solutions import Referrers, Transfers
from appliance.tenants import LargeBodies, RateLimiter, Streams
from appliance.tenants.grants import ConfirmationDecisions
from appliance.tenants.sign_in import PasswordChecks
from appliance.webapps import WebApps
from appliance.webapps.access import Visits
from appliance.webapps.certificates import Certificates
from appliance.webapps.domains import Domains
from appliance.webapps.publishing import Publisher
from appliance.webapps.traffic import RequestLog


@dataclass(frozen=True)
class Services:
    """The services of one running appliance.

    `instance` identifies this process in leases and idempotency records, `is_alive` tells whether such a process still runs;
    `threads` is where edges run blocking operations; `assets` is the folder of prepared third-party front-end files.
    """

    config: Config
    sealer: Sealer
    queue: TaskQueue
    pool: Pool
    processes: ProcessFlow
    integrations: Integrations
    llm: LanguageModels
    executor: GovernedExecutor
    invitations: Invitations
    confirmations: ConfirmationDecisions
    policies: PolicyService
    governor: Governor
    rate_limiter: RateLimiter
    threads: ThreadPoolExecutor
    instance: str
    is_alive: Callable[[str], bool]
    assets: Path
    blobs: Blobs
    documents: Documents
    uploads: Uploads
    previews: Previews
    publications: Publications
    shares: Shares
    webapps: WebApps
    publishing: Publisher
    requests: RequestLog
    certificates: Certificates
    domains: Domains
    webhooks: Webhooks
    alerts: Alerts
    disk: DiskGauge
    key_traffic: KeyTraffic
    visits: Visits
    skills: Skills
    tools: Toolbox
    replays: TenantThreads
    backups: BackupUpkeep
    transfers: Transfers
    referrers: Referrers
    agents: AgentRuns
    languages: Languages
    imports: FileImports
    streams: Streams
    large_bodies: LargeBodies
    password_checks: PasswordChecks
