"""The event hub: who is called for what, in which order, and what an error does."""

from dataclasses import dataclass

import pytest

from appliance.core.events import EventHub


@dataclass(frozen=True)
class Opened:
    name: str


@dataclass(frozen=True)
class Closed(Opened):
    """A class of its own, although it derives from another."""


def test_listeners_of_the_class_are_called_in_order_until_they_unsubscribe() -> None:
    hub, calls = EventHub(), list[str]()
    first = hub.subscribe(Opened, lambda event: calls.append(f"first {event.name}"))
    hub.subscribe(Opened, lambda event: calls.append(f"second {event.name}"))
    hub.publish(Opened("a"))
    hub.publish(Closed("b"))
    first()
    hub.publish(Opened("c"))
    assert calls == ["first a", "second a", "second c"]


def test_a_listener_that_subscribes_twice_is_called_once() -> None:
    hub, calls = EventHub(), list[Opened]()
    ends = [hub.subscribe(Opened, calls.append) for _ in range(2)]
    hub.publish(Opened("a"))
    for end in ends:
        end()
    hub.publish(Opened("b"))
    assert calls == [Opened("a")]


def test_an_error_of_a_listener_reaches_the_publisher() -> None:
    hub, calls = EventHub(), list[Opened]()

    def refuse(event: Opened) -> None:
        raise ValueError(event.name)

    hub.subscribe(Opened, refuse)
    hub.subscribe(Opened, calls.append)
    with pytest.raises(ValueError, match="a"):
        hub.publish(Opened("a"))
    assert calls == []


def test_a_listener_may_unsubscribe_while_it_is_called() -> None:
    hub, calls = EventHub(), list[str]()

    def once(event: Opened) -> None:
        calls.append(event.name)
        end()

    end = hub.subscribe(Opened, once)
    hub.subscribe(Opened, lambda event: calls.append("other"))
    hub.publish(Opened("a"))
    hub.publish(Opened("b"))
    assert calls == ["a", "other", "other"]
