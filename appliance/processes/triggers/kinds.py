"""Parses the `triggers` of a definition, with the settings of each kind."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from appliance import conditions
from appliance.core.errors import InvalidFilter
from appliance.processes.definitions.nodes import Trigger
from appliance.processes.definitions.reader import Reader

from .cron import Cron, CronInvalid

MOST_TRIGGERS = 50
ON_MISSED = ("skip", "run_once", "run_all")
MOST_MISSED = 1000
DATA_EVENTS = ("created", "updated", "deleted")
ENDS = ("succeeded", "failed", "cancelled", "timed_out", "expired")
SHORTEST_POLL_MS = 10_000
PRESETS = ("github", "stripe", "slack")
SIGNED = ("body", "timestamp.body")
VERIFICATIONS = ("standard-webhooks", *PRESETS, "hmac", "header", "none")
_ID = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
PATH = "[A-Za-z0-9_~-][A-Za-z0-9._~-]*(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*"
_PATH = re.compile(PATH)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_SECRET = re.compile(r"=\s*secrets\.([A-Za-z_]\w{0,62})\s*", re.ASCII)
MAX_PATH = 200
Settings = dict[str, Any]
Parsed = tuple[Settings, tuple[str, ...]]


def parse_triggers(reader: Reader, value: Any, pointer: str = "/triggers") -> tuple[Trigger, ...]:
    """Parses the list of triggers; those without an id get `<kind>`, `<kind>-2` …."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MOST_TRIGGERS:
        reader.problem(pointer, f"this must be a list of at most {MOST_TRIGGERS} triggers")
        return ()
    counts: Counter[str] = Counter()
    triggers: list[Trigger] = []
    for index, item in enumerate(value):
        trigger = _parse_trigger(reader, item, f"{pointer}/{index}", counts)
        if trigger is not None:
            triggers.append(trigger)
    _check_unique(reader, triggers)
    return tuple(triggers)


def _parse_trigger(reader: Reader, item: Any, pointer: str, counts: Counter[str]) -> Trigger | None:
    kinds = [name for name in PARSERS if isinstance(item, dict) and name in item]
    if len(kinds) != 1:
        reader.problem(pointer, f"a trigger is an object with exactly one of {', '.join(PARSERS)}")
        return None
    kind = kinds[0]
    reader.mapping(item, pointer, ("id", kind))
    counts[kind] += 1
    trigger_id = kind if counts[kind] == 1 else f"{kind}-{counts[kind]}"
    if "id" in item:
        trigger_id = reader.text(item["id"], f"{pointer}/id", trigger_id)
        if not _ID.fullmatch(trigger_id):
            reader.problem(f"{pointer}/id", "a trigger's id has lower-case letters, digits and hyphens, at most 63")
    at = f"{pointer}/{kind}"
    if not isinstance(item[kind], dict):
        reader.problem(at, "this must be an object")
        return None
    settings, sources = PARSERS[kind](reader, item[kind], at)
    payload = item[kind].get("input")
    if payload is not None and not isinstance(payload, dict) and not (isinstance(payload, str) and payload.startswith("=")):
        reader.problem(f"{at}/input", "this must be an object or an expression: it becomes the execution's input")
    template = None if payload is None else reader.template(payload, f"{at}/input")
    return Trigger(trigger_id, kind, pointer, settings, sources, template)


def _check_unique(reader: Reader, triggers: list[Trigger]) -> None:
    ids: dict[str, str] = {}
    paths: dict[str, str] = {}
    for trigger in triggers:
        if trigger.id in ids:
            reader.problem(f"{trigger.pointer}/id", f"the id {trigger.id!r} is taken by the trigger at {ids[trigger.id]}")
        ids[trigger.id] = trigger.pointer
        for path in trigger.sources if trigger.kind == "webhook" else ():
            if path in paths:
                reader.problem(f"{trigger.pointer}/webhook/path", f"the path {path!r} is taken by the trigger at {paths[path]}")
            paths[path] = trigger.pointer


