"""What is loaded when garbage collection begins, or goes on, is left out of it."""

import subprocess
import sys

SCRIPT = """
import gc
from appliance.core.confinement import memory
gc.disable()
loaded = [[] for _ in range(10_000)]
memory.keep_loaded()
assert gc.isenabled() and not any(each is loaded[0] for each in gc.get_objects())
later = [[] for _ in range(10_000)]
assert any(each is later[0] for each in gc.get_objects())
memory.keep_loaded()
assert not any(each is later[0] for each in gc.get_objects())
cycle = [later]
cycle.append(cycle)
del cycle
assert gc.collect() == 1, "new garbage is collected"
print(gc.get_threshold())
"""


def test_what_is_loaded_is_scanned_by_no_collection_and_all_objects_are_scanned_rarely() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    young, older, oldest = map(int, done.stdout.strip("()\n").split(","))
    assert (young, older) == (700, 10)
    assert oldest > 10, "Python's own limit, at which a collection of all objects paused every thread each two seconds under load"
