"""The report: what is generated, and what stays."""

import json
from pathlib import Path

import pytest

from tests.bench.figures import Row, Section, latencies, to_text
from tests.bench.plots import BARS_WIDTH, draw_bars
from tests.bench.report import BEGIN, END, Conditions, write_report

MACHINE = {"processor": "a processor", "cores": 2, "memory_gb": 4, "system": "Linux 6.1", "python": "3.11.7", "sqlite": "3.45.1"}
ABOUT = Conditions("0123abcd", "2026-11-28 10:00 UTC", 12.4, (0.5, 1.5), MACHINE)
READS = Section(
    "Reads", "GET for a second.",
    [Row("bare | server", {"per second": 4000.0}, "floor"), Row("a <read>", {"per second": 1000.0, "p50 ms": 1.234}, aim="≤ 1 ms")],
    plot="per second", omitted=["nginx: not installed"],
)  # fmt: skip


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "performance.md"
    path.write_text(f"# Before\n\n{BEGIN}\nold figures\n{END}\n\n# After\n", "utf8")
    return path


def test_the_report_replaces_only_its_own_part(page: Path, tmp_path: Path) -> None:
    for _ in range(2):
        write_report(ABOUT, {"reads": READS}, page, tmp_path / "performance")
    text = page.read_text("utf8")
    assert text.startswith(f"# Before\n\n{BEGIN}\n")
    assert text.endswith(f"{END}\n\n# After\n")
    assert text.count("### Reads") == 1
    assert "old figures" not in text
    assert "commit 0123abcd, 12 minutes, load 0.5 before and 1.5 after. 2 cores (a processor)" in text
    assert "|  | per second | p50 ms | aim |\n|---|---|---|---|\n| floor: bare \\| server | 4,000 |  |  |" in text
    assert "| a <read> | 1,000 | 1.23 | ≤ 1 ms |" in text
    assert "Left out: nginx: not installed." in text


def test_the_figures_stand_beside_the_page(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "performance"
    folder.mkdir()
    (folder / "removed.svg").write_text("a plot of an earlier report")
    write_report(ABOUT, {"reads": READS}, page, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["reads.svg", "report.json"]
    report = json.loads((folder / "report.json").read_text("utf8"))
    assert report["machine"]["cores"] == 2
    assert report["sections"]["reads"]["rows"][1]["figures"] == {"per second": 1000.0, "p50 ms": 1.234}


def test_a_peer_that_is_not_installed_is_named(page: Path, tmp_path: Path) -> None:
    write_report(ABOUT, {"peer": Section("Peer", "a peer.", omitted=["Peer: not installed"])}, page, tmp_path / "performance")
    assert "### Peer\n\nA peer.\n\nLeft out: Peer: not installed.\n" in page.read_text("utf8")


def test_a_page_without_the_marks_is_refused(page: Path, tmp_path: Path) -> None:
    page.write_text("# Only by hand\n")
    with pytest.raises(ValueError, match="has no part between"):
        write_report(ABOUT, {}, page, tmp_path / "performance")
    assert page.read_text() == "# Only by hand\n"


def test_bars_are_as_long_as_their_figures() -> None:
    plot = draw_bars(READS)
    assert f'width="{BARS_WIDTH:.1f}"' in plot
    assert f'width="{BARS_WIDTH / 4:.1f}"' in plot
    assert "a &lt;read&gt;" in plot
    assert "<script" not in plot


@pytest.mark.parametrize(("value", "text"), [(12345.6, "12,346"), (45.67, "45.7"), (1.234, "1.23"), (0.0123, "0.012"), (0.0, "0")])
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert to_text(value) == text


def test_latencies_of_one_request() -> None:
    assert latencies([7.0]) == {"p50 ms": 7.0, "p99 ms": 7.0}
