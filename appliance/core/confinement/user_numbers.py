"""User ids for confined processes, so that no two processes of this machine use the same one at the same time."""

import os
import socket
from itertools import count
from typing import Self

_next = count(os.getpid())  # processes that start together try different ids first


class TakenUser:
    """A user id reserved until `give_back`, or until this process ends; 0 means that no other user is needed."""

    def __init__(self, number: int, reservation: socket.socket | None) -> None:
        self.number, self._reservation = number, reservation

    def give_back(self) -> None:
        if self._reservation is not None:
            self._reservation.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_back()


def take_user(first: int, most: int) -> TakenUser:
    """Reserve one of `most` ids from `first` on that no process in the same network namespace uses; 0 if `first` is 0.

    If all are in use, two processes share one: confinement does not rest on the user alone.  An id is reserved by binding
    an abstract socket (unix(7)), whose name the kernel frees when the process ends, even by a crash.
    """
    if not first:
        return TakenUser(0, None)
    for _ in range(most):
        number = first + next(_next) % most
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            reservation.bind(f"\0gos-user-{number}")
        except OSError:
            reservation.close()
        else:
            return TakenUser(number, reservation)
    return TakenUser(first + next(_next) % most, None)
