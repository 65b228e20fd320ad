"""The audit trail: who did what, with each entry bound to its predecessor by its hash.

An entry's hash is SHA-256 over the compact JSON array
`[tenant, seq, at in ms, actor, action, subject, fields, previous_hash]`, with `fields` as the stored text; anyone
with an export can recompute it.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import or_
from typing import Any

from appliance.core import clock
from appliance.core.database import db
from appliance.core.errors import ValidationFailed
from appliance.core.pages import Page, PageRequest, paginate
from appliance.core.scope import APPLIANCE, TenantScope, tenant_ids
from appliance.core.sentences import Sentence

from .models import AuditChain, AuditEntry
from .retention import CHUNK, delete_in_chunks
from .storable import storable_json, storable_text

FIELDS_BYTES = 16 << 10
GENESIS = "0" * 64
ENTRY_COLUMNS = ("tenant_id", "seq", "at", "actor", "action", "subject", "fields", "previous_hash", "hash")
"""The columns of the rows that `verify_rows` and `rehash_rows` take, in order of `seq`."""
CHAIN_COLUMNS = ("base_seq", "base_hash", "last_seq", "last_hash")
Row = tuple[Any, ...]
CHECKPOINT = "audit.checkpoint"
"""The member `action` of the signed lines in exports and streams, which are no entries (`signed_trails`)."""
_CHECKPOINT = f'"action": "{CHECKPOINT}"'  # quotes are escaped inside the members of an entry


@dataclass(frozen=True)
class AuditFilter:
    """Criteria of entries; times in epoch milliseconds, [since, until)."""

    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    since: int | None = None
    until: int | None = None
    text: str | None = None
    """Text in action, subject or fields, case-insensitive."""

    @property
    def leaves_gaps(self) -> bool:
        """Whether entries between the first and the last match may be left out."""
        return any((self.actor, self.action, self.subject, self.text))


@dataclass(frozen=True)
class ChainStatus:
    """Whether the stored chain is intact; otherwise the first wrong entry and the reason."""

    intact: bool
    entries: int
    first_seq: int | None
    last_seq: int | None
    broken_seq: int | None = None
    reason: str | None = None
    last_hash: str = field(default="", compare=False)


AccountLookup = Callable[[TenantScope, str], str]


@dataclass
class _Accounts:
    """Finds the service account that a key belongs to; unknown until the appliance is composed."""

    find: AccountLookup | None = None


_accounts = _Accounts()


def set_account_lookup(find: AccountLookup) -> None:
    """Set `find(scope, actor)`, which returns the service account (`service:…`) that a key belongs to, or an empty text."""
    _accounts.find = find


def _attribute(scope: TenantScope, fields: Mapping[str, Any] | None) -> tuple[str, str]:
    """The actor of an entry and its stored fields: for a key of a service account the account, with the key's id as `api_key`."""
    account = _accounts.find(scope, scope.actor) if _accounts.find is not None and scope.actor.startswith("key:") else ""
    if not account:
        return scope.actor, storable_json(fields, FIELDS_BYTES)
    key = json.dumps({"api_key": scope.actor.removeprefix("key:")}, separators=(",", ":"))
    rest = storable_json(fields, FIELDS_BYTES - len(key))  # without the key, which must not be cut off with the rest
    return account, key if rest == "{}" else f"{rest[:-1]},{key[1:]}"


