"""The connector that docs/connectors.md shows passes the contract suite, by the test it shows."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "connectors.md"


def test_the_connector_of_the_page_passes_its_own_tests(tmp_path: Path) -> None:
    plugin, tests = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "gos_connector_counter.py").write_text(plugin)
    (tmp_path / "test_counter.py").write_text(tests)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "--rootdir",
        str(tmp_path),
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
    ]
    run = subprocess.run([*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "12 passed" in run.stdout
