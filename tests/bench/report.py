"""Writes the report: a generated part of docs/performance.md, a plot for each section and all figures as JSON beside it."""

import json
import os
import platform
import re
import sqlite3
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .executions import ROOT
from .figures import Section, cells_of, to_json
from .plots import draw_bars

PAGE = ROOT / "docs" / "performance.md"
FOLDER = ROOT / "docs" / "performance"
BEGIN, END = "<!-- report: written by python -m tests.bench -->", "<!-- end of the report -->"


@dataclass(frozen=True)
class Conditions:
    """Where and when a report was measured."""

    commit: str
    started: str
    minutes: float
    load: Sequence[float]
    machine: Mapping[str, Any]

    def sentence(self) -> str:
        machine = self.machine
        return (
            f"{self.started}, commit {self.commit}, {self.minutes:.0f} minutes, load {self.load[0]:.1f} before and "
            f"{self.load[1]:.1f} after. {machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB, "
            f"{machine['system']}, Python {machine['python']}, SQLite {machine['sqlite']} with "
            "`synchronous=FULL`; the client is on the same machine."
        )


def current_commit() -> str:
    """The short commit; with a note if files differ from it."""
    commit = _git("rev-parse", "--short=8", "HEAD")
    return f"{commit} with changes" if _git("status", "--porcelain", "--untracked-files=no") else commit


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def describe_machine() -> dict[str, Any]:
    model = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": model[1].strip() if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(pages / 2**30),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def conditions(began: float, load: float) -> Conditions:
    """The conditions of a report that began at this moment, under this load."""
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(began))
    after = os.getloadavg()[0]
    return Conditions(current_commit(), started, (time.time() - began) / 60, (load, after), describe_machine())


def write_report(about: Conditions, sections: Mapping[str, Section], page: Path = PAGE, folder: Path = FOLDER) -> None:
    """Replace the generated part of the page, the plots and the JSON; what stands outside the two marks stays."""
    text = page.read_text("utf8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page.name} has no part between `{BEGIN}` and `{END}`")
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.svg"):
        path.unlink()
    parts = [about.sentence()]
    for name, section in sections.items():
        parts.append(to_markdown(name, section, folder.name))
        if section.plot:
            (folder / f"{name}.svg").write_text(draw_bars(section), "utf8")
    body = "\n\n".join(parts)
    page.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}", "utf8")
    figures = {
        "commit": about.commit, "started": about.started, "minutes": round(about.minutes, 1), "load": list(about.load),
        "machine": dict(about.machine), "sections": {name: to_json(section) for name, section in sections.items()},
    }  # fmt: skip
    (folder / "report.json").write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", "utf8")


def to_markdown(name: str, section: Section, folder: str) -> str:
    heading, *lines = cells_of(section)
    parts = [f"### {section.title}", section.about[0].upper() + section.about[1:]]
    if section.rows:
        parts.append("\n".join([_line(heading), "|---" * len(heading) + "|", *(_line(line) for line in lines)]))
    if section.plot:
        parts.append(f"![{section.title}: {section.plot}]({folder}/{name}.svg)")
    if section.omitted:
        parts.append("Left out: " + "; ".join(section.omitted) + ".")
    return "\n\n".join(parts)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
