"""The `triggers` of a definition: what each kind may say, and what becomes of it."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from appliance import conditions
from appliance.core.errors import InvalidFilter
from appliance.processes.definitions.nodes import Trigger
from appliance.processes.definitions.reading import Reader

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


def read_triggers(reader: Reader, value: Any, pointer: str = "/triggers") -> tuple[Trigger, ...]:
    """Every trigger of the list; ids are `<kind>`, `<kind>-2` … where the builder gives none."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MOST_TRIGGERS:
        reader.problem(pointer, f"this must be a list of at most {MOST_TRIGGERS} triggers")
        return ()
    counted: Counter[str] = Counter()
    found: list[Trigger] = []
    for index, item in enumerate(value):
        trigger = _read_trigger(reader, item, f"{pointer}/{index}", counted)
        if trigger is not None:
            found.append(trigger)
    _refuse_doubles(reader, found)
    return tuple(found)


def _read_trigger(reader: Reader, item: Any, pointer: str, counted: Counter[str]) -> Trigger | None:
    kinds = [name for name in READERS if isinstance(item, dict) and name in item]
    if len(kinds) != 1:
        reader.problem(pointer, f"a trigger is an object with exactly one of {', '.join(READERS)}")
        return None
    kind = kinds[0]
    reader.mapping(item, pointer, ("id", kind))
    counted[kind] += 1
    trigger_id = kind if counted[kind] == 1 else f"{kind}-{counted[kind]}"
    if "id" in item:
        trigger_id = reader.text(item["id"], f"{pointer}/id", trigger_id)
        if not _ID.fullmatch(trigger_id):
            reader.problem(f"{pointer}/id", "a trigger's id has lower-case letters, digits and hyphens, at most 63")
    at = f"{pointer}/{kind}"
    if not isinstance(item[kind], dict):
        reader.problem(at, "this must be an object")
        return None
    settings, sources = READERS[kind](reader, item[kind], at)
    entered = item[kind].get("input")
    if entered is not None and not isinstance(entered, dict) and not (isinstance(entered, str) and entered.startswith("=")):
        reader.problem(f"{at}/input", "this must be an object or an expression: it becomes the execution's input")
    template = None if entered is None else reader.template(entered, f"{at}/input")
    return Trigger(trigger_id, kind, pointer, settings, sources, template)


def _refuse_doubles(reader: Reader, found: list[Trigger]) -> None:
    ids: dict[str, str] = {}
    paths: dict[str, str] = {}
    for trigger in found:
        if trigger.id in ids:
            reader.problem(f"{trigger.pointer}/id", f"the id {trigger.id!r} is taken by the trigger at {ids[trigger.id]}")
        ids[trigger.id] = trigger.pointer
        for path in trigger.sources if trigger.kind == "webhook" else ():
            if path in paths:
                reader.problem(f"{trigger.pointer}/webhook/path", f"the path {path!r} is taken by the trigger at {paths[path]}")
            paths[path] = trigger.pointer


def _read_schedule(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, ("cron", "timezone", "on_missed", "max_missed", "input"), ("cron",))
    expression = reader.text(given["cron"], f"{pointer}/cron") if "cron" in given else ""
    zone = reader.text(given.get("timezone", "UTC"), f"{pointer}/timezone", "UTC")
    on_missed = reader.choice(given.get("on_missed", "run_once"), f"{pointer}/on_missed", ON_MISSED)
    most = reader.whole(given.get("max_missed"), f"{pointer}/max_missed", 1, MOST_MISSED) or 100
    if "max_missed" in given and on_missed != "run_all":
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


def _read_webhook(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, ("path", "verify", "input"), ("path", "verify"))
    path = reader.text(given["path"], f"{pointer}/path") if "path" in given else ""
    if path and (len(path) > MAX_PATH or not _PATH.fullmatch(path)):
        reader.problem(f"{pointer}/path", f"a path is words of letters, digits, -, _, . and ~ joined by /, at most {MAX_PATH}")
    verify = _read_verification(reader, given["verify"], f"{pointer}/verify") if "verify" in given else {}
    return {"path": path, "verify": verify}, (path,)