def record(scope: TenantScope, action: str, subject: str, fields: Mapping[str, Any] | None = None) -> int:
    """Inside a write: add an entry for the scope's actor; returns its number in the tenant's chain.

    What a key of a service account does is an entry of the account, with the id of the key as `api_key` in its fields.
    `action` has the form `key.revoke`, `subject` names the object; secrets in `fields` are redacted.
    """
    actor, stored = _attribute(scope, fields)
    # The upsert locks the chain's row, so that concurrent writers on a database server are serialized.
    ((seq, previous),) = db.rows(
        "INSERT INTO audit_chain (tenant_id, base_seq, base_hash, last_seq, last_hash) VALUES (?, 0, ?, 1, ?) "
        "ON CONFLICT (tenant_id) DO UPDATE SET last_seq = audit_chain.last_seq + 1 RETURNING last_seq, last_hash",
        (scope.tenant_id, GENESIS, GENESIS),
    )
    entry = AuditEntry(
        tenant_id=scope.tenant_id, seq=seq, at=clock.now_ms(), actor=actor, action=action,
        subject=storable_text(subject, 500), fields=stored, previous_hash=previous,
    )  # fmt: skip
    entry.hash = hash_of(entry)
    scope.insert(AuditEntry, **entry.__data__)
    scope.update(AuditChain, last_hash=entry.hash).execute()
    return int(seq)


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The fields of a change: each member that differs, with its value before and after."""
    names = sorted(before.keys() | after.keys())
    return {name: [before.get(name), after.get(name)] for name in names if before.get(name) != after.get(name)}


def hash_of(entry: AuditEntry) -> str:
    """The hash over this entry's content and its predecessor's hash."""
    content = [
        entry.tenant_id, entry.seq, entry.at, entry.actor, entry.action, entry.subject, entry.fields,
        entry.previous_hash,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


def list_entries(scope: TenantScope, filters: AuditFilter, page: PageRequest) -> Page[AuditEntry]:
    """The matching entries, newest first."""
    return paginate(_matching(scope, filters), page, {"seq": AuditEntry.seq, "at": AuditEntry.at}, default="-seq", tie="seq")


def export_entries(scope: TenantScope, filters: AuditFilter, most: int) -> list[str]:
    """The newest `most` matching entries, oldest first, each a line of JSON with everything its hash covers."""
    rows = list(_exported(scope, filters).order_by(AuditEntry.seq.desc()).limit(most))
    return [export_entry(row) for row in reversed(rows)]


def iter_exported(scope: TenantScope, since: int | None = None, until: int | None = None) -> Iterator[str]:
    """All entries of this time (epoch milliseconds, [since, until)), oldest first, as `export_entries` returns them."""
    query = _exported(scope, AuditFilter(since=since, until=until)).order_by(AuditEntry.seq)
    yield from (export_entry(row) for row in query.iterator())


_SINCE = "SELECT COALESCE(MIN(seq), 9223372036854775807) FROM audit_entry WHERE tenant_id = ? AND at >= ?"
_UNTIL = "SELECT COALESCE(MAX(seq), 0) FROM audit_entry WHERE tenant_id = ? AND at < ?"


def _exported(scope: TenantScope, filters: AuditFilter) -> Any:
    """The matching entries; by time alone all from the first to the last of it, without the gaps of a clock that was set back."""
    if filters.leaves_gaps:
        return _matching(scope, filters)
    query = scope.select(AuditEntry)
    if filters.since is not None:
        query = query.where(AuditEntry.seq >= db.rows(_SINCE, (scope.tenant_id, filters.since))[0][0])
    if filters.until is not None:
        query = query.where(AuditEntry.seq <= db.rows(_UNTIL, (scope.tenant_id, filters.until))[0][0])
    return query


def export_entry(row: AuditEntry) -> str:
    """The entry as a line of JSON with everything that its hash covers."""
    return json.dumps({name: getattr(row, name) for name in ENTRY_COLUMNS}, ensure_ascii=False) + "\n"


def _matching(scope: TenantScope, filters: AuditFilter) -> Any:
    query = scope.select(AuditEntry)
    for column, value in (
        (AuditEntry.actor, filters.actor),
        (AuditEntry.action, filters.action),
        (AuditEntry.subject, filters.subject),
    ):
        if value is not None:
            query = query.where(column == value)
    if filters.since is not None:
        query = query.where(AuditEntry.at >= filters.since)
    if filters.until is not None:
        query = query.where(AuditEntry.at < filters.until)
    if filters.text:
        places = (AuditEntry.action, AuditEntry.subject, AuditEntry.fields)
        query = query.where(reduce(or_, (place.contains(filters.text) for place in places)))
    return query


def verify_rows(chain: Row | None, rows: Iterable[Row], tenant_id: str) -> ChainStatus:
    """Verify a trail that is not in the open database, as this tenant's; `chain` is its row of `CHAIN_COLUMNS`."""
    stored = None if chain is None else AuditChain(tenant_id=tenant_id, **dict(zip(CHAIN_COLUMNS, chain, strict=True)))
    return _verify_chain(stored, (_to_entry(row, tenant_id) for row in rows))


def rehash_rows(base_hash: str, rows: Iterable[Row], tenant_id: str) -> Iterator[tuple[int, str, str]]:
    """The number, the previous hash and the hash of each entry as this tenant's, because hashes include the tenant's id.

    A broken trail is intact afterwards, so callers record in it that it was broken.
    """
    before = base_hash
    for row in rows:
        entry = _to_entry(row, tenant_id)
        entry.previous_hash = before
        digest = hash_of(entry)
        yield entry.seq, before, digest
        before = digest


