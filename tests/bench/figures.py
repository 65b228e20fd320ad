"""What a bench measures, as data: sections of rows with named figures, which are printed, tabulated and drawn."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["measured", "floor", "peer"]


@dataclass(frozen=True)
class Row:
    """One kind of work; a column's name ends in its unit: `p50 ms`, `CPU ms`, `per second`."""

    name: str
    figures: Mapping[str, float]
    kind: Kind = "measured"
    aim: str = ""


@dataclass
class Section:
    """The figures of one bench. `about` says what was done; `plot` names the column that is drawn; `omitted` what is not here."""

    title: str
    about: str
    rows: list[Row] = field(default_factory=list)
    plot: str = ""
    omitted: list[str] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(column for row in self.rows for column in row.figures))

    @property
    def has_aims(self) -> bool:
        return any(row.aim for row in self.rows)

    def label_of(self, row: Row) -> str:
        return row.name if row.kind == "measured" else f"{row.kind}: {row.name}"


def latencies(times: Sequence[float]) -> dict[str, float]:
    """Median and 99th percentile of times in ms."""
    ordered = sorted(times)
    return {"p50 ms": statistics.median(ordered), "p99 ms": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]}


def to_text(value: float) -> str:
    """Three significant digits, thousands separated."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def cells_of(section: Section) -> list[list[str]]:
    """The table with its heading; the column of aims only where there is one."""
    columns = section.columns
    cells = [["", *columns, *(["aim"] if section.has_aims else [])]]
    for row in section.rows:
        values = [to_text(row.figures[column]) if column in row.figures else "" for column in columns]
        cells.append([section.label_of(row), *values, *([row.aim] if section.has_aims else [])])
    return cells


def show(section: Section) -> None:
    """Print a section as a table of text."""
    cells = cells_of(section)
    widths = [max(len(line[index]) for line in cells) for index in range(len(cells[0]))]
    print(f"\n{section.title}: {section.about}")
    for first, *others in cells:
        print("  ".join([first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(others, widths[1:], strict=True))]))
    for text in section.omitted:
        print(f"left out: {text}")


def to_json(section: Section) -> dict[str, Any]:
    rows = [{"name": row.name, "kind": row.kind, "figures": dict(row.figures), "aim": row.aim} for row in section.rows]
    return {"title": section.title, "about": section.about, "plot": section.plot, "omitted": section.omitted, "rows": rows}
