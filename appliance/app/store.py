"""Opens the data folder, its key and its database, for commands and for the appliance itself."""

from appliance import migrations
from appliance.backups import empty_tenant, end_work
from appliance.blobs import note_installation
from appliance.core.config import Config
from appliance.core.crypto import Sealer
from appliance.core.database import db
from appliance.core.events import hub
from appliance.datapool import service as datapool
from appliance.documents import check_tenant_not_retained
from appliance.documents import service as documents
from appliance.master_key import open_sealer
from appliance.monitor import logs as log_lines
from appliance.tenants import people
from appliance.tenants import service as tenants
from appliance.upgrade import note_use, refuse_in_progress
from appliance.webapps.access import forget_person
from appliance.webapps.domains import service as domains

from .parts import compare_new_passwords


def open_store(config: Config) -> Sealer:
    """Create the data folder and key if needed, open and migrate the database, and return the sealer."""
    config.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    refuse_in_progress(config.data)
    note_use(config.data)
    db.open_database(config.database_url, config.storage.writers)
    try:
        migrations.remove_mark()
        sealer = open_sealer(config)
    except BaseException:
        db.close_database()
        raise
    note_installation(config, sealer)
    compare_new_passwords(config)
    hub.subscribe(tenants.TenantDeletionStarted, _check_deletion)
    hub.subscribe(tenants.TenantClosed, _end_tenant)
    hub.subscribe(tenants.TenantEmptying, _empty_tenant)
    hub.subscribe(tenants.TenantDeleted, _forget_tenant)
    hub.subscribe(people.SignInsEnded, _end_visits)
    return sealer


def _check_deletion(event: tenants.TenantDeletionStarted) -> None:
    check_tenant_not_retained(event.scope)


def _end_tenant(event: tenants.TenantClosed) -> None:
    domains.forget_tenant(event.scope)
    end_work(event.scope)


def _empty_tenant(event: tenants.TenantEmptying) -> None:
    empty_tenant(event.scope)


def _forget_tenant(event: tenants.TenantDeleted) -> None:
    for forget in (datapool.drop_tenant_tables, documents.forget_tenant, log_lines.remove_from_index, domains.forget_tenant):
        forget(event.scope)


def _end_visits(event: people.SignInsEnded) -> None:
    forget_person(event.user_id)
