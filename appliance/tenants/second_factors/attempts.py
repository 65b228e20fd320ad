"""Limits wrong codes and passkeys as wrong passwords are limited, and writes some of them to the trails.

Whoever gets here knows the password or has a session.  A code has six digits, so that an account also has a limit for the day,
whatever the networks are.  It does not concern passkeys, which nobody guesses, nor a browser that has signed in with the login
before: whoever knows the password cannot keep its owner out.
"""

from collections.abc import Callable

from appliance.core.networks import network_of
from appliance.tenants.sign_in import Attempt, Attempts, DailyLimit
from appliance.tenants.sign_in.counts import Counts, MemoryCounts
from appliance.tenants.sign_in.refused_passwords import record_refusal
from appliance.tenants.sign_in.refused_tries import RefusedTries

FREE_A_DAY, SECONDS_AFTERWARDS = 50, 300.0
PASSKEY = "passkey"


class FactorAttempts:
    """Counted by login and network, for all processes together."""

    def __init__(self, open_counts: Callable[[str], Counts] = MemoryCounts) -> None:
        self._pairs = Attempts(free=5, first=1.0, longest=300.0, counts=open_counts("factor pair"))
        self._devices = Attempts(free=10, first=1.0, longest=300.0, counts=open_counts("factor device"))
        self._days = DailyLimit(FREE_A_DAY, SECONDS_AFTERWARDS, open_counts("factor day"))
        self._refused = RefusedTries(open_counts("refused factors"))

    def begin(self, attempt: Attempt, kind: str) -> None:
        """Count an attempt; RateLimited, with Retry-After, while it must wait."""
        if attempt.device:
            self._devices.begin(("device", attempt.login), attempt.device)
            return
        self._pairs.begin(("login", attempt.login), attempt.address)
        if kind != PASSKEY:
            self._days.begin((attempt.login,))

    def succeed(self, attempt: Attempt) -> None:
        """Forget an attempt that succeeded."""
        self._devices.succeed(("device", attempt.login), attempt.device)
        self._pairs.succeed(("login", attempt.login), attempt.address)

    def fail(self, attempt: Attempt, kind: str) -> None:
        """Count a refused code or passkey, and record some of them in the trails of the account's tenants."""
        if not attempt.device and kind != PASSKEY:
            self._days.fail((attempt.login,))
        network = network_of(attempt.address)
        if times := self._refused.count((attempt.login, network, kind)):
            record_refusal(attempt.login, {"network": network, "times_today": times, "factor": kind})
