"""Statements on tables that grow without end: none reads a whole table, or everything that a tenant has in it."""

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.core.pages import PageRequest
from appliance.core.scope import TenantScope
from appliance.documents.listing import find_page
from appliance.documents.records import DocumentFilter
from appliance.processes.executions.service import ExecutionFilter, list_executions
from tests.bench.documents import fill_documents
from tests.bench.entities import PURCHASES
from tests.bench.growth import listing_jobs, quiet
from tests.bench.growth_operations import hot_operations
from tests.bench.growth_stock import HOT_PROCESS, Stock
from tests.bench.statement_counts import StatementCounts
from tests.screenshots.furnishing import TENANT, FurnishedTenant

GROWING = (
    "agent_run", "approval", "audit_entry", "document", "entity_change", "execution", "execution_event", "execution_input",
    "failure_occurrence", "firing", "idempotency", "integration_call", "journal", "log_line", "step_run", "webapp_request",
    "webhook_delivery",
)  # fmt: skip
# Indexes that have only rows with work to do, or that a query leaves after the first row that it needs.
OF_OPEN_ROWS = (
    "agent_run_open", "approval_untold", "execution_expiry", "execution_ready", "execution_unfinished", "firing_pending",
    "integration_call_open", "log_line_unread",
)  # fmt: skip
# Parts of statements that may read everything, and why.
ALLOWED = {
    "FROM entity_change WHERE tenant_id = ? AND number <= ?": "counts the bytes of a tenant once a day",
    "SELECT coalesce(max(number), 0) FROM entity_change": "the last number of the table's own key",
    'FROM "audit_entry" AS "t1" WHERE ("t1"."tenant_id" = ?) ORDER BY "t1"."seq"': "verifies a whole trail every six hours",
    "UPDATE document SET number = rowid": "a migration",
    "SELECT number, name FROM document ORDER BY number": "a migration",
}
# The condition on rows after a cursor: read from the start, the pages before it would be skipped one row at a time.
_AFTER_CURSOR = re.compile(r'(?:<|>) \?\) OR \(+[\w."]+ = \?')


def breaches(plan: list[str], sql: str) -> Iterator[str]:
    """The lines of a query's plan that read a growing table from end to end."""
    aliases: dict[str, str] = {alias: table for table, alias in re.findall(r'"?(\w+)"? AS "?(\w+)"?', sql)}
    is_ordered = "ORDER BY" in sql and "LIMIT" in sql and not any("TEMP B-TREE FOR ORDER BY" in line for line in plan)
    ends_early = is_ordered and not _AFTER_CURSOR.search(sql)
    for line in plan:
        match = re.match(r"(SCAN|SEARCH) (\w+)(?: USING (?:COVERING )?(?:INDEX (\w+)|INTEGER PRIMARY KEY))?(?: \((.*)\))?", line)
        if match is None or not is_growing(aliases.get(str(match[2]), str(match[2])), sql) or match[3] in OF_OPEN_ROWS:
            continue
        is_whole = match[1] == "SCAN" or match[4] in (None, "tenant_id=?")
        if is_whole and not (ends_early and match[3]) and not any(part in sql for part in ALLOWED):
            yield line


def is_growing(table: str, sql: str) -> bool:
    """Whether a statement must not read all of a table; of a collection that is up to its indexes, except behind a cursor."""
    return table in GROWING or (table.startswith("dp_") and _AFTER_CURSOR.search(sql) is not None)


def explain(file: Path, executed: dict[str, Any]) -> dict[str, list[str]]:
    """The breaches of each statement that has any."""
    by_statement: dict[str, list[str]] = {}
    with sqlite3.connect(file) as connection:
        for sql, parameters in executed.items():
            if re.match(r"\s*(SELECT|UPDATE|DELETE|WITH|INSERT)", sql):
                try:
                    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]
                except sqlite3.OperationalError as error:
                    if "no such table" in str(error):  # of a migration, which has dropped it since
                        continue
                    raise
                if lines := list(breaches(plan, sql)):
                    by_statement[sql] = lines
    connection.close()
    return by_statement


