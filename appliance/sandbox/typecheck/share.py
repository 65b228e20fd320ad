"""How many type checks of one tenant are under way: each holds a thread of whoever asked, and the checker itself one at a time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from appliance.core.errors import ConcurrencyLimited
from appliance.core.sentences import Sentence

PER_TENANT = 4


class Share:
    """Counts the checks of each tenant; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()

    @contextmanager
    def slot(self, tenant_id: str) -> Iterator[None]:
        """ConcurrencyLimited while as many of this tenant are under way as may be."""
        with self._lock:
            if self._running[tenant_id] >= PER_TENANT:
                message = Sentence(
                    "%(per_tenant)s type checks of this tenant are under way; try again when one is done", per_tenant=PER_TENANT
                )
                raise ConcurrencyLimited(message, headers={"Retry-After": "5"})
            self._running[tenant_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[tenant_id] -= 1
                if not self._running[tenant_id]:
                    del self._running[tenant_id]
