"""The page of log lines: search by text, level, source, process, execution and time, and follow new lines live."""

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from appliance.console.frame.routing import Answer, Page, Stream, Visit, page
from appliance.console.frame.time_ranges import SPANS, parse_time_range
from appliance.core.errors import InvalidRequest
from appliance.core.texts import gettext as _
from appliance.monitor import LEVELS, LineFilter, Tail, logs
from appliance.processes.definitions import versions

SOURCES = ("step", "process", "trigger", "integration", "webapp", "approval", "alert", "webhook")
ANY_TIME = "all"
FILTERS = ("text", "level", "source", "process", "execution", "span", "since", "until", "follow")
_TIMES = {"span", "since", "until"}


@page("GET", "/logs", scope="logs.read")
def list_logs(visit: Visit) -> Answer:
    """Log lines, newest first."""
    args = _args(visit)
    newest = logs.last_number()  # Read before the lines, so that following neither misses nor repeats a line.
    result = logs.list_lines(visit.scope, _build_filter(visit, args), visit.page(limit=100))
    names = versions.list_names(visit.scope) if visit.may("processflow.read") else []
    follows = "follow" in args and "until" not in args and not visit.request.args.get("cursor")
    others = {name: value for name, value in args.items() if name != "follow"}
    values = {
        "lines": result.items, "next_cursor": result.next_cursor, "args": dict.fromkeys(FILTERS, "") | args,
        "filtered": bool(others), "levels": list(LEVELS), "sources": SOURCES, "spans": SPANS, "processes": names,
        "follows": follows, "tail_words": _tail_phrases(),
        "tail_url": f"/console/logs/live?{urlencode({**others, 'part': 'live', 'after': newest})}",
        "query": urlencode(others), "follow_url": f"/console/logs?{urlencode(others if follows else {**others, 'follow': '1'})}",
    }  # fmt: skip
    return Page("logs.html", values)


def _tail_phrases() -> str:
    """The texts of the script that follows the log, as JSON."""
    return json.dumps({
        "following": _("Following"), "paused": _("Paused. Resume to see what has arrived since."), "connecting": _("Connecting…"),
        "again": _("Reconnecting…"), "ended": _("The live stream has ended. Reload the page."), "pause": _("Pause"),
        "resume": _("Resume"),
    })  # fmt: skip


@page("GET", "/logs/live", scope="logs.read")
def follow_logs(visit: Visit) -> Answer:
    """Stream new lines, starting after the last event of an interrupted stream or the number that the page passed."""
    after = visit.request.http.headers.get("last-event-id", "") or visit.request.args.get("after", "")
    if not (after.isascii() and after.isdigit() and len(after) <= 18):
        raise InvalidRequest("`after` must be a line number; open the page of logs and follow from there")
    args = {name: value for name, value in _args(visit).items() if name not in _TIMES}
    tail = Tail(visit.scope, _build_filter(visit, args), int(after))

    def poll() -> Iterable[tuple[int, Mapping[str, Any]]]:
        # The page shows only the newest lines, so older ones need not be sent.
        return [(line.number, {"line": line}) for line in tail.read(only_newest=True)]

    return Stream("log_event.html", poll)


def _args(visit: Visit) -> dict[str, str]:
    return {name: text for name in FILTERS if (text := visit.request.args.get(name, "").strip())}


def _build_filter(visit: Visit, args: Mapping[str, str]) -> LineFilter:
    since = until = None
    if "since" in args or args.get("span", ANY_TIME) != ANY_TIME:
        chosen = parse_time_range(visit, "24h")
        since, until = chosen.since, chosen.until if "until" in args else None
    text, level, source, execution, process = (args.get(name) for name in ("text", "level", "source", "execution", "process"))
    return LineFilter(text=text, level=level, source=source, execution_id=execution, process_id=process, since=since, until=until)
