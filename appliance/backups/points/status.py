"""What the shipping of points last achieved, in a file of the data folder, for `gos doctor` and the next start."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from appliance.backups.buckets.addresses import is_bucket
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database.presence import is_any_alive

FILE = "points.json"
LATE_MS = 120_000


@dataclass(frozen=True)
class PointStatus:
    """`point_at` is until when everything was shipped, `base_at` the time of the last base; 0 for never.  `problem` is empty if the
    last attempt succeeded."""

    place: str = ""
    point_at: int = 0
    base_at: int = 0
    problem: str = ""
    problem_at: int = 0


def save_status(data: Path, status: PointStatus) -> None:
    """Replace the file."""
    draft = data / f".{FILE}.draft"
    draft.write_text(json.dumps(asdict(status)), "utf8")
    draft.chmod(0o600)
    draft.rename(data / FILE)


def load_status(data: Path) -> PointStatus:
    """The status; an empty one if there is none that can be read."""
    try:
        values = json.loads((data / FILE).read_text("utf8"))
        return PointStatus(
            str(values["place"]), int(values["point_at"]), int(values["base_at"]), str(values["problem"]), int(values["problem_at"])
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return PointStatus()


def _server_findings(config: Config) -> Iterator[tuple[str, str]]:
    if not config.blobs.keep_deleted:
        yield "note", (
            "a database that PostgreSQL restores to a moment of more than a day ago names contents that are deleted meanwhile; set "
            "blobs.keep_deleted to as long as its log is kept, such as 8d"
        )


def findings(config: Config) -> Iterator[tuple[str, str]]:
    """The findings of `gos doctor` about points: (level, text)."""
    place = config.backup.points_to
    if not place:
        if not config.database_url.startswith("sqlite:"):
            yield from _server_findings(config)
        else:
            yield "note", (
                "a restore to any second is off (backup.points_to), so a lost disk costs everything since the last backup; set it "
                "to a folder on another disk, or s3://bucket/prefix"
            )
        return
    status, now = load_status(config.data), clock.now_ms()
    if not config.backup.passphrase and not is_bucket(place):
        yield "note", "the points in backup.points_to are not encrypted and lack the key file; set GOS_BACKUP_PASSPHRASE"
    if status.place != place or not status.base_at:
        reason = f": {status.problem}" if status.problem else "; the first base is made when the appliance runs"
        yield ("FAIL" if status.problem else "note"), f"no point can be restored from {place} yet{reason}"
        return
    seconds = max(0, now - status.point_at) // 1000
    last = f"the last point in {place} is {seconds} s old ({clock.rfc3339(status.point_at)})"
    if status.problem:
        yield "FAIL", f"points are not shipped since {clock.rfc3339(status.problem_at)}: {status.problem}; {last}"
    elif now - status.point_at > LATE_MS and is_any_alive(config.data / "workers"):
        yield "FAIL", f"{last}, although the appliance is running; see its log, then start it again"
    else:
        yield "ok", f"{last}; the last base is of {clock.rfc3339(status.base_at)}"
    folder = Path(place)
    if not is_bucket(place) and folder.is_dir() and folder.stat().st_dev == config.data.stat().st_dev:
        yield "note", f"points are on the same disk as the data ({place}); if it fails, both are lost"
