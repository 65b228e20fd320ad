"""The services that edges call, created once by the composition root and passed to every edge."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from appliance.agents import AgentRuns
from appliance.agents.skills import Skills
from appliance.agents.tools import Toolbox
from appliance.backups import BackupRunner
from appliance.backups.rehearsal import RehearsalRunner
from appliance.blobs import Blobs
from appliance.core.catalogues import Languages
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.database.presence import Presence, ServerCount
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
from appliance.monitor import AuditChecks, DiskGauge, KeyTraffic, Webhooks
from appliance.monitor.alerts import Alerts
from appliance.monitor.forwarding import AuditForwarding
from appliance.monitor.signed_trails import AuditKeys
from appliance.processes import ProcessFlow
from appliance.quotas import QuotaUsage
from appliance.sandbox import Pool
from appliance.solutions import Referrers, SolutionServices, Transfers
from appliance.tenants import LargeBodies, RateLimiter, Streams, Turns
from appliance.tenants.grants import ConfirmationDecisions
from appliance.tenants.keys import KeyRequests, RefusedRequests
from appliance.tenants.provisioning import Provisioning
from appliance.tenants.second_factors import SecondFactors
from appliance.tenants.sign_in import PasswordChecks, PasswordResets
from appliance.tenants.single_sign_on import Directories, ProxySignIn, SingleSignOn
from appliance.webapps import WebApps
from appliance.webapps.access import Visits
from appliance.webapps.certificates import Certificates
from appliance.webapps.domains import Domains
from appliance.webapps.publishing import Publisher
from appliance.webapps.traffic import RequestLog

from .health import Health


@dataclass(frozen=True)
class Limits:
    """What bounds the use of the appliance by each tenant, key and address; of several servers, each grants its share."""

    servers: ServerCount
    rates: RateLimiter
    streams: Streams
    large_bodies: LargeBodies
    starts: Turns
    password_checks: PasswordChecks
    refused_requests: RefusedRequests
    key_requests: KeyRequests
    quotas: QuotaUsage


@dataclass(frozen=True)
class GovernanceServices:
    """Policies and whatever is called under them; `replays` runs policies over past calls."""

    executor: GovernedExecutor
    governor: Governor
    policies: PolicyService
    invitations: Invitations
    confirmations: ConfirmationDecisions
    replays: TenantThreads


@dataclass(frozen=True)
class DocumentServices:
    """Documents, and how their contents come in and go out."""

    files: Documents
    uploads: Uploads
    previews: Previews
    publications: Publications
    shares: Shares


@dataclass(frozen=True)
class WebAppServices:
    """WebApps, their versions and visitors, and the domains that they are served on."""

    apps: WebApps
    publishing: Publisher
    visits: Visits
    requests: RequestLog
    domains: Domains
    certificates: Certificates


@dataclass(frozen=True)
class AgentServices:
    """Runs of agents, and what agents can use."""

    runs: AgentRuns
    skills: Skills
    tools: Toolbox


@dataclass(frozen=True)
class MonitorServices:
    """What is measured, and who is notified."""

    alerts: Alerts
    webhooks: Webhooks
    disk: DiskGauge
    key_traffic: KeyTraffic
    audit_checks: AuditChecks
    audit_keys: AuditKeys
    audit_forwardings: tuple[AuditForwarding, ...]


@dataclass(frozen=True)
class Services:
    """The services of one running appliance: first what the process has once, then each domain.

    `threads` is where edges run blocking operations; `assets` is the folder of prepared third-party front-end files;
    `presence` identifies this process in leases and idempotency records, and knows whether another process still runs.
    """

    config: Config
    sealer: Sealer
    presence: Presence
    queue: TaskQueue
    threads: ThreadPoolExecutor
    sandbox: Pool
    languages: Languages
    assets: Path
    limits: Limits
    single_sign_on: SingleSignOn
    directories: Directories
    proxy_sign_in: ProxySignIn
    second_factors: SecondFactors
    provisioning: Provisioning
    password_resets: PasswordResets

    processes: ProcessFlow
    integrations: Integrations
    llm: LanguageModels
    imports: FileImports
    blobs: Blobs
    governance: GovernanceServices
    documents: DocumentServices
    webapps: WebAppServices
    agents: AgentServices
    monitor: MonitorServices
    health: Health

    backups: BackupRunner
    rehearsals: RehearsalRunner
    transfers: Transfers
    solutions: SolutionServices
    referrers: Referrers
