"""Distributes the tests of a run over its processes."""

from itertools import groupby

from xdist.scheduler import LoadScopeScheduling

# These tests need the syntax trees of all files, so they run in one process, which parses them once (7 s of processor time).
OF_TREES = frozenset(f"tests/architecture/test_{each}.py" for each in ("doors", "forbidden", "layers", "size", "vocabulary"))

# Each takes ten seconds or more and would come last by its name, while the other process is idle.
LONG = frozenset(
    {
        "tests/testing/test_plugin.py", "plugins/files/tests/test_ftp.py", "plugins/sql/tests/test_sql.py",
        "plugins/tryton/tests/test_tryton.py",
    }
)  # fmt: skip


class Spreading(LoadScopeScheduling):  # type: ignore[misc]  # the library has no annotations
    """Keeps consecutive tests of a file together; a free process takes the next group.

    Every process runs its tests in the order of collection, in which the tests of the running appliance come first; the
    tests of a file before and after that border are separate groups.
    """

    def _split_scope(self, nodeid: str) -> str:
        if not self._parts:
            runs = groupby(self.collection or [], key=lambda each: each.partition("::")[0])
            parts = ((f"{number} {file}", file, tests) for number, (file, tests) in enumerate(runs))
            self._parts = {each: "trees" if file in OF_TREES else part for part, file, tests in parts for each in tests}
        return self._parts[nodeid]

    _parts: dict[str, str] = {}  # noqa: RUF012  # filled once, when the collection is known
