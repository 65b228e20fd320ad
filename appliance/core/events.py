"""Events between packages: the package where something happens publishes it, and packages it does not know react.

An event is a frozen dataclass, declared beside the function that publishes it. Listeners are called by the publishing thread in
the order in which they subscribed. Inside a write they are part of it: an error of a listener undoes the write.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeVar

E = TypeVar("E")
Listener = Callable[[E], None]


class EventHub:
    """The listeners of each class of event; thread-safe."""

    def __init__(self) -> None:
        self._listeners: dict[type, tuple[Listener[Any], ...]] = {}
        self._lock = threading.Lock()

    def subscribe(self, kind: type[E], listener: Listener[E]) -> Callable[[], None]:
        """Call `listener(event)` for every event of this class; returns a function that ends this.  Subscribing a listener again
        changes nothing."""
        with self._lock:
            listeners = self._listeners.get(kind, ())
            if listener not in listeners:
                self._listeners[kind] = (*listeners, listener)
        return lambda: self._unsubscribe(kind, listener)

    def _unsubscribe(self, kind: type[E], listener: Listener[E]) -> None:
        with self._lock:
            self._listeners[kind] = tuple(each for each in self._listeners[kind] if each != listener)

    def publish(self, event: object) -> None:
        """Call the listeners of the event's class; an exception of one is raised here, and later ones are not called."""
        for listener in self._listeners.get(type(event), ()):
            listener(event)


hub = EventHub()
"""The hub of this process."""
