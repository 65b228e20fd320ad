"""The checks of `gos doctor` in a running appliance."""

from collections.abc import Iterator
from contextlib import nullcontext

from appliance.core.config import Config
from appliance.web import Finding, Health

SKIPPED = ("sandbox", "contents")
"""What costs too much beside requests: another sandbox, and reading stored contents."""


def make_health(config: Config) -> Health:
    """The health of this appliance, whose database is open."""
    return Health(lambda: _run_checks(config))


def _run_checks(config: Config) -> Iterator[Finding]:
    from .findings.checks import name_findings  # it loads most of the appliance, which few ask for its health

    for check, (level, text) in name_findings(config, lambda _: nullcontext(), SKIPPED):
        yield Finding(check, "fail" if level == "FAIL" else "note" if level == "note" else "ok", text)
