"""A process counts as alive exactly as long as the kernel holds its lock."""

import subprocess
import sys
from pathlib import Path

from appliance.core.database.presence import Presence

CHILD = """
import sys
from pathlib import Path
from appliance.core.database.presence import Presence
presence = Presence(Path(sys.argv[1]))
print(presence.instance, flush=True)
sys.stdin.read()
"""


def test_a_killed_process_is_dead_at_once(tmp_path: Path) -> None:
    mine = Presence(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    other = child.stdout.readline().strip()
    try:
        assert mine.is_alive(other)
        assert mine.sweep() == []
    finally:
        child.kill()
        child.communicate()
    assert not mine.is_alive(other)
    assert mine.sweep() == [other]
    assert mine.sweep() == []
    mine.close()


def test_a_process_is_alive_to_itself_until_it_closes(tmp_path: Path) -> None:
    mine, other = Presence(tmp_path), Presence(tmp_path)
    assert mine.instance != other.instance
    assert mine.is_alive(mine.instance)
    assert mine.is_alive(other.instance)
    other.close()
    other.close()
    assert not mine.is_alive(other.instance)
    mine.close()


def test_an_unknown_owner_is_dead(tmp_path: Path) -> None:
    mine = Presence(tmp_path)
    assert not mine.is_alive("wrk_unknown")
    assert not mine.is_alive("")
    mine.close()