def _to_entry(row: Row, tenant_id: str) -> AuditEntry:
    return AuditEntry(**{**dict(zip(ENTRY_COLUMNS, row, strict=True)), "tenant_id": tenant_id})


def verify(scope: TenantScope) -> ChainStatus:
    """Recompute the tenant's whole chain to detect changed, missing and added entries."""
    with db.snapshot():
        chain = scope.find(AuditChain)
        return _verify_chain(chain, _in_order(scope))


def verify_exported(lines: Iterable[str]) -> ChainStatus:
    """Verify entries that were exported without gaps; what came before the first one is trusted.  ValidationFailed.

    Signatures are ignored; `signed_trails` verifies them.
    """
    entries = (read_exported(number, line) for number, line in enumerate(lines, 1) if line.strip() and _CHECKPOINT not in line)
    first = next(entries, None)
    if first is None:
        return ChainStatus(True, 0, None, None)
    return verify_entries(first.seq - 1, first.previous_hash, itertools.chain([first], entries))


def read_exported(number: int, line: str | bytes) -> AuditEntry:
    """The entry of an exported line; `number` names the line in the message of ValidationFailed."""
    try:
        members = json.loads(line, object_pairs_hook=_read_members)
        entry = AuditEntry(**{name: members[name] for name in ENTRY_COLUMNS})
        hash_of(entry)  # half a surrogate pair has none
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValidationFailed(Sentence(
            "line %(number)s is not an exported entry of an audit trail; export it with `gos audit export`", number=number
        )) from error
    return entry


def _read_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an exported entry; ValueError if its hash would not cover all that a reader of the line sees."""
    members = dict(pairs)
    if sorted(name for name, _ in pairs) != sorted(ENTRY_COLUMNS):
        raise ValueError("other members than an entry has")
    if any(type(value) is not (int if name in ("seq", "at") else str) for name, value in pairs):
        raise TypeError("values of other types than an entry has")
    return members


def _in_order(scope: TenantScope) -> Any:
    return scope.select(AuditEntry).order_by(AuditEntry.seq).iterator()


def _verify_chain(chain: AuditChain | None, entries: Any) -> ChainStatus:
    base_seq, base_hash = (chain.base_seq, chain.base_hash) if chain else (0, GENESIS)
    status = verify_entries(base_seq, base_hash, entries)
    seq, digest = status.last_seq or base_seq, status.last_hash
    if status.intact and chain and (seq, digest) != (chain.last_seq, chain.last_hash):
        reason = f"entries up to {chain.last_seq} are missing"
        return ChainStatus(False, status.entries, base_seq + 1, seq or None, seq + 1, reason)
    return status


def verify_entries(base_seq: int, base_hash: str, entries: Iterable[AuditEntry]) -> ChainStatus:
    """Whether the entries are intact and follow each other, and the entry of this number and hash."""
    seq, expected, count, first = base_seq, base_hash, 0, base_seq + 1
    for entry in entries:
        reason = None
        if entry.seq != seq + 1:
            reason = f"entry {seq + 1} is missing"
        elif entry.previous_hash != expected:
            reason = "it does not follow its predecessor"
        elif hash_of(entry) != entry.hash:
            reason = "its content was changed"
        if reason:
            return ChainStatus(False, count, first, seq or None, entry.seq, reason)
        seq, expected, count = entry.seq, entry.hash, count + 1
    return ChainStatus(True, count, first if count else None, seq if count else None, last_hash=expected)


def purge(before_ms: int) -> int:
    """Cut every chain before `before_ms`, storing the new start; returns the number of deleted entries."""
    return sum(delete_in_chunks(partial(_cut, owner, before_ms)) for owner in (APPLIANCE, *tenant_ids()))


def _cut(tenant_id: str, before_ms: int) -> int:
    """Inside a write: cut the first entries of a chain that are older, some at a time; returns their number."""
    first = db.rows("SELECT seq, hash, at FROM audit_entry WHERE tenant_id = ? ORDER BY seq LIMIT ?", (tenant_id, CHUNK))
    older = list(itertools.takewhile(lambda entry: entry[2] < before_ms, first))
    if not older:
        return 0
    seq, digest, _ = older[-1]
    db.execute("UPDATE audit_chain SET base_seq = ?, base_hash = ? WHERE tenant_id = ?", (seq, digest, tenant_id))
    return db.execute("DELETE FROM audit_entry WHERE tenant_id = ? AND seq <= ?", (tenant_id, seq))
