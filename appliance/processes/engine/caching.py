"""Caches step outputs across executions under a digest of what they depend on, until they expire."""

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.monitor import delete_in_chunks
from appliance.processes.definitions.template import Template
from appliance.sandbox import Pool

from .evaluation import fill
from .store import Claim, load_journal
from .task import Task

MAX_BYTES = 256 << 10
MAX_TENANT_BYTES = 64 << 20
PURGE_CHUNK = 500


@dataclass(frozen=True)
class CachedOutput:
    """A cached output, which may be None."""

    output: Any


def digest_of(pool: Pool, task: Task, key: Template | None) -> str:
    """The cache key of the step's output.

    With `key`, it covers the step and the value of `key`, across versions; otherwise the version, the step's settings and
    its input.
    """
    step, claim = task.step, task.claim
    if key is not None:
        dependencies = [claim.process_id, step.path, fill(pool, {"key": key}, task.names, task.now)["key"]]
    else:
        extra = {} if {"input", "arguments", "step_input"} & task.filled.keys() else {"execution": claim.input}
        dependencies = [claim.process_id, step.path, claim.version, step.kind, dict(step.settings), dict(task.filled), extra]
    text = json.dumps(dependencies, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf8", "surrogatepass")).hexdigest()


def find_output(task: Task, digest: str) -> CachedOutput | None:
    """The output cached under this digest; none for code that a crash interrupted, which continues from its journal."""
    scope, execution_id = task.claim.scope, task.claim.execution_id
    if task.is_rerun and task.step.kind == "code" and load_journal(scope, execution_id, task.run_key):
        return None
    sql = "SELECT output FROM step_cache WHERE tenant_id = ? AND digest = ? AND expires_at > ?"
    rows = db.rows(sql, (scope.tenant_id, digest, clock.now_ms()))
    return CachedOutput(json.loads(rows[0][0])) if rows else None


def store_output(claim: Claim, digest: str, output: Any, ttl_ms: int) -> None:
    """Inside the commit that records the step: cache its output unless it is larger than MOST_BYTES."""
    text = db.dump_json(output)
    if len(text) > MAX_BYTES:
        return
    now = clock.now_ms()
    db.execute(
        "INSERT INTO step_cache (tenant_id, digest, process_id, execution_id, output, size, created_at, expires_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant_id, digest) DO UPDATE SET execution_id = excluded.execution_id, "
        "output = excluded.output, size = excluded.size, created_at = excluded.created_at, expires_at = excluded.expires_at",
        (claim.scope.tenant_id, digest, claim.process_id, claim.execution_id, text, len(text), now, now + ttl_ms),
    )


def purge() -> int:
    """Delete expired outputs, and the oldest ones of tenants above MOST_TENANT_BYTES; answers how many."""
    expired = "SELECT tenant_id, digest FROM step_cache WHERE expires_at <= ? ORDER BY expires_at LIMIT ?"
    deletion = f"DELETE FROM step_cache WHERE (tenant_id, digest) IN ({expired})"  # noqa: S608  names of our own
    deleted = delete_in_chunks(partial(db.execute, deletion, (clock.now_ms(), PURGE_CHUNK)))
    sql = "SELECT tenant_id FROM step_cache GROUP BY tenant_id HAVING sum(size) > ?"
    for (tenant_id,) in db.rows(sql, (MAX_TENANT_BYTES,)):
        deleted += db.write(partial(_shrink, tenant_id))
    return deleted


def _shrink(tenant_id: str) -> int:
    rows = db.rows("SELECT digest, size FROM step_cache WHERE tenant_id = ? ORDER BY created_at DESC, digest", (tenant_id,))
    total, surplus = 0, []
    for digest, size in rows:
        total += size
        if total > MAX_TENANT_BYTES:
            surplus.append(digest)
    for digest in surplus:
        db.execute("DELETE FROM step_cache WHERE tenant_id = ? AND digest = ?", (tenant_id, digest))
    return len(surplus)