def test_hot_statements_use_indexes(tmp_path: Path) -> None:
    with listing_jobs(tmp_path) as (running, counts, jobs):
        scope = running.tenant(TENANT)
        with running.api(TENANT) as api:
            house = FurnishedTenant(running, api)
            house.publish(HOT_PROCESS)
            house.publish({"id": "failing", "steps": [{"id": "a", "rule": {"expression": "= input.none.of"}}]})
            house.ask("POST", "/datapool", dict(PURCHASES.definition))
            failed = house.execute("failing", {})
            assert list_executions(scope, ExecutionFilter(status="failed"), PageRequest()).items
            entities = [
                house.ask("POST", "/datapool/purchases/entities", {**PURCHASES.values(number), "number": f"A-{number}"})["id"]
                for number in range(9)
            ]
            for operation in hot_operations(Stock(house, {"failed": failed}, entities), jobs, page_size=1):
                operation.run(0)
    assert explain(tmp_path / "gos.db", counts.executed) == {}


@pytest.mark.parametrize(
    "filters",
    [
        DocumentFilter(name="000777"), DocumentFilter(name="nowhere"), DocumentFilter(search="000777"),
        DocumentFilter(search="nowhere"), DocumentFilter(search="contract"),
        DocumentFilter(search="000777", under="archive"), DocumentFilter(under="books/2026/01"),
        DocumentFilter(search="offer", under="books/2026/01"), DocumentFilter(media_type="audio/*"),
    ],
    ids=str,
)  # fmt: skip
def test_a_search_reads_few_of_many_documents(
    filters: DocumentFilter, filled_documents: tuple[TenantScope, StatementCounts]
) -> None:
    """Reading all of them takes 100,000 instructions or more."""
    scope, counts = filled_documents
    counts.reset()
    find_page(scope, filters, PageRequest())
    assert counts.total() < 30_000, counts.most_expensive(3)


@pytest.fixture(scope="module")
def filled_documents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TenantScope, StatementCounts]]:
    with listing_jobs(tmp_path_factory.mktemp("documents")) as (running, counts, jobs):
        scope = running.tenant(TENANT)
        fill_documents(scope, 12_000)
        quiet(jobs)
        yield scope, counts


@pytest.mark.parametrize(
    ("sql", "lines"),
    [
        ("SELECT id FROM execution WHERE status IN ('running', 'cancelling')", ["SCAN execution"]),
        ("SELECT id FROM execution WHERE status IN ('running', 'cancelling') AND finished_at IS NULL", []),
        ("SELECT label FROM execution WHERE tenant_id = ? AND finished_at > started_at + 1",
         ["SEARCH execution USING INDEX execution_started_by (tenant_id=?)"]),
        ("SELECT id FROM execution WHERE tenant_id = ? ORDER BY created_at DESC, id DESC LIMIT 5", []),
        ("SELECT id FROM execution WHERE tenant_id = ? AND ((at < ?) OR ((at = ?) AND (id < ?))) ORDER BY at DESC, id DESC LIMIT 5"
         .replace("at ", "created_at "), ["SEARCH execution USING COVERING INDEX execution_newest (tenant_id=?)"]),
        ("SELECT message FROM log_line WHERE tenant_id = ? ORDER BY step LIMIT 5",
         ["SEARCH log_line USING INDEX log_line_time (tenant_id=?)"]),
    ],
)  # fmt: skip
def test_a_statement_that_reads_everything_is_recognized(sql: str, lines: list[str], migrated_file: Path) -> None:
    assert [line for each in explain(migrated_file, {sql: ("t",) * sql.count("?")}).values() for line in each] == lines


@pytest.fixture
def migrated_file(tmp_path: Path) -> Iterator[Path]:
    from appliance.core.database import db
    from appliance.migrations import migrate

    db.open_database(f"sqlite:///{tmp_path}/gos.db")
    migrate()
    yield tmp_path / "gos.db"
    db.close_database()
