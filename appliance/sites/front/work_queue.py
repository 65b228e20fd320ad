"""The queue of requests that wait until the appliance can work on them: few at once, in fair order, and none for long.

Working on more requests at once than the processors can serve makes each slower and none faster. So a limited number hold a turn,
and the others wait in a tree: tenants share the turns, within a tenant the networks of its clients, within a network its API keys.
At each level, whoever has used the least time is next, as in start-time fair queueing (Goyal, Vin and Cheng, 1996): a newcomer
starts with what the one served last had used, so that nobody saves up turns. While requests wait, the number of turns follows the
processors: more while they idle, fewer while they are busy, and then a request that its share would not reach soon is refused.

A tenant's only request does not wait for a turn to end, as the next one would be its own. Counting these, at most twice as many
requests as there are turns are worked on.

Event loop only.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Hashable

from appliance.core import clock
from appliance.core.errors import Overloaded
from appliance.monitor import REFUSALS

from .processor_load import ProcessorLoad

LEAST, USUAL = 2, 32
TICK = 0.1  # seconds between two adaptations
LONGEST_TURN = 0.5  # seconds; a longer one waits for something else than the processor, and is given back
MEAN_OF, MAX_NAMES = 64, 1_000

Path = tuple[Hashable, ...]  # tenant, network, key


class Turn:
    """What a request holds while it is worked on."""

    __slots__ = ("charged", "is_held", "path", "queue", "started_at")

    def __init__(self, queue: "WorkQueue", path: Path) -> None:
        self.queue, self.path = queue, path
        self.started_at = self.charged = 0.0
        self.is_held = False

    def leave(self) -> None:
        """Give the turn to whoever is next; no effect if it was given back already."""
        if self.is_held:
            self.queue.end(self, clock.monotonic() - self.started_at)

    def resume(self) -> None:
        """Hold a turn again after `leave`, without waiting for one."""
        self.queue.begin(self, 0.0)


class _Node:
    """A tenant, a network or a key: the time it has used, and who waits below it."""

    __slots__ = ("active", "below", "floor", "queue", "spent", "waiting")

    def __init__(self, spent: float = 0.0) -> None:
        self.spent, self.floor = spent, 0.0
        self.waiting = self.active = 0  # requests below it, and children with any
        self.below: dict[Hashable, _Node] = {}
        self.queue: deque[_Waiter] = deque()

    def child(self, name: Hashable) -> "_Node":
        child = self.below.get(name)
        if child is None:
            if len(self.below) >= MAX_NAMES:
                self.below = {each: node for each, node in self.below.items() if node.waiting}
            child = self.below[name] = _Node(self.floor)
        return child


class _Waiter:
    """A request that waits for its turn until `patience` (of the monotonic clock) ends."""

    __slots__ = ("granted", "patience", "turn")

    def __init__(self, turn: Turn, patience: float) -> None:
        self.turn, self.patience = turn, patience
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class WorkQueue:
    """Gives `most` turns at the utmost. While the processors are busy, a request is refused that would wait for more than so many
    `seconds`, or has waited for twice as long."""

    def __init__(self, most: int, seconds: float, load: ProcessorLoad | None = None) -> None:
        self._most, self._seconds = most, seconds
        self.turns = self._usual = min(USUAL, most)
        self.load = load or ProcessorLoad()
        self.is_busy = False  # at the last tick
        self._working: dict[Turn, None] = {}  # the oldest first
        self._held_by: Counter[Hashable] = Counter()  # the turns of each tenant
        self._waiters: dict[_Waiter, None] = {}  # the oldest first
        self._root = _Node()
        self._mean = 0.005  # seconds of a turn
        self._is_ticking = False

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a turn."""
        return len(self._waiters)

    async def enter(self, path: Path) -> Turn:
        """A turn, at once or after waiting for it; Overloaded if that would take or has taken too long."""
        turn = Turn(self, path)
        if (len(self._working) < self.turns and not self._waiters) or self._is_only_one(path):
            self.begin(turn, 0.0)
            return turn
        await self._wait(turn)
        return turn

    def begin(self, turn: Turn, charged: float) -> None:
        """Count the turn as held."""
        turn.started_at, turn.charged, turn.is_held = clock.monotonic(), charged, True
        self._working[turn] = None
        self._held_by[turn.path[0]] += 1

    def end(self, turn: Turn, took: float) -> None:
        """Count the turn as no longer held, charge the time it took, and pass it on."""
        turn.is_held = False
        del self._working[turn]
        self._held_by[turn.path[0]] -= 1
        if not self._held_by[turn.path[0]]:
            del self._held_by[turn.path[0]]
        self._mean += (took - self._mean) / MEAN_OF
        if self._waiters:
            self._charge(turn.path, took - turn.charged)
            self._pass_on()

    def expected_wait(self, path: Path) -> float:
        """Seconds until a turn would reach a new request, if everybody who waits now goes on to share the turns with it."""
        node, sharing = self._root, 1
        for name in path:
            child = node.below.get(name)
            is_new = child is None or not child.waiting
            sharing *= max(1, node.active + is_new)
            node = child or _Node()
        return (len(node.queue) + 1) * sharing * self._mean / self.turns

    def _is_only_one(self, path: Path) -> bool:
        """Whether the request of the path is its tenant's only one, and may be worked on beside the others."""
        tenant = self._root.below.get(path[0])
        return path[0] not in self._held_by and not (tenant and tenant.waiting) and len(self._working) < 2 * self.turns

    async def _wait(self, turn: Turn) -> None:
        if self.is_busy and self.expected_wait(turn.path) > self._seconds:
            raise _refusal()
        waiter = _Waiter(turn, clock.monotonic() + 2 * self._seconds)
        self._add(waiter)
        if not self._is_ticking:
            self.is_busy = False
            self.load.is_busy()  # measures from here on
            self._plan_tick()
        try:
            await waiter.granted
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._remove(waiter)
            turn.leave()  # it may have come in the meantime
            raise

    def _add(self, waiter: _Waiter) -> None:
        node = self._root
        node.waiting += 1
        for name in waiter.turn.path:
            child = node.child(name)
            if not child.waiting:
                node.active += 1
                child.spent = max(child.spent, node.floor)
            child.waiting += 1
            node = child
        node.queue.append(waiter)
        self._waiters[waiter] = None

    def _remove(self, waiter: _Waiter) -> None:
        del self._waiters[waiter]
        node = self._root
        node.waiting -= 1
        for name in waiter.turn.path:
            child = node.below[name]
            child.waiting -= 1
            node.active -= not child.waiting
            node = child
        node.queue.remove(waiter)
        if not self._waiters:
            self._root = _Node()

    def _charge(self, path: Path, seconds: float) -> None:
        node: _Node | None = self._root
        for name in path:
            node = node.below.get(name) if node else None
            if node is not None:
                node.spent += seconds

    def _pass_on(self) -> None:
        while self._waiters and len(self._working) < self.turns:
            waiter = self._next()
            path = waiter.turn.path
            self._charge(path, self._mean)
            self._remove(waiter)
            self.begin(waiter.turn, self._mean)
            waiter.granted.set_result(None)

    def _next(self) -> _Waiter:
        """Whoever is next, down the tree: the one with the least time used."""
        node = self._root
        while not node.queue:
            child = min((each for each in node.below.values() if each.waiting), key=_spent)
            node.floor = child.spent
            node = child
        return node.queue[0]

    def _plan_tick(self) -> None:
        self._is_ticking = True
        asyncio.get_running_loop().call_later(TICK, self._tick)

    def _tick(self) -> None:
        """Adapt the number of turns, and end what lasts too long; until nobody waits and the number is the usual one."""
        self._is_ticking = False
        now = clock.monotonic()
        self._adapt()
        for turn in list(self._working):
            if now - turn.started_at < LONGEST_TURN:
                break
            self.end(turn, now - turn.started_at)
        for waiter in list(self._waiters) if self.is_busy else ():
            if now < waiter.patience:
                break
            self._remove(waiter)
            waiter.granted.set_exception(_refusal())
        self._pass_on()
        if self._waiters or self.turns != self._usual:
            self._plan_tick()

    def _adapt(self) -> None:
        self.is_busy = self.load.is_busy()
        if not self._waiters:
            step = 1 if self.turns < self._usual else -1
            self.turns += step * min(abs(self._usual - self.turns), 1 + self.turns // 4)
        elif self.is_busy:
            self.turns = max(min(LEAST, self._most), self.turns - 1 - self.turns // 8)
        else:
            self.turns = min(self._most, self.turns + 1 + self.turns // 4)


def _spent(node: _Node) -> float:
    return node.spent


def _refusal() -> Overloaded:
    REFUSALS.inc(1, "requests")
    return Overloaded("the appliance is busy; try again in a moment", headers={"Retry-After": "1"})
