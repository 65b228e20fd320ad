"""The row of an execution that is inserted with its first commit, not before: until then nobody has been told of the execution."""

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from appliance.core.database import db
from appliance.processes.models import Execution

Columns = Mapping[str, Any]
NO_COLUMNS: Columns = {}


class DeferredRow:
    """The row of a new execution; `row` is how it is inserted and, once `is_ended`, how it has ended.

    An execution that ends at once, without an effect outside its own rows, is one commit: row, steps, journal, events and end
    together. Whoever writes for it first inserts the row (`store.check_fence`); a call of a foreign system inserts it before.
    If the process dies earlier, nothing has happened and nobody has had an answer.
    """

    def __init__(self, row: Execution, insert: Callable[[Execution, Columns], bool]) -> None:
        """`insert` inserts the row unless it is there already; whether it has."""
        self.row = row
        self.is_durable = False
        self.is_ended = False
        self._insert = insert
        self._steps: list[Callable[[], None]] = []
        self._lock = Lock()
        self._is_begun = False

    def hold(self, write: Callable[[], None]) -> bool:
        """Keep what writes a finished step for the commit that inserts the row; False if that commit has begun."""
        with self._lock:
            if not self._is_begun:
                self._steps.append(write)
            return not self._is_begun

    def insert(self, ended: Columns = NO_COLUMNS) -> bool:
        """Inside a write: insert the row with the steps held so far, unless an earlier commit did; whether this write has.

        `ended`: the columns with which the execution ends in this same write.
        """
        if self.is_durable:
            return False
        with self._lock:
            self._is_begun = True
        if not self._insert(self.row, ended):  # this write inserted it before, or another one in the same transaction
            return False
        for write_step in self._steps:
            write_step()
        db.after_commit(lambda: self._note_commit(ended))
        return True

    def _note_commit(self, ended: Columns) -> None:
        self.row.__data__.update(ended)
        self.is_ended = bool(ended)
        self._steps.clear()
        self.is_durable = True

    def drop_steps(self) -> None:
        """Insert the row without the steps held so far: they could not be written."""
        self._steps.clear()
