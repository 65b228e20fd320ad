"""Builds the parts of the appliance in three stages: mechanisms, the domains that use them, and what edges call."""

from dataclasses import dataclass
from pathlib import Path

from appliance.agents import AgentRuns
from appliance.agents.skills import service as skills
from appliance.agents.tools import Toolbox
from appliance.backups import BackupRunner
from appliance.backups.jobs import JobRunner
from appliance.backups.rehearsal import RehearsalRunner
from appliance.blobs import Blobs, Places, installation_id
from appliance.connectors import folder_of
from appliance.connectors.egress import Egress
from appliance.connectors.registry import connector_packages
from appliance.core import catalogues, clock
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.database.presence import Presence, ServerCount, open_presence
from appliance.core.interface import ui_folder
from appliance.core.queue import TaskQueue
from appliance.core.request_pools import open_request_pool
from appliance.datapool import FileImports
from appliance.datapool import service as datapool
from appliance.documents import Uploads
from appliance.documents import service as documents
from appliance.documents.contents import Previews, incoming_blobs
from appliance.documents.reviews import reviews
from appliance.documents.sharing import DeliveryPolicy, Publications, Shares
from appliance.formats import Formats
from appliance.governance import Governor, Invitations
from appliance.governance.approvals import ActionApprovals, EmailDependencies, request_limits
from appliance.governance.executor import REPLAYS, CallDocumentsFactory, GovernedExecutor, Instance, TenantThreads
from appliance.governance.executor import TASK as CALL_TASK
from appliance.governance.policies import PolicyService
from appliance.integrations import Integrations, SharedCredentials
from appliance.llm import LanguageModels
from appliance.monitor import AuditChecks, DiskGauge, KeyTraffic, Webhooks, audit
from appliance.monitor.alerts import Alerts
from appliance.monitor.signed_trails import AuditKeys
from appliance.processes import ProcessFlow
from appliance.processes.host import DataPoolCalls, DocumentReading, IntegrationCalls, ModelCalls, Ports
from appliance.processes.scheduling import backlog
from appliance.quotas import limits
from appliance.sandbox import Pool, default_folder
from appliance.solutions import Referrers, SolutionServices, Transfers
from appliance.tenants import LargeBodies, RateLimiter
from appliance.tenants import service as tenants
from appliance.tenants.keys import KeyRequests, RefusedRequests, lineage
from appliance.tenants.provisioning import Provisioning
from appliance.tenants.second_factors import SecondFactors
from appliance.tenants.sign_in import PasswordChecks, PasswordResets, open_counts
from appliance.tenants.single_sign_on import Directories, ProxySignIn, SingleSignOn
from appliance.web import (
    AgentServices,
    DocumentServices,
    GovernanceServices,
    Limits,
    MonitorServices,
    Services,
    WebAppServices,
    make_start_turns,
)
from appliance.webapps import WebApps
from appliance.webapps.access import Visits
from appliance.webapps.certificates import Certificates
from appliance.webapps.domains import service as domains
from appliance.webapps.publishing import Publisher

from .agents import AgentDependencies, make_agents
from .alerting import AlertDependencies, make_alerts
from .audit_forwarding import make_forwardings
from .authority import make_confirmations
from .health import make_health
from .parts import (
    authorities,
    blob_holders,
    identity_egress,
    make_cached_places,
    make_formats,
    make_integrations,
    make_language_models,
    make_places,
    make_request_log,
    make_streams,
    make_webapps,
    place_holders,
)
from .quotas import make_usage
from .sandboxes import runtimes_folder
from .store import open_store


@dataclass(frozen=True)
class Mechanisms:
    """What every domain builds on: storage, queue, sandbox, formats and the way to the network.

    `incoming` stores the contents of documents, which a scanner checks first if there is one.  `places` has no cache, so that
    backups do not displace what others read often.
    """

    sealer: Sealer
    places: Places
    blobs: Blobs
    incoming: Blobs
    presence: Presence
    queue: TaskQueue
    sandbox: Pool
    formats: Formats
    egress: Egress