def _read_verification(reader: Reader, value: Any, pointer: str) -> Settings:
    if not isinstance(value, dict):
        reader.problem(pointer, f"this must be an object with a `kind`: {', '.join(VERIFICATIONS)}")
        return {}
    kind = reader.choice(value.get("kind"), f"{pointer}/kind", VERIFICATIONS)
    if kind == "none":
        reader.mapping(value, pointer, ("kind", "delivery_header"))
        return {"kind": kind} | _headers(reader, value, pointer, ("delivery_header",))
    own: Mapping[str, tuple[str, ...]] = {
        "hmac": ("header", "algorithm", "encoding", "prefix", "signed", "timestamp_header", "delivery_header"),
        "header": ("header", "delivery_header"),
    }
    required = ("kind", "secret", "header") if kind in own else ("kind", "secret")
    reader.mapping(value, pointer, ("kind", "secret", *own.get(kind, ())), required)
    settings: Settings = {"kind": kind, "secret": _secret(reader, value.get("secret"), f"{pointer}/secret")}
    settings |= _headers(reader, value, pointer, ("header", "delivery_header", "timestamp_header"))
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


def _headers(reader: Reader, value: Mapping[str, Any], pointer: str, names: tuple[str, ...]) -> Settings:
    found: Settings = {}
    for name in names:
        if name in value:
            text = reader.text(value[name], f"{pointer}/{name}")
            if text and not _HEADER.fullmatch(text):
                reader.problem(f"{pointer}/{name}", "this must be a header's name")
            found[name] = text.lower()
    return found


def _secret(reader: Reader, value: Any, pointer: str) -> str:
    match = _SECRET.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        reader.problem(pointer, "this must name a secret of the tenant: = secrets.<name>; `gos secret set NAME` sets it")
        return ""
    return match[1]


def _read_integration(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, ("use", "trigger", "every", "query", "input"), ("use", "trigger"))
    use = reader.slug(given["use"], f"{pointer}/use") if "use" in given else ""
    name = reader.text(given["trigger"], f"{pointer}/trigger") if "trigger" in given else ""
    every = reader.duration(given.get("every", "1m"), f"{pointer}/every", least=SHORTEST_POLL_MS)
    query = reader.open_mapping(given.get("query", {}), f"{pointer}/query")
    if not reader.template(query, f"{pointer}/query").constant:
        reader.problem(f"{pointer}/query", "nothing is known before the poll: write values, not expressions")
    return {"use": use, "trigger": name, "every_ms": every or 60_000, "query": query}, (use,)


def _read_datapool(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, ("collection", "events", "filter", "input"), ("collection",))
    collection = reader.text(given["collection"], f"{pointer}/collection") if "collection" in given else ""
    settings = {"collection": collection, "events": _events(reader, given, pointer)}
    return settings | _filter(reader, given, pointer), (collection,)


def _read_document(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, ("events", "filter", "input"))
    return {"events": _events(reader, given, pointer)} | _filter(reader, given, pointer), ("",)


def _events(reader: Reader, given: Mapping[str, Any], pointer: str) -> list[str]:
    words = reader.texts(given.get("events", list(DATA_EVENTS)), f"{pointer}/events")
    if not words:
        reader.problem(f"{pointer}/events", f"name at least one of {', '.join(DATA_EVENTS)}")
    return sorted({reader.choice(word, f"{pointer}/events/{index}", DATA_EVENTS) for index, word in enumerate(words)})


def _filter(reader: Reader, given: Mapping[str, Any], pointer: str) -> Settings:
    if given.get("filter") is None:
        return {}
    try:
        conditions.parse(given["filter"], pointer=f"{pointer}/filter")
    except InvalidFilter as error:
        for detail in error.details:
            reader.problem(detail.pointer, detail.message)
    return {"filter": given["filter"]}


def _read_process(reader: Reader, value: Any, pointer: str) -> Parsed:
    given = reader.mapping(value, pointer, ("id", "on", "input"), ("id",))
    named = given.get("id", [])
    places = {f"{pointer}/id/{i}": each for i, each in enumerate(named)} if isinstance(named, list) else {f"{pointer}/id": named}
    sources = [reader.slug(each, place) for place, each in places.items()]
    if not sources and "id" in given:
        reader.problem(f"{pointer}/id", "name at least one process")
    words = reader.texts(given.get("on", ["succeeded"]), f"{pointer}/on")
    if not words:
        reader.problem(f"{pointer}/on", f"name at least one of {', '.join(ENDS)}")
    ends = sorted({reader.choice(word, f"{pointer}/on/{index}", ENDS) for index, word in enumerate(words)})
    return {"on": ends}, tuple(dict.fromkeys(sources))


READERS: Mapping[str, Callable[[Reader, Any, str], Parsed]] = {
    "schedule": _read_schedule,
    "webhook": _read_webhook,
    "integration": _read_integration,
    "datapool": _read_datapool,
    "process": _read_process,
    "document": _read_document,
}