def _parse_schedule(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, ("cron", "timezone", "on_missed", "max_missed", "input"), ("cron",))
    expression = reader.text(members["cron"], f"{pointer}/cron") if "cron" in members else ""
    zone = reader.text(members.get("timezone", "UTC"), f"{pointer}/timezone", "UTC")
    on_missed = reader.choice(members.get("on_missed", "run_once"), f"{pointer}/on_missed", ON_MISSED)
    most = reader.integer(members.get("max_missed"), f"{pointer}/max_missed", 1, MOST_MISSED) or 100
    if "max_missed" in members and on_missed != "run_all":
        reader.problem(f"{pointer}/max_missed", "only `on_missed: run_all` has a `max_missed`")
    try:
        Cron("* * * * *", zone).check()
    except CronInvalid as error:
        reader.problem(f"{pointer}/timezone", str(error))
        zone = "UTC"
    if expression:
        try:
            Cron(expression, zone).check()
        except CronInvalid as error:
            reader.problem(f"{pointer}/cron", str(error))
    return {"cron": expression, "timezone": zone, "on_missed": on_missed, "max_missed": most}, ()


def _parse_webhook(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, ("path", "verify", "input"), ("path", "verify"))
    path = reader.text(members["path"], f"{pointer}/path") if "path" in members else ""
    if path and (len(path) > MAX_PATH or not _PATH.fullmatch(path)):
        reader.problem(f"{pointer}/path", f"a path is words of letters, digits, -, _, . and ~ joined by /, at most {MAX_PATH}")
    verify = _parse_verification(reader, members["verify"], f"{pointer}/verify") if "verify" in members else {}
    return {"path": path, "verify": verify}, (path,)


def _parse_verification(reader: Reader, value: Any, pointer: str) -> Settings:
    if not isinstance(value, dict):
        reader.problem(pointer, f"this must be an object with a `kind`: {', '.join(VERIFICATIONS)}")
        return {}
    kind = reader.choice(value.get("kind"), f"{pointer}/kind", VERIFICATIONS)
    if kind == "none":
        reader.mapping(value, pointer, ("kind", "delivery_header"))
        return {"kind": kind} | _parse_headers(reader, value, pointer, ("delivery_header",))
    own: Mapping[str, tuple[str, ...]] = {
        "hmac": ("header", "algorithm", "encoding", "prefix", "signed", "timestamp_header", "delivery_header"),
        "header": ("header", "delivery_header"),
    }
    required = ("kind", "secret", "header") if kind in own else ("kind", "secret")
    reader.mapping(value, pointer, ("kind", "secret", *own.get(kind, ())), required)
    settings: Settings = {"kind": kind, "secret": _parse_secret(reader, value.get("secret"), f"{pointer}/secret")}
    settings |= _parse_headers(reader, value, pointer, ("header", "delivery_header", "timestamp_header"))
    if kind == "hmac":
        settings |= {
            "algorithm": reader.choice(value.get("algorithm", "sha256"), f"{pointer}/algorithm", ("sha256", "sha512", "sha1")),
            "encoding": reader.choice(value.get("encoding", "hex"), f"{pointer}/encoding", ("hex", "base64")),
            "prefix": value.get("prefix", "") if isinstance(value.get("prefix", ""), str) else "",
            "signed": reader.choice(value.get("signed", "body"), f"{pointer}/signed", SIGNED),
        }
        if not isinstance(value.get("prefix", ""), str):
            reader.problem(f"{pointer}/prefix", "this must be a text")
        if ("timestamp_header" in value) != (settings["signed"] != "body"):
            reader.problem(f"{pointer}/timestamp_header", "`signed: timestamp.body` and `timestamp_header` belong together")
    return settings


