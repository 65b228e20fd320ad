"""Numbers of the users that confined processes become: two processes of this machine have none in common at the same time."""

import os
import socket
from itertools import count
from typing import Self

_next = count(os.getpid())  # processes that begin together try other numbers first


class TakenUser:
    """A number that is taken until `give_back`, at the latest until this process ends; 0 is nobody else's user and is not taken."""

    def __init__(self, number: int, held: socket.socket | None) -> None:
        self.number, self._held = number, held

    def give_back(self) -> None:
        if self._held is not None:
            self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()


def take_user(first: int, most: int) -> TakenUser:
    """One of `most` numbers from `first` on that no process has, of this appliance or of another in the same network namespace.

    With `first` 0 it is 0. Where all are taken two have the same: what holds a process does not rest on its user alone.
    The kernel frees the name of an abstract socket (unix(7)) with the process that bound it, however that ends.
    """
    if not first:
        return TakenUser(0, None)
    for _ in range(most):
        number = first + next(_next) % most
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(f"\0gos-user-{number}")
        except OSError:
            held.close()
        else:
            return TakenUser(number, held)
    return TakenUser(first + next(_next) % most, None)
