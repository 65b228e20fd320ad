"""Whatever is sealed and stored is in a column that a rotation of the master key seals again."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance import migrations
from appliance.backups import backup_jobs
from appliance.backups.jobs import records
from appliance.core.crypto import SealedColumn
from appliance.core.database import db
from appliance.core.scope import TenantScope
from appliance.governance.approvals import action_approvals
from appliance.governance.executor import executor
from appliance.integrations import connecting, sealed_settings, tokens
from appliance.llm import service as llm
from appliance.master_key.columns import SEALED_COLUMNS
from appliance.monitor import signed_trails, webhooks
from appliance.processes.engine import suspension
from appliance.tenants import service as tenants
from appliance.tenants.second_factors import apps
from appliance.webapps.certificates import service as certificates
from tests.architecture.source_tree import name_of, python_files, tree_of
from tests.upgrade.make import list_tables

SEALING = {
    "appliance/backups/backup_runner.py": "backup_job.sealed",
    "appliance/backups/envelope.py": "a file, with the key of its passphrase",
    "appliance/backups/importing/preparation.py": "integration.sealed, and webhook.sealed",
    "appliance/backups/jobs/exports.py": "tenant_job.sealed",
    "appliance/backups/jobs/runner.py": "tenant_job.sealed",
    "appliance/backups/jobs/uploads.py": "tenant_job.sealed",
    "appliance/console/frame/recovery_codes.py": "a page in a browser",
    "appliance/console/frame/saved_forms.py": "a page in a browser, and step_up.form",
    "appliance/console/pages/integrations/settings_form.py": "a page in a browser",
    "appliance/core/crypto/sealing.py": "master_key.digests",
    "appliance/governance/approvals/action_approvals.py": "approval.sealed",
    "appliance/governance/executor/executor.py": "integration_call.pending",
    "appliance/integrations/connecting.py": "integration_consent.sealed",
    "appliance/integrations/sealed_settings.py": "integration.sealed",
    "appliance/integrations/service.py": "integration.sealed",
    "appliance/integrations/tokens.py": "integration_token.sealed",
    "appliance/llm/service.py": "llm_profile.sealed",
    "appliance/master_key/resealing.py": "what was sealed before",
    "appliance/monitor/signed_trails/keys.py": "audit_key.sealed",
    "appliance/monitor/webhooks.py": "webhook.sealed, and webhook.sealed_old",
    "appliance/processes/engine/suspension.py": "suspended_step.sealed",
    "appliance/processes/host/journal.py": "journal.answer",
    "appliance/processes/host/model_calls.py": "journal.answer",
    "appliance/processes/host/vault.py": "journal.answer",
    "appliance/sites/sign_in/visiting.py": "a cookie",
    "appliance/sites/webapps/tickets.py": "a page in a browser",
    "appliance/tenants/second_factors/apps.py": "second_factor.sealed, and a page in a browser",
    "appliance/tenants/second_factors/passkeys.py": "a page in a browser",
    "appliance/tenants/second_factors/pending.py": "a cookie",
    "appliance/tenants/service.py": "secret.sealed",
    "appliance/tenants/single_sign_on/pending.py": "a cookie",
    "appliance/tenants/single_sign_on/service.py": "a cookie",
    "appliance/webapps/certificates/order_processor.py": "certificate_order.private_key, and acme_account.private_key",
    "appliance/webapps/certificates/service.py": "certificate.private_key",
}
"""The modules that seal, and where the value is kept.  A browser keeps it for a day at most."""
NOT_SEALED = {
    "task.data": "ids of rows",
    "integration_action.packed": "what a connector says of an action",
    "tenant_job.archive": "a solution, which has no secrets",
    "second_factor.credential_id": "public", "second_factor.public_key": "public",
}  # fmt: skip
"""Columns of bytes that are not sealed, beside digests."""


def blob_columns() -> Iterator[str]:
    for table in list_tables():
        for row in db.rows(f'PRAGMA table_info("{table}")'):
            if row[2].upper() == "BLOB" and "digest" not in row[1]:
                yield f"{table}.{row[1]}"


@pytest.fixture
def schema(tmp_path: Path) -> Iterator[None]:
    db.open_database(f"sqlite:///{tmp_path}/gos.db")
    migrations.migrate()
    yield
    db.close_database()


def test_every_column_of_bytes_is_sealed_again_or_known_not_to_be(schema: None) -> None:
    assert set(blob_columns()) - set(NOT_SEALED) == {column.name for column in SEALED_COLUMNS if column.encoding == "bytes"}
    assert set(NOT_SEALED) <= set(blob_columns())


def test_every_module_that_seals_is_known_with_where_it_stores_that() -> None:
    assert {name_of(path) for path in python_files("appliance") if seals(tree_of(path))} == set(SEALING)
    stored = {word.strip(",") for text in SEALING.values() for word in text.split() if "." in word}
    assert stored - {"master_key.digests"} == {column.name for column in SEALED_COLUMNS}


def seals(tree: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("seal", "_seal")
        for node in ast.walk(tree)
    )


def test_every_context_is_that_of_the_code_that_seals() -> None:
    scope = TenantScope("acme", "test")
    row = {
        "tenant_id": "acme", "id": "the id", "name": "the name", "user_id": "the user", "integration_id": "shop", "digest": "d1",
        "host": "a.example", "directory": "https://ca.example/dir", "execution_id": "exe", "path": "steps.one", "iteration": "0/1",
        "attempt": 2, "call": 7, "number": 3, "target": "/console/secrets?x=1",
    }  # fmt: skip
    run = ("steps.one", "0/1", 2)
    expected = {
        "secret.sealed": tenants._context(scope, "the name"), "second_factor.sealed": apps._stored_context("the user"),
        "step_up.form": "acme/kept-form/console/secrets", "integration.sealed": sealed_settings._context(scope, "the id"),
        "integration_token.sealed": tokens._context(scope, "shop"), "integration_consent.sealed": connecting._context(scope, "d1"),
        "integration_call.pending": executor._context(scope, "the id"), "webhook.sealed": webhooks.seal_context("acme", "the id"),
        "webhook.sealed_old": webhooks.seal_context("acme", "the id"), "llm_profile.sealed": llm._context(scope, "the id"),
        "audit_key.sealed": signed_trails.seal_context(3),
        "approval.sealed": action_approvals._context(scope, "the id"),
        "certificate.private_key": certificates._context("a.example"),
        "certificate_order.private_key": certificates._context("a.example"),
        "acme_account.private_key": certificates._context("https://ca.example/dir"),
        "suspended_step.sealed": suspension._context(scope, "exe", run), "journal.answer": "acme/journal/exe/steps.one/0/1/2/7",
        "tenant_job.sealed": records.sealing_context(scope, "the id"), "backup_job.sealed": backup_jobs.sealing_context(3),
    }  # fmt: skip
    assert {column.name: column.context(row) for column in SEALED_COLUMNS} == expected


@pytest.mark.parametrize("column", SEALED_COLUMNS, ids=lambda column: column.name)
def test_every_column_exists_with_its_key(schema: None, column: SealedColumn) -> None:
    info = db.rows(f'PRAGMA table_info("{column.table}")')
    assert {*column.key, *column.more, column.column} <= {row[1] for row in info}
    assert {row[1] for row in info if row[5]} == set(column.key)