@dataclass(frozen=True)
class DomainParts:
    """What the appliance can do, connected, and not yet grouped for edges."""

    integrations: Integrations
    models: LanguageModels
    files: documents.Documents
    webapps: WebApps
    custom_domains: domains.Domains
    policies: PolicyService
    actions: ActionApprovals
    governor: Governor
    executor: GovernedExecutor
    processes: ProcessFlow
    skills: skills.Skills
    toolbox: Toolbox
    agents: AgentRuns
    email: EmailDependencies
    webhooks: Webhooks
    disk: DiskGauge
    alerts: Alerts


def make_mechanisms(config: Config, sandbox: Pool) -> Mechanisms:
    """Open the store, set the limits that are global to this process, and build the mechanisms."""
    sealer = open_store(config)
    _set_limits(config)
    audit.set_account_lookup(lineage.find_account_of)
    places = make_places(config, installation_id(sealer))
    cached, holders = make_cached_places(config, places), blob_holders()
    keep_ms = clock.parse_duration(config.blobs.keep_deleted) if config.blobs.keep_deleted else 0
    return Mechanisms(
        sealer=sealer, places=places, blobs=Blobs(cached, holders, place_holders(), keep_ms=keep_ms),
        incoming=incoming_blobs(config.scan, cached, holders),
        presence=open_presence(config.data / "workers"), queue=TaskQueue(), sandbox=sandbox,
        formats=make_formats(config), egress=Egress.of(config.egress.allow, authorities(config)),
    )  # fmt: skip


def make_domains(config: Config, mechanisms: Mechanisms) -> DomainParts:
    """Build the domains; each gets the mechanisms and the lower domains that it uses."""
    sealer, presence, queue = mechanisms.sealer, mechanisms.presence, mechanisms.queue
    integrations, models = make_integrations(config, sealer), make_language_models(config, sealer)
    files = documents.Documents(mechanisms.incoming)
    policies, actions = PolicyService(), ActionApprovals(sealer)
    governor = Governor(policies, actions, SharedCredentials(integrations.ready).kin_of)
    instance = Instance(presence.instance, queue.enqueue, presence.is_alive)
    executor = GovernedExecutor(integrations, governor, instance, CallDocumentsFactory(files, config.limits.upload_mb << 20))
    queue.declare(CALL_TASK, lambda tenant_id, call_id: executor.run_queued(tenants.system_scope(tenant_id), call_id))
    toolbox, library = Toolbox(governor), skills.Skills(mechanisms.blobs)
    agents = make_agents(config, presence, queue, models, AgentDependencies(toolbox, governor, actions, library))
    ports = Ports(
        data=DataPoolCalls(), actions=IntegrationCalls(executor), sealer=sealer, documents=files, formats=mechanisms.formats,
        polls=executor, find_actions=integrations.find_actions,
        models=ModelCalls(models, DocumentReading(files, mechanisms.formats).read), agents=agents.steps,
    )  # fmt: skip
    processes = ProcessFlow(config, presence, mechanisms.sandbox, queue, ports)
    email = EmailDependencies(executor, integrations, _languages(config))
    hooks, disk = Webhooks(sealer, mechanisms.egress), DiskGauge(config.data, mechanisms.blobs.stored_bytes)
    return DomainParts(
        integrations=integrations, models=models, files=files, webapps=make_webapps(config, mechanisms.blobs),
        custom_domains=domains.build_domains(config, mechanisms.egress), policies=policies, actions=actions, governor=governor,
        executor=executor, processes=processes, skills=library, toolbox=toolbox, agents=agents, email=email, webhooks=hooks,
        disk=disk, alerts=make_alerts(config, processes, email, AlertDependencies(hooks, disk)),
    )  # fmt: skip


