"""The actions in a mailbox: search, read, flag and move messages, and poll for new ones."""

from typing import Any

from appliance.connectors.contract import ConfigError, Item, Json, Polled, Rejected, SystemFailure
from gos_connector_email.criteria import build_criteria, keyword
from gos_connector_email.declaration import DEFAULT_ATTACHED_BYTES, DEFAULT_MESSAGES
from gos_connector_email.imap import Folder, Imap, folder_name
from gos_connector_email.parsing import body, parse, summary
from gos_connector_email.replies import Unreadable, number

MAX_POLLED = 100
MAX_MESSAGE_BYTES = 40 * 1024 * 1024
_HEADERS = "BODY.PEEK[HEADER.FIELDS (FROM TO CC REPLY-TO SUBJECT DATE MESSAGE-ID IN-REPLY-TO REFERENCES)]"
_SYSTEM_FLAGS = {"seen", "answered", "flagged", "deleted", "draft"}


def search(imap: Imap, params: Json) -> dict[str, Any]:
    name = params.get("folder", "INBOX")
    criteria = build_criteria(params.get("criteria", {}))
    folder = imap.open(name, read_only=True)
    # `n:*` always matches the last message, even when its UID is below n.
    after_uid = params.get("criteria", {}).get("after_uid", 0)
    uids = [uid for uid in imap.search(criteria) if uid > after_uid]
    newest = uids[-params.get("limit", DEFAULT_MESSAGES) :]
    return {"uidvalidity": folder.validity, "messages": summaries(imap, name, folder, newest)[::-1], "total": len(uids)}


def read(imap: Imap, params: Json) -> dict[str, Any]:
    name, uid = params.get("folder", "INBOX"), params["uid"]
    folder = _open(imap, params, read_only=True)
    values = imap.fetch(str(uid), "FLAGS", "RFC822.SIZE").get(uid)
    if values is None:
        raise ConfigError(f"The folder {name!r} has no message with UID {uid}; search again.")
    size = _number(values, "RFC822.SIZE")
    if size > MAX_MESSAGE_BYTES:
        raise Rejected(f"The message has {size} bytes; the maximum is {MAX_MESSAGE_BYTES}.")
    content = imap.fetch(str(uid), "BODY.PEEK[]").get(uid, {}).get("BODY[]")
    if not isinstance(content, bytes):
        raise SystemFailure("The IMAP server did not return the content of a message that it lists.")
    message = parse(content)
    max_attached = params.get("attached_bytes", DEFAULT_ATTACHED_BYTES)
    return {**_head(name, folder, uid, values), **summary(message), **body(message, max_attached)}


def flag(imap: Imap, params: Json) -> dict[str, Any]:
    changes = [(sign, [_flag(each) for each in params.get(name, ())]) for sign, name in (("+", "add"), ("-", "remove"))]
    if not any(flags for _, flags in changes):
        raise ConfigError("There is no flag to set or remove; give `add` or `remove`.")
    _open(imap, params, read_only=False)
    changed, missing = _split_existing(imap, params["uids"])
    for sign, flags in changes:
        if changed and flags:
            imap.change("UID", "STORE", _uid_set(changed), f"{sign}FLAGS.SILENT", f"({' '.join(flags)})")
    return {"changed": changed, "missing": missing}


def move(imap: Imap, params: Json) -> dict[str, Any]:
    if not imap.has("MOVE"):
        raise ConfigError("The IMAP server does not support MOVE; copying and deleting instead could duplicate a message.")
    target = folder_name(params["to"])
    if params["to"] == params.get("folder", "INBOX"):
        raise ConfigError("The messages are already in that folder; give another folder in `to`.")
    _open(imap, params, read_only=False)
    changed, missing = _split_existing(imap, params["uids"])
    if changed:
        imap.change("UID", "MOVE", _uid_set(changed), target)
    return {"changed": changed, "missing": missing}


