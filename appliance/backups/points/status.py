"""What the shipping of points last achieved, in a file of the data folder: for `gos doctor`, the console and the next start."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from appliance.backups.buckets.addresses import is_bucket
from appliance.core import clock
from appliance.core.config import Config
from appliance.core.database.presence import is_any_alive
from appliance.core.database.sentence_fields import dump_sentence, load_sentence

FILE = "points.json"
LATE_MS = 120_000


@dataclass(frozen=True)
class PointStatus:
    """`point_at` is until when everything was shipped, `base_at` the time of the last base, `first_at` that of the oldest one, from
    which on each moment can be restored; 0 for never.  `problem` is empty if the last attempt succeeded."""

    place: str = ""
    point_at: int = 0
    base_at: int = 0
    problem: str = ""
    problem_at: int = 0
    first_at: int = 0


@dataclass(frozen=True)
class PointReport:
    """How it stands: `state` is off, server (PostgreSQL does it), waiting (for the first base), shipped, late or failed.

    Times are epoch milliseconds, 0 for none; each moment from `first_at` to `last_at` can be restored, by `command`.
    """

    state: str
    place: str = ""
    first_at: int = 0
    last_at: int = 0
    base_at: int = 0
    lag_seconds: int = 0
    is_encrypted: bool = False
    is_same_disk: bool = False
    problem: str = ""
    problem_at: int = 0
    command: str = ""


def save_status(data: Path, status: PointStatus) -> None:
    """Replace the file."""
    draft = data / f".{FILE}.draft"
    draft.write_text(json.dumps(asdict(status) | {"problem": dump_sentence(status.problem)}), "utf8")
    draft.chmod(0o600)
    draft.rename(data / FILE)


def load_status(data: Path) -> PointStatus:
    """The status; an empty one if there is none that can be read."""
    try:
        values = json.loads((data / FILE).read_text("utf8"))
        return PointStatus(
            str(values["place"]), int(values["point_at"]), int(values["base_at"]), load_sentence(str(values["problem"])) or "",
            int(values["problem_at"]), int(values.get("first_at", 0)),
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError):
        return PointStatus()


def _server_findings(config: Config) -> Iterator[tuple[str, str]]:
    if not config.blobs.keep_deleted:
        yield "note", (
            "a database that PostgreSQL restores to a moment of more than a day ago names contents that are deleted meanwhile; set "
            "blobs.keep_deleted to as long as its log is kept, such as 8d"
        )


def get_report(config: Config) -> PointReport:
    """How it stands, from the files of the data folder alone: it does not ask the place."""
    place = config.backup.points_to
    if not place:
        return PointReport("off" if config.database_url.startswith("sqlite:") else "server")
    status, is_encrypted = load_status(config.data), bool(config.backup.passphrase)
    report = PointReport(
        "waiting", place, is_encrypted=is_encrypted, is_same_disk=_is_same_disk(config), problem=status.problem,
        problem_at=status.problem_at,
    )  # fmt: skip
    if status.place != place or not status.base_at:
        has_failed = status.problem and status.place == place
        return replace(report, state="failed") if has_failed else replace(report, problem="", problem_at=0)
    lag = max(0, clock.now_ms() - status.point_at)
    is_late = lag > LATE_MS and is_any_alive(config.data / "workers")
    return replace(
        report, state="failed" if status.problem else "late" if is_late else "shipped", first_at=status.first_at,
        last_at=status.point_at, base_at=status.base_at, lag_seconds=lag // 1000,
        command=_restore_command(config, status.point_at),
    )  # fmt: skip


def _restore_command(config: Config, moment: int) -> str:
    """The command that restores the moment beside the present data; the passphrase comes from its environment."""
    words = ["gos", "--data", f"{config.data}-restored", "restore", config.backup.points_to, "--at", clock.rfc3339(moment)]
    return shlex.join(words if config.backup.passphrase else [*words, "--key", str(config.data / "key")])


def _is_same_disk(config: Config) -> bool:
    folder = Path(config.backup.points_to)
    return not is_bucket(config.backup.points_to) and folder.is_dir() and folder.stat().st_dev == config.data.stat().st_dev


def findings(config: Config) -> Iterator[tuple[str, str]]:
    """The findings of `gos doctor` about points: (level, text)."""
    report = get_report(config)
    if report.state == "server":
        yield from _server_findings(config)
    elif report.state == "off":
        yield "note", (
            "a restore to any second is off (backup.points_to), so a lost disk costs everything since the last backup; set it "
            "to a folder on another disk, or s3://bucket/prefix"
        )
    else:
        yield from _place_findings(report)


def _place_findings(report: PointReport) -> Iterator[tuple[str, str]]:
    place = report.place
    if not report.is_encrypted and not is_bucket(place):
        yield "note", "the points in backup.points_to are not encrypted and lack the key file; set GOS_BACKUP_PASSPHRASE"
    if not report.base_at:
        reason = f": {report.problem}" if report.problem else "; the first base is made when the appliance runs"
        yield ("FAIL" if report.problem else "note"), f"no point can be restored from {place} yet{reason}"
        return
    last = f"the last point in {place} is {report.lag_seconds} s old ({clock.rfc3339(report.last_at)})"
    if report.state == "failed":
        yield "FAIL", f"points are not shipped since {clock.rfc3339(report.problem_at)}: {report.problem}; {last}"
    elif report.state == "late":
        yield "FAIL", f"{last}, although the appliance is running; see its log, then start it again"
    else:
        yield "ok", f"{last}; the last base is of {clock.rfc3339(report.base_at)}"
    if report.is_same_disk:
        yield "note", f"points are on the same disk as the data ({place}); if it fails, both are lost"
