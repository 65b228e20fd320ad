"""A process that is killed while it writes and ships loses seconds, and what it has shipped is restored without a gap."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.core.database import db
from appliance.tenants import service
from tests.architecture.source_tree import ROOT
from tests.backups.conftest import World, digests, make_world
from tests.backups.points.worlds import point_world, restore_point, shipping, wait_for_shipment

MOST_LOST_MS = 6_000  # two seconds, on a machine that runs other tests too


def write_until_killed(data: Path, place: Path, lines: int, pace: str) -> list[tuple[int, int]]:
    """The committed rows that were printed, with their times, the last one when the process was killed."""
    command = [sys.executable, "-m", "tests.backups.points.writing", str(data), str(place), pace]
    rows = list[tuple[int, int]]()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for line in process.stdout:
            number, _, at = line.partition(" ")
            if not line.endswith("\n"):
                break
            rows.append((int(number), int(at)))
            if len(rows) == lines:
                process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    return rows


def read_numbers() -> list[int]:
    return [row[0] for row in db.rows("SELECT priority FROM task WHERE queue = 'written' ORDER BY priority")]


def restored(source: World, folder: Path, moment: int | None) -> list[int]:
    """The numbers of the rows at the moment; every content that it names is checked."""
    target = make_world(folder)
    done = restore_point(source, target, moment)
    assert done.manifest["contents"]["damaged"] == []
    with target.opened():
        scope = service.system_scope("initech")
        for (sha256,) in db.rows("SELECT sha256 FROM blob WHERE tenant_id = 'initech'"):
            assert b"".join(target.blobs.read_checked(scope, sha256))
        return read_numbers()


@pytest.mark.parametrize(("lines", "pace"), [(150, ""), (400, ""), (150, "often"), (333, "often")])
def test_a_killed_process_loses_seconds_and_leaves_no_gap(tmp_path: Path, lines: int, pace: str) -> None:
    """Also in the middle of a merge."""
    data, place = tmp_path / "data", tmp_path / "points"
    place.mkdir()
    rows = write_until_killed(data, place, lines, pace)
    assert bool(list(place.rglob("*.merged"))) == (pace == "often")
    (segment, *_) = sorted([*place.rglob("*.segment"), *place.rglob("*.merged")])
    segment.with_name(".draft-0123456789abcdef").write_bytes(segment.read_bytes()[:100])  # as of a process killed in between
    source = point_world(data, str(place))
    latest = restored(source, tmp_path / "latest", None)
    assert latest == list(range(1, len(latest) + 1))
    first_lost = next((at for number, at in rows if number > len(latest)), rows[-1][1])
    assert rows[-1][1] - first_lost < MOST_LOST_MS
    if shipped := [(number, at) for number, at in rows if number <= len(latest)]:
        middle, at = shipped[len(shipped) // 2]
        earlier = restored(source, tmp_path / "earlier", at)
        assert earlier == list(range(1, len(earlier) + 1))
        assert len(earlier) <= middle, "nothing of after the moment"
    # The next start goes on with a base, and nothing is lost that was committed.
    with source.opened(), shipping(source) as shipper:
        moment, expected = wait_for_shipment(shipper), digests()
        assert len(read_numbers()) >= len(rows)
    target = make_world(tmp_path / "again")
    restore_point(source, target, moment)
    with target.opened():
        assert digests() == expected
    assert not list(place.rglob(".draft-*"))
