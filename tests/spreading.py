"""How the tests of a run are spread over its processes."""

from itertools import groupby

from xdist.scheduler import LoadScopeScheduling

# They look at the syntax trees of all files, which one process parses once: 7 s of the processor.
OF_TREES = frozenset(f"tests/architecture/test_{each}.py" for each in ("doors", "forbidden", "layers", "size", "vocabulary"))

# Ten seconds and more each, and by their names among the last: the other process would have nothing to do meanwhile.
LONG = frozenset(
    {
        "tests/testing/test_plugin.py", "plugins/files/tests/test_ftp.py", "plugins/sql/tests/test_sql.py",
        "plugins/tryton/tests/test_tryton.py",
    }
)  # fmt: skip


class Spreading(LoadScopeScheduling):  # type: ignore[misc]  # the library has no annotations
    """Tests of one file that follow each other stay together, and whoever is free takes the next of these.

    In every process the order of collection holds, in which the tests of the running appliance come first: the parts of
    a file before and after that border are given out apart from each other.
    """

    def _split_scope(self, nodeid: str) -> str:
        if not self._parts:
            runs = groupby(self.collection or [], key=lambda each: each.partition("::")[0])
            parts = ((f"{number} {file}", file, tests) for number, (file, tests) in enumerate(runs))
            self._parts = {each: "trees" if file in OF_TREES else part for part, file, tests in parts for each in tests}
        return self._parts[nodeid]

    _parts: dict[str, str] = {}  # noqa: RUF012  # filled once, when the collection is known
