"""What is done in a mailbox: finding, reading, marking and moving messages, and telling what is new."""

from typing import Any

from appliance.connectors.contract import ConfigError, Item, Json, Polled, Rejected, SystemFailure
from gos_connector_email.criteria import criteria_of, keyword
from gos_connector_email.declaration import USUAL_ATTACHED, USUAL_FOUND
from gos_connector_email.imap import Folder, Imap, folder_name
from gos_connector_email.reading import body, parse, summary
from gos_connector_email.replies import Unreadable, number

MOST_POLLED = 100
MOST_MESSAGE = 40 * 1024 * 1024
_HEADERS = "BODY.PEEK[HEADER.FIELDS (FROM TO CC REPLY-TO SUBJECT DATE MESSAGE-ID IN-REPLY-TO REFERENCES)]"
_SYSTEM_FLAGS = {"seen", "answered", "flagged", "deleted", "draft"}


def search(imap: Imap, given: Json) -> dict[str, Any]:
    name = given.get("folder", "INBOX")
    criteria = criteria_of(given.get("criteria", {}))
    folder = imap.open(name, read_only=True)
    # `n:*` names the last message also when it lies before n.
    least = given.get("criteria", {}).get("after_uid", 0)
    uids = [uid for uid in imap.search(criteria) if uid > least]
    wanted = uids[-given.get("limit", USUAL_FOUND) :]
    return {"uidvalidity": folder.validity, "messages": summaries(imap, name, folder, wanted)[::-1], "total": len(uids)}


def read(imap: Imap, given: Json) -> dict[str, Any]:
    name, uid = given.get("folder", "INBOX"), given["uid"]
    folder = _opened(imap, given, read_only=True)
    found = imap.fetch(str(uid), "FLAGS", "RFC822.SIZE").get(uid)
    if found is None:
        raise ConfigError(f"The folder {name!r} has no message {uid}; search for it again.")
    size = _number(found, "RFC822.SIZE")
    if size > MOST_MESSAGE:
        raise Rejected(f"The message has {size} bytes; {MOST_MESSAGE} are the most that is read.")
    content = imap.fetch(str(uid), "BODY.PEEK[]").get(uid, {}).get("BODY[]")
    if not isinstance(content, bytes):
        raise SystemFailure("The IMAP server does not give the content of a message it has.")
    message = parse(content)
    return {**_head(name, folder, uid, found), **summary(message), **body(message, given.get("attached_bytes", USUAL_ATTACHED))}


def flag(imap: Imap, given: Json) -> dict[str, Any]:
    signs = [(sign, [_flag(each) for each in given.get(name, ())]) for sign, name in (("+", "add"), ("-", "remove"))]
    if not any(flags for _, flags in signs):
        raise ConfigError("There is nothing to set or take away; give `add` or `remove`.")
    _opened(imap, given, read_only=False)
    present, missing = _present(imap, given["uids"])
    for sign, flags in signs:
        if present and flags:
            imap.change("UID", "STORE", _set(present), f"{sign}FLAGS.SILENT", f"({' '.join(flags)})")
    return {"changed": present, "missing": missing}


def move(imap: Imap, given: Json) -> dict[str, Any]:
    if not imap.can("MOVE"):
        raise ConfigError("The IMAP server cannot move messages at once (it lacks MOVE); copying and deleting could do it twice.")
    target = folder_name(given["to"])
    if given["to"] == given.get("folder", "INBOX"):
        raise ConfigError("The messages are in that folder already; name another one in `to`.")
    _opened(imap, given, read_only=False)
    present, missing = _present(imap, given["uids"])
    if present:
        imap.change("UID", "MOVE", _set(present), target)
    return {"changed": present, "missing": missing}


def new_mail(imap: Imap, query: Json, cursor: Any) -> Polled:
    """What has a UID beyond the cursor's; where the folder was made anew, all that is in it, for its UIDs start again.

    The key of a message has the folder's validity in it: it stays the same as long as the UID means the same.
    """
    name = query.get("folder", "INBOX")
    folder = imap.open(name, read_only=True)
    if cursor is None and query.get("begin", "now") == "now":
        return Polled((), {"uidvalidity": folder.validity, "uid": folder.next_uid - 1})
    last = _last(cursor, folder)
    uids = [uid for uid in imap.search(["UID", f"{last + 1}:*"]) if uid > last] if folder.next_uid > last + 1 else []
    taken = uids[:MOST_POLLED]
    items = [Item(f"{folder.validity}-{each['uid']}", each) for each in summaries(imap, name, folder, taken)]
    reached = taken[-1] if taken else last
    return Polled(items, {"uidvalidity": folder.validity, "uid": reached}, more=len(uids) > len(taken))


def summaries(imap: Imap, name: str, folder: Folder, uids: list[int]) -> list[dict[str, Any]]:
    """What the headers of these messages say, by ascending UID; those that vanished meanwhile are left out."""
    if not uids:
        return []
    found = imap.fetch(_set(uids), "FLAGS", "RFC822.SIZE", _HEADERS)
    told = []
    for uid in sorted(set(uids) & found.keys()):
        headers = next((value for key, value in found[uid].items() if key.startswith("BODY[HEADER.FIELDS")), b"")
        told.append({**_head(name, folder, uid, found[uid]), **summary(parse(headers if isinstance(headers, bytes) else b""))})
    return told


def _last(cursor: Any, folder: Folder) -> int:
    if isinstance(cursor, dict) and cursor.get("uidvalidity") == folder.validity:
        return int(cursor["uid"])
    return 0


def _opened(imap: Imap, given: Json, *, read_only: bool) -> Folder:
    folder = imap.open(given.get("folder", "INBOX"), read_only=read_only)
    if given.get("uidvalidity", folder.validity) != folder.validity:
        raise ConfigError("The folder was made anew, its UIDs mean other messages now; search again.")
    return folder


def _present(imap: Imap, uids: list[int]) -> tuple[list[int], list[int]]:
    wanted = sorted(set(uids))
    there = set(imap.search(["UID", _set(wanted)]))
    return [uid for uid in wanted if uid in there], [uid for uid in wanted if uid not in there]


def _head(name: str, folder: Folder, uid: int, values: dict[str, Any]) -> dict[str, Any]:
    flags = values.get("FLAGS", [])
    if not isinstance(flags, list):
        flags = []
    shown = [flag.decode("utf-8", "replace").removeprefix("\\") for flag in flags if isinstance(flag, bytes)]
    shown = sorted(flag.lower() if flag.lower() in _SYSTEM_FLAGS else flag for flag in shown)
    size = _number(values, "RFC822.SIZE")
    return {"folder": name, "uidvalidity": folder.validity, "uid": uid, "flags": shown, "size": size}


def _number(values: dict[str, Any], name: str) -> int:
    try:
        return number(values.get(name))
    except Unreadable as error:
        raise SystemFailure(f"The IMAP server does not tell {name} of a message.") from error


def _flag(name: str) -> str:
    return f"\\{name.capitalize()}" if name.lower() in _SYSTEM_FLAGS else keyword(name)


def _set(uids: list[int]) -> str:
    """The UIDs, ranges put together, so that a long list is a short line."""
    ranges: list[list[int]] = []
    for uid in sorted(uids):
        if ranges and uid == ranges[-1][1] + 1:
            ranges[-1][1] = uid
        else:
            ranges.append([uid, uid])
    return ",".join(str(low) if low == high else f"{low}:{high}" for low, high in ranges)
