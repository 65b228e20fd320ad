"""Counts the requests that a limit has refused, by the name of the limit."""

from . import metrics

REFUSALS = metrics.registry.counter("gos_limit_refusals_total", "Requests and work refused by a limit.", ("limit",))
