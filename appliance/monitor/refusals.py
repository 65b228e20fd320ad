"""Counts requests refused by a limit, by the limit's name."""

from . import metrics

REFUSALS = metrics.registry.counter("gos_limit_refusals_total", "Requests and work refused by a limit.", ("limit",))