def _parse_headers(reader: Reader, value: Mapping[str, Any], pointer: str, names: tuple[str, ...]) -> Settings:
    names_by_setting: Settings = {}
    for name in names:
        if name in value:
            text = reader.text(value[name], f"{pointer}/{name}")
            if text and not _HEADER.fullmatch(text):
                reader.problem(f"{pointer}/{name}", "this must be a header's name")
            names_by_setting[name] = text.lower()
    return names_by_setting


def _parse_secret(reader: Reader, value: Any, pointer: str) -> str:
    match = _SECRET.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        reader.problem(pointer, "this must name a secret of the tenant: = secrets.<name>; `gos secret set NAME` sets it")
        return ""
    return match[1]


def _parse_integration(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, ("use", "trigger", "every", "query", "input"), ("use", "trigger"))
    use = reader.slug(members["use"], f"{pointer}/use") if "use" in members else ""
    name = reader.text(members["trigger"], f"{pointer}/trigger") if "trigger" in members else ""
    every = reader.duration(members.get("every", "1m"), f"{pointer}/every", minimum=SHORTEST_POLL_MS)
    query = reader.open_mapping(members.get("query", {}), f"{pointer}/query")
    if not reader.template(query, f"{pointer}/query").constant:
        reader.problem(f"{pointer}/query", "there is no data for expressions before the poll; write constant values")
    return {"use": use, "trigger": name, "every_ms": every or 60_000, "query": query}, (use,)


def _parse_datapool(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, ("collection", "events", "filter", "input"), ("collection",))
    collection = reader.text(members["collection"], f"{pointer}/collection") if "collection" in members else ""
    settings = {"collection": collection, "events": _parse_events(reader, members, pointer)}
    return settings | _parse_filter(reader, members, pointer), (collection,)


def _parse_document(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, ("events", "filter", "input"))
    return {"events": _parse_events(reader, members, pointer)} | _parse_filter(reader, members, pointer), ("",)


def _parse_events(reader: Reader, members: Mapping[str, Any], pointer: str) -> list[str]:
    words = reader.texts(members.get("events", list(DATA_EVENTS)), f"{pointer}/events")
    if not words:
        reader.problem(f"{pointer}/events", f"name at least one of {', '.join(DATA_EVENTS)}")
    return sorted({reader.choice(word, f"{pointer}/events/{index}", DATA_EVENTS) for index, word in enumerate(words)})


def _parse_filter(reader: Reader, members: Mapping[str, Any], pointer: str) -> Settings:
    if members.get("filter") is None:
        return {}
    try:
        conditions.parse(members["filter"], pointer=f"{pointer}/filter")
    except InvalidFilter as error:
        for detail in error.details:
            reader.problem(detail.pointer, detail.message)
    return {"filter": members["filter"]}


def _parse_process(reader: Reader, value: Any, pointer: str) -> Parsed:
    members = reader.mapping(value, pointer, ("id", "on", "input"), ("id",))
    process_ids = members.get("id", [])
    if isinstance(process_ids, list):
        sources = [reader.slug(each, f"{pointer}/id/{index}") for index, each in enumerate(process_ids)]
    else:
        sources = [reader.slug(process_ids, f"{pointer}/id")]
    if not sources and "id" in members:
        reader.problem(f"{pointer}/id", "name at least one process")
    words = reader.texts(members.get("on", ["succeeded"]), f"{pointer}/on")
    if not words:
        reader.problem(f"{pointer}/on", f"name at least one of {', '.join(ENDS)}")
    ends = sorted({reader.choice(word, f"{pointer}/on/{index}", ENDS) for index, word in enumerate(words)})
    return {"on": ends}, tuple(dict.fromkeys(sources))


PARSERS: Mapping[str, Callable[[Reader, Any, str], Parsed]] = {
    "schedule": _parse_schedule,
    "webhook": _parse_webhook,
    "integration": _parse_integration,
    "datapool": _parse_datapool,
    "process": _parse_process,
    "document": _parse_document,
}
