"""Runs untrusted code: steps, expressions and decisions, in WebAssembly inside processes that hold nothing."""

from appliance.sandbox.outcome import Evaluated, Failure, LogLine, Outcome, Position, Problem, Snapshot
from appliance.sandbox.pool.lanes import Settings
from appliance.sandbox.pool.pool import Pool
from appliance.sandbox.pool.process import StartFailed
from appliance.sandbox.program import SUSPEND, Entropy, Host, HostCall, Limits, NoHost, Program, Settled, Suspend, WatchfulHost
from appliance.sandbox.reasons import instead_of
from appliance.sandbox.typecheck import CodeStep, Finding, Reach, TypeCheck, TypedExpression

__all__ = [
    "SUSPEND",
    "CodeStep",
    "Entropy",
    "Evaluated",
    "Failure",
    "Finding",
    "Host",
    "HostCall",
    "Limits",
    "LogLine",
    "NoHost",
    "Outcome",
    "Pool",
    "Position",
    "Problem",
    "Program",
    "Reach",
    "Settings",
    "Settled",
    "Snapshot",
    "StartFailed",
    "Suspend",
    "TypeCheck",
    "TypedExpression",
    "WatchfulHost",
    "instead_of",
]
