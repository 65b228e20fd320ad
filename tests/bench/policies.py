"""What the decision of policies costs: 200 rules, spread over tools and integrations, or all about the same action.

.venv/bin/python -m tests.bench.policies
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

from appliance.governance import SkillUsed, Subject
from appliance.governance.policies import CompiledPolicies, Facts, ToolAction, decide, parse_policy
from appliance.governance.policies.compiled import Active

RULES, ROUNDS, AIM_MS = 200, 5_000, 0.2
INPUT = {"customer": {"country": "DE", "name": "Example"}, "total": "1250.00", "lines": [{"sku": "a", "n": 2}] * 10}


def _rule(number: int, test: dict[str, Any]) -> dict[str, Any]:
    return {"id": f"r{number}", "effect": ("allow", "require_approval", "deny")[number % 3], "reason": "bench", **test}


def spread(number: int) -> dict[str, Any]:
    """As tenants write them: each integration has some rules of its own, a third of which look at the input."""
    test: dict[str, Any] = {"integrations": [f"system-{number % 20}"], "operations": ["post_*"], "subject": {"kinds": ["agent"]}}
    return test | ({"when": {"input": {"total": {"_gt": 1000 + number}}}} if number % 3 == 0 else {})


def crowded(number: int) -> dict[str, Any]:
    """The worst: every rule is about every action, and looks at the input."""
    return {"operations": ["post_*"], "when": {"input": {"total": {"_gt": 10_000 + number}, "customer": {"country": "AT"}}}}


def compile_policies(make: Callable[[int], dict[str, Any]]) -> CompiledPolicies:
    documents = [
        parse_policy({"mode": "enforce", "rules": [_rule(n, make(n)) for n in range(start, start + 20)]}, f"p{start}")
        for start in range(0, RULES, 20)
    ]
    return CompiledPolicies(Active(each.name, 1, each.digest(), each.document()) for each in documents)


def measure(policies: CompiledPolicies, *, cold: bool) -> tuple[float, float]:
    """Median and 99th percentile in ms; `cold`: of actions and actors never seen before."""
    times = []
    for number in range(ROUNDS):
        subject = Subject(f"execution:exe_{number}", "agent", "clerk", f"run_{number}", (SkillUsed("orders", "sha256:aa", True),))
        operation = f"post_order_{number}" if cold else "post_order"
        host = "erp.example.com"
        action = ToolAction("execute_tenant_integration", "write", INPUT, "system-3", operation, "http 1.0", host, "secret:erp")
        began = time.perf_counter()
        decide(policies, Facts(subject, action))
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def main() -> None:
    print(f"{RULES} rules, {ROUNDS} decisions; aim: {AIM_MS} ms")
    for name, make, cold in (
        ("spread over 20 integrations", spread, False),
        ("the same, actions never seen before", spread, True),
        ("all about the action, with conditions", crowded, False),
    ):
        median, late = measure(compile_policies(make), cold=cold)
        print(f"{name:42} median {median:7.4f} ms   p99 {late:7.4f} ms   {'ok' if median <= AIM_MS else 'OVER'}")


if __name__ == "__main__":
    main()