def make_services(config: Config, mechanisms: Mechanisms, parts: DomainParts) -> Services:
    """Group what edges call, and build what edges alone use."""
    sealer, presence, blobs = mechanisms.sealer, mechanisms.presence, mechanisms.blobs
    apps, files, servers = parts.webapps, parts.files, ServerCount()
    publisher = Publisher(apps, presence.instance, presence.is_alive)
    solutions = SolutionServices(mechanisms.sandbox, parts.integrations, apps, publisher, parts.skills)
    jobs = JobRunner(sealer, presence.instance, presence.is_alive)
    delivery = DeliveryPolicy(blobs, reviews)
    return Services(
        config=config, sealer=sealer, presence=presence, queue=mechanisms.queue, sandbox=mechanisms.sandbox,
        languages=parts.email.languages, threads=open_request_pool(more=config.queue.workers),
        assets=(runtimes_folder(config) or default_folder()) / "assets",
        limits=Limits(
            servers=servers, rates=RateLimiter(servers), streams=make_streams(config, servers), large_bodies=LargeBodies(),
            starts=make_start_turns(), password_checks=PasswordChecks(open_counts), refused_requests=RefusedRequests(),
            key_requests=KeyRequests(), quotas=make_usage(),
        ),
        single_sign_on=SingleSignOn(config, identity_egress(config), sealer),
        directories=Directories(config, identity_egress(config)),
        proxy_sign_in=ProxySignIn(config, sealer),
        second_factors=SecondFactors(config, sealer, open_counts),
        provisioning=Provisioning(config, sealer, RateLimiter(servers)),
        password_resets=PasswordResets(config, sealer, parts.email.languages, open_counts),
        processes=parts.processes, integrations=parts.integrations, llm=parts.models, blobs=blobs,
        imports=FileImports(mechanisms.formats, blobs, presence.instance, presence.is_alive),
        governance=GovernanceServices(
            executor=parts.executor, governor=parts.governor, policies=parts.policies,
            invitations=Invitations(config, sealer, parts.email), confirmations=make_confirmations(apps),
            replays=TenantThreads(REPLAYS),
        ),
        documents=DocumentServices(
            files=files, uploads=Uploads(files, mechanisms.incoming, config.limits.document_mb << 20),
            previews=Previews(blobs, mechanisms.formats, files), publications=Publications(delivery),
            shares=Shares(delivery, sealer),
        ),
        webapps=WebAppServices(
            apps=apps, publishing=publisher, visits=Visits(sealer), requests=make_request_log(config, servers),
            domains=parts.custom_domains, certificates=Certificates(sealer),
        ),
        agents=AgentServices(runs=parts.agents, skills=parts.skills, tools=parts.toolbox),
        monitor=MonitorServices(
            alerts=parts.alerts, webhooks=parts.webhooks, disk=parts.disk, key_traffic=KeyTraffic(), audit_checks=AuditChecks(),
            audit_keys=AuditKeys(sealer), audit_forwardings=make_forwardings(config, sealer, presence.instance),
        ),
        backups=BackupRunner(config, mechanisms.places, sealer, instance=presence.instance, is_alive=presence.is_alive),
        rehearsals=RehearsalRunner(config, instance=presence.instance, is_alive=presence.is_alive),
        solutions=solutions, health=make_health(config),
        transfers=Transfers(config, mechanisms.places, sealer, solutions, jobs),
        referrers=Referrers(parts.integrations, parts.models, apps, parts.alerts, config.approvals.email_integration),
    )  # fmt: skip


def _set_limits(config: Config) -> None:
    """Set the limits that are global to this process."""
    request_limits.configure(of_tenant=config.approvals.open_per_tenant, of_requester=config.approvals.open_per_requester)
    bounds = config.limits
    datapool.configure(entity_kb=bounds.entity_kb, query_rows=bounds.query_rows, query_seconds=bounds.query_seconds)
    limits.configure(config)
    backlog.configure(queued=bounds.queued_executions, descendants=bounds.execution_descendants)


def _languages(config: Config) -> catalogues.Languages:
    """The languages of the pages.

    Translations in the operator's data folder take precedence over ours, and ours over those that connectors provide.
    """
    folders = [folder / catalogues.FOLDER for folder in (ui_folder(), config.data)]

    def provided() -> list[Path]:
        folders = dict.fromkeys(map(folder_of, connector_packages()))
        return [folder for folder in folders if folder is not None]

    return catalogues.load_languages(folders, config.console.language, provided)
