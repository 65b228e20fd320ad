"""The periodic jobs: what every process does for itself, and what processes with workers do for all."""

from appliance.connectors.development import Watch
from appliance.connectors.registry import CONNECTORS
from appliance.core import clock
from appliance.core.database import db, planner_statistics
from appliance.core.scheduling import BACKGROUND, LONG, SLOW, PeriodicJob, Rest
from appliance.datapool import StorageUsage, removal_due, remove_deleted
from appliance.documents import delete_expired_uploads, delete_overdue
from appliance.documents.contents import build_text_tasks
from appliance.documents.reviews import reviews
from appliance.formats import Formats
from appliance.governance import budgets
from appliance.governance.approvals import EmailDependencies, Notices, expire_due
from appliance.master_key import KeyRing, Resealer
from appliance.monitor import AUDIT_CHECK_SECONDS, check_space, rollup
from appliance.monitor import logs as log_lines
from appliance.monitor.alerts import evaluate_all, next_due, send_due
from appliance.processes.engine import caching, suspension
from appliance.quotas import notices
from appliance.solutions import delete_expired
from appliance.tenants import closed_tenants, idempotency
from appliance.tenants.keys import daily_quotas, key_addresses
from appliance.tenants.sign_in import counts
from appliance.tenants.single_sign_on import LOOK_SECONDS
from appliance.upgrade import delete_expired_copy
from appliance.web import Services
from appliance.webapps.files import Compression

from .authority import authority_upkeep
from .quotas import give_warnings, tidy


def own_upkeep(services: Services) -> list[PeriodicJob]:
    """The jobs of every process: its own counters and caches, its disk and data folder, and the publications, imports
    and jobs on tenants that it runs."""
    deliveries, publishing = services.documents.publications.deliveries, services.webapps.publishing
    requests, key_traffic, jobs = services.webapps.requests, services.monitor.key_traffic, services.transfers.runner
    quotas, logged = services.limits.rates.quotas, services.limits.key_requests
    keys = KeyRing(services.config, services.sealer)
    return [
        *_reloading(services),
        PeriodicJob("master-keys", 1.0, keys.refresh, LONG, rest=Rest(next_due=keys.next_due)),
        PeriodicJob("public-deliveries", 1.0, deliveries.flush, rest=Rest(has_work=deliveries.has_counts)),
        PeriodicJob("requests", 2.0, requests.flush, rest=Rest(has_work=requests.has_requests)),
        PeriodicJob("key-traffic", 2.0, key_traffic.flush, rest=Rest(has_work=key_traffic.has_requests)),
        PeriodicJob("key-quotas", 2.0, quotas.flush, rest=Rest(has_work=quotas.has_counts)),
        PeriodicJob("key-addresses", 2.0, key_addresses.store, rest=Rest(has_work=key_addresses.has_noted)),
        PeriodicJob("key-requests", 2.0, logged.flush, rest=Rest(has_work=logged.has_requests)),
        PeriodicJob("quota-warnings", 1.0, give_warnings, rest=Rest(has_work=notices.has_pending)),
        PeriodicJob("datapool-storage", 60.0, StorageUsage().update, SLOW),
        PeriodicJob("disk", 60.0, services.monitor.disk.measure, SLOW),
        PeriodicJob("room", 1.0, lambda: check_space(services.config.data), rest=Rest(has_work=db.is_full)),
        PeriodicJob("idempotency", 1.0, idempotency.settle_rest, rest=Rest(has_work=idempotency.is_any_unsettled)),
        PeriodicJob("upgrade-copy", 3600.0, lambda: delete_expired_copy(services.config), SLOW),
        PeriodicJob("transfers", 600.0, services.transfers.tidy, SLOW),
        PeriodicJob("tenant-jobs", 2.0, jobs.resume, rest=Rest(next_due=jobs.next_due)),
        PeriodicJob("blobs", 3600.0, services.blobs.collect, LONG),  # also the incoming files of this data folder
        PeriodicJob("imports", 2.0, services.imports.runner.resume, rest=Rest(next_due=services.imports.runner.next_due)),
        PeriodicJob("publishing", 2.0, publishing.resume, rest=Rest(next_due=publishing.next_due)),
    ]