def new_mail(imap: Imap, query: Json, cursor: Any) -> Polled:
    """The messages with a UID above the cursor's. All messages of a recreated folder are new, because its UIDs start again.

    The key of an item contains the folder's UIDVALIDITY, so the same UID in a recreated folder has another key.
    """
    name = query.get("folder", "INBOX")
    folder = imap.open(name, read_only=True)
    if cursor is None and query.get("begin", "now") == "now":
        return Polled((), {"uidvalidity": folder.validity, "uid": folder.next_uid - 1})
    after_uid = _cursor_uid(cursor, folder)
    uids = [uid for uid in imap.search(["UID", f"{after_uid + 1}:*"]) if uid > after_uid] if folder.next_uid > after_uid + 1 else []
    batch = uids[:MAX_POLLED]
    items = [Item(f"{folder.validity}-{each['uid']}", each) for each in summaries(imap, name, folder, batch)]
    last_uid = batch[-1] if batch else after_uid
    return Polled(items, {"uidvalidity": folder.validity, "uid": last_uid}, more=len(uids) > len(batch))


def summaries(imap: Imap, name: str, folder: Folder, uids: list[int]) -> list[dict[str, Any]]:
    """Summaries of these messages, by ascending UID, without those deleted in the meantime."""
    if not uids:
        return []
    fetched = imap.fetch(_uid_set(uids), "FLAGS", "RFC822.SIZE", _HEADERS)
    messages = []
    for uid in sorted(set(uids) & fetched.keys()):
        headers = next((value for key, value in fetched[uid].items() if key.startswith("BODY[HEADER.FIELDS")), b"")
        message = parse(headers if isinstance(headers, bytes) else b"")
        messages.append({**_head(name, folder, uid, fetched[uid]), **summary(message)})
    return messages


def _cursor_uid(cursor: Any, folder: Folder) -> int:
    if isinstance(cursor, dict) and cursor.get("uidvalidity") == folder.validity:
        return int(cursor["uid"])
    return 0


def _open(imap: Imap, params: Json, *, read_only: bool) -> Folder:
    folder = imap.open(params.get("folder", "INBOX"), read_only=read_only)
    if params.get("uidvalidity", folder.validity) != folder.validity:
        raise ConfigError("The folder was recreated, so its UIDs belong to other messages now; search again.")
    return folder


def _split_existing(imap: Imap, uids: list[int]) -> tuple[list[int], list[int]]:
    requested = sorted(set(uids))
    existing = set(imap.search(["UID", _uid_set(requested)]))
    return [uid for uid in requested if uid in existing], [uid for uid in requested if uid not in existing]


def _head(name: str, folder: Folder, uid: int, values: dict[str, Any]) -> dict[str, Any]:
    flags = values.get("FLAGS", [])
    if not isinstance(flags, list):
        flags = []
    names = [flag.decode("utf-8", "replace").removeprefix("\\") for flag in flags if isinstance(flag, bytes)]
    names = sorted(flag.lower() if flag.lower() in _SYSTEM_FLAGS else flag for flag in names)
    size = _number(values, "RFC822.SIZE")
    return {"folder": name, "uidvalidity": folder.validity, "uid": uid, "flags": names, "size": size}


def _number(values: dict[str, Any], name: str) -> int:
    try:
        return number(values.get(name))
    except Unreadable as error:
        raise SystemFailure(f"The IMAP server did not return {name} of a message.") from error


def _flag(name: str) -> str:
    return f"\\{name.capitalize()}" if name.lower() in _SYSTEM_FLAGS else keyword(name)


def _uid_set(uids: list[int]) -> str:
    """The UIDs as an IMAP sequence set, consecutive ones as ranges: `1:3,7`."""
    ranges: list[list[int]] = []
    for uid in sorted(uids):
        if ranges and uid == ranges[-1][1] + 1:
            ranges[-1][1] = uid
        else:
            ranges.append([uid, uid])
    return ",".join(str(low) if low == high else f"{low}:{high}" for low, high in ranges)
