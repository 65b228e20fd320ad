"""The table of OWASP ASVS requirements in docs/asvs, and the part of docs/asvs.md that follows from it.

`python -m tests.architecture.asvs` writes that part.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.architecture.source_tree import ROOT

FOLDER = ROOT / "docs" / "asvs"
PAGE = ROOT / "docs" / "asvs.md"
BEGIN, END = "<!-- counts -->\n", "<!-- end of counts -->\n"
PREFIX = "v5.0.0-"


@dataclass(frozen=True)
class Requirement:
    """A row: `demands` in our words, and either tests or a reason why there are none."""

    number: str
    level: int
    demands: str
    tests: tuple[str, ...] = ()
    docs: tuple[str, ...] = ()
    reason: str = ""
    note: str = ""
    gap: bool = False
    absent: bool = False

    @property
    def section(self) -> str:
        return self.number.removeprefix(PREFIX).rpartition(".")[0]

    @property
    def chapter(self) -> int:
        return int(self.section.partition(".")[0])


def read_chapter(path: Path) -> list[Requirement]:
    return [read_row(row) for row in yaml.safe_load(path.read_text("utf-8"))]


def read_row(row: dict[str, Any]) -> Requirement:
    lists = {name: tuple(row.get(name, ())) for name in ("tests", "docs")}
    return Requirement(**{**row, **lists})


def read_table() -> list[Requirement]:
    return [row for path in sorted(FOLDER.glob("*.yaml")) for row in read_chapter(path)]


def title_of(path: Path) -> str:
    return path.read_text("utf-8").removeprefix("# ").partition(":")[0]


def render(rows: Sequence[Requirement]) -> str:
    """The counts by chapter, the gaps and the other reasons, as Markdown."""
    heads = ("chapter", "requirements", "with tests", "of these absent here", "not applicable or organisational", "gaps")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for path in sorted(FOLDER.glob("*.yaml")):
        chapter = read_chapter(path)
        lines.append(f"| [{title_of(path)}](asvs/{path.name}) | {_counts(chapter)} |")
    lines += [f"| all | {_counts(rows)} |", "", "### Gaps", "", "| requirement | level | demands | here |", "|---|---|---|---|"]
    lines += [_reason(row) for row in rows if row.gap]
    lines += ["", "### Without a test", "", "| requirement | level | demands | why |", "|---|---|---|---|"]
    lines += [_reason(row) for row in rows if row.reason and not row.gap]
    return "\n".join(lines) + "\n"


def _counts(rows: Sequence[Requirement]) -> str:
    tested, absent = sum(bool(row.tests) for row in rows), sum(row.absent for row in rows)
    gaps = sum(row.gap for row in rows)
    return " | ".join(str(number) for number in (len(rows), tested, absent, sum(bool(row.reason) for row in rows) - gaps, gaps))


def _reason(row: Requirement) -> str:
    return f"| {row.number} | {row.level} | {row.demands} | {row.reason} |"


def update(page: str, rows: Sequence[Requirement]) -> str:
    """The page with its generated part made anew."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{render(rows)}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(update(PAGE.read_text("utf-8"), read_table()), "utf-8")