def shared_upkeep(services: Services, formats: Formats) -> list[PeriodicJob]:
    """The jobs of processes with workers, such as closing calls of dead processes and deleting expired data."""
    queue, executor, templates = services.queue, services.governance.executor, services.sandbox.templates
    settings, checker = services.config.approvals, services.webapps.domains.checker
    backups, rehearsals, resealer = services.backups, services.rehearsals, Resealer(services.sealer)
    email = EmailDependencies(executor, services.integrations, services.languages)
    letters = Notices(email, settings.email_integration, settings.letter_seconds)
    return [
        *_gathering_statistics(),
        *_forwarding(services),
        *_following_directories(services),
        PeriodicJob("resealing", 1.0, resealer.work, BACKGROUND, rest=Rest(next_due=resealer.next_due)),
        PeriodicJob("calls", 5.0, lambda: executor.sweep(queue_is_empty=queue.depth() == 0)),
        PeriodicJob("domains", 2.0, checker.check_due, LONG, rest=Rest(next_due=checker.next_due)),
        PeriodicJob("due-backups", 60.0, backups.start_due, LONG),
        PeriodicJob("backups", 2.0, backups.resume, rest=Rest(next_due=backups.next_due)),
        PeriodicJob("due-rehearsals", 60.0, rehearsals.start_due, LONG),
        PeriodicJob("rehearsals", 2.0, rehearsals.resume, rest=Rest(next_due=rehearsals.next_due)),
        PeriodicJob("step-cache", 60.0, caching.purge),
        PeriodicJob("retention", 3600.0, lambda: delete_expired(services.config), SLOW),
        PeriodicJob("overdue-documents", 3600.0, lambda: delete_overdue(services.documents.files), SLOW),
        PeriodicJob("quarantine", 300.0, lambda: services.documents.files.scan_again(services.config.data), LONG),
        PeriodicJob("uploads", 3600.0, delete_expired_uploads, SLOW),
        PeriodicJob("sign-in-attempts", 60.0, lambda: counts.purge(clock.now_ms()), SLOW),
        PeriodicJob("key-usage", 3600.0, lambda: daily_quotas.purge(clock.now_ms()), SLOW),
        PeriodicJob("deleted-collections", 0.25, remove_deleted, LONG, rest=Rest(next_due=removal_due)),
        PeriodicJob("closed-tenants", 60.0, closed_tenants.delete_left, LONG),
        PeriodicJob("quotas", 60.0, lambda: tidy(services.limits.quotas, services.config), SLOW),
        PeriodicJob("reviews", 60.0, reviews.expire_reviews),
        PeriodicJob("governed-use", 3600.0, budgets.purge, SLOW),
        PeriodicJob("approvals", 10.0, expire_due),
        PeriodicJob("approval-notices", 2.0, letters.send_due, LONG, rest=Rest(next_due=letters.next_due)),
        PeriodicJob("audit-trails", AUDIT_CHECK_SECONDS, services.monitor.audit_checks.verify_all, BACKGROUND),
        PeriodicJob("sums", 60.0, rollup.roll_up, SLOW),
        PeriodicJob("log-words", 60.0, log_lines.index_older, SLOW),
        PeriodicJob("alerts", 10.0, lambda: evaluate_all(services.monitor.alerts.facts), SLOW),
        PeriodicJob("alert-notices", 2.0, lambda: send_due(services.monitor.alerts.notifier), LONG, rest=Rest(next_due=next_due)),
        Compression(services.blobs),
        PeriodicJob("templates", 3600.0, lambda: templates.forget(suspension.templates_in_use()), SLOW),
        *authority_upkeep(services.config),
        *build_text_tasks(services.blobs, formats),
    ]


def _gathering_statistics() -> list[PeriodicJob]:
    """A job that gathers statistics of a server's growing tables; SQLite needs none."""
    return [PeriodicJob("planner-statistics", 5.0, planner_statistics.gather, SLOW)] if db.is_shared() else []


def _forwarding(services: Services) -> list[PeriodicJob]:
    """A job for each system that gets the entries of audit trails."""
    return [
        PeriodicJob(f"audit-to-{each.destination.name}", 1.0, each.forward, LONG, rest=Rest(next_due=each.next_due))
        for each in services.monitor.audit_forwardings
    ]


def _following_directories(services: Services) -> list[PeriodicJob]:
    """A job that disables people who have left their directory, if there is one."""
    directories = services.directories
    return [PeriodicJob("directories", LOOK_SECONDS, directories.check_people, LONG)] if directories.clients else []


def _reloading(services: Services) -> list[PeriodicJob]:
    """A job that reloads changed connectors, if `connectors.reload` is on (for development)."""
    if not services.config.connectors.reload:
        return []
    watch = Watch(services.config.data / CONNECTORS)

    def look() -> None:
        if (registry := watch.changed()) is not None:
            services.integrations.registry = registry

    return [PeriodicJob("connectors", 1.0, look, LONG)]
