"""The thread pools of a process, with their sizes.

A pool starts a thread when work arrives and fewer threads than its size exist. Threads of periodic jobs are declared in
`core/scheduling.py`, those of the queue by `queue.workers`.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass


@dataclass(frozen=True)
class PoolSize:
    """The prefix of the names of the pool's threads, and its maximum number of threads (of some pools, per `queue.workers`)."""

    name: str
    threads: int


API = PoolSize("api", 32)
"""Requests to the API, the console and WebApps: everything that reads or writes the database. As many more as `queue.workers`,
because executions may run in the threads of their requests."""
FAST = PoolSize("fast", 1)
"""Executions that a caller waits for and that are recorded before they run; per `queue.workers`."""
STEP = PoolSize("step", 4)
"""Steps of executions, shared fairly among tenants; per `queue.workers`."""
IO = PoolSize("io", 64)
"""Steps that wait for a foreign system or a model, shared fairly among tenants."""
FOREIGN = PoolSize("foreign", 32)
"""Calls of foreign systems, with a limit per tenant."""
AGENT = PoolSize("agent", 16)
"""Agent runs, which mostly wait for a model."""
REPLAY = PoolSize("replay", 2)
"""Replays of policies, one per tenant."""
IMPORT = PoolSize("import", 2)
"""Imports of files into collections."""
TRANSFER = PoolSize("transfer", 2)
"""Exports and imports of whole tenants."""
BACKUP = PoolSize("backup", 1)
"""The backup of the whole appliance, of which one is made at a time."""
REHEARSAL = PoolSize("rehearsal", 1)
"""The rehearsal of a restore, which waits for its own process."""
WEBHOOK = PoolSize("webhook", 32)
"""Deliveries of webhooks."""
SMOKE = PoolSize("smoke", 4)
"""Checks of a WebApp's version before it is published."""
RESOLVER = PoolSize("resolver", 16)
"""Look-ups of host names, which the system's resolver may hold for long."""
IDENTITY = PoolSize("identity", 8)
"""Requests to the identity providers of the console, while people sign in."""
DIRECTORY = PoolSize("directory", 8)
"""Password checks that wait for a directory."""
MAIL = PoolSize("mail", 2)
"""Mail of the appliance itself."""
PASSWORD_KNOWN = PoolSize("password-known", 1)
"""Password checks of browsers that have signed in before."""
PASSWORD = PoolSize("password", 1)
"""All other password checks; per two processors."""
WEBAPP_FILES = PoolSize("webapp-files", 4)
"""Files of an uploaded version, while it is stored."""
BUCKET = PoolSize("bucket", 4)
"""Uploads of a batch into a bucket, while it is stored."""
PREPARATION = PoolSize("preparation", 1)
"""The compilation of JavaScript, while the other runtimes are prepared."""
DEPLOY = PoolSize("deploy", 4)
"""Uploads of `gos deploy`."""


def open_pool(
    size: PoolSize, times: int = 1, initializer: Callable[[], object] | None = None, *, more: int = 0
) -> ThreadPoolExecutor:
    """Open a pool with `times` as many threads and `more`; `initializer` is called in each new thread."""
    return ThreadPoolExecutor(size.threads * times + more, thread_name_prefix=size.name, initializer=initializer)
