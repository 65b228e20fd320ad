"""The page of log lines: by text, level and process, followed live on demand."""

from urllib.parse import urlencode

from appliance.core.pages import PageRequest
from appliance.monitor import logs
from appliance.monitor.logs import LEVELS, LineFilter
from appliance.processes import versions

from .routing import Answer, Page, Visit, page

FOLLOW_MS = 1500
KEPT = ("text", "level", "process", "execution", "follow")


@page("GET", "/logs", scope="logs.read")
def list_logs(visit: Visit) -> Answer:
    """Log lines, newest first."""
    args = {name: visit.asked.args[name] for name in KEPT if visit.asked.args.get(name)}
    wanted = LineFilter(args.get("text"), args.get("level"), None, args.get("execution"), args.get("process"))
    found = logs.list_lines(visit.scope, wanted, visit.page(limit=100))
    names = versions.list_processes(visit.scope, PageRequest(100, sort="name")).items if visit.may("processflow.read") else []
    follows = bool(args.get("follow")) and not visit.asked.args.get("cursor")
    others = {name: value for name, value in args.items() if name != "follow"}
    values = {
        "lines": found.items, "next_cursor": found.next_cursor, "args": dict.fromkeys(KEPT, "") | args,
        "filtered": bool(others), "levels": list(LEVELS), "processes": names,
        "every": FOLLOW_MS if follows else 0, "live_url": f"/console/logs?{urlencode({**args, 'part': 'live'})}",
        "kept": urlencode(others), "follow_url": f"/console/logs?{urlencode(others if follows else {**others, 'follow': '1'})}",
    }  # fmt: skip
    return Page("logs_live.html" if visit.asked.is_fragment else "logs.html", values)
