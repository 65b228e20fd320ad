"""A malware scanner for tests: detects EICAR, fails for content starting with `strange`, and hangs for `slow`."""

import sys
from pathlib import Path

SCRIPT = """\
import sys, time
data = open(sys.argv[-1], "rb").read()
if data.startswith(b"slow"):
    time.sleep(600)
if data.startswith(b"strange"):
    print("cannot read that")
    sys.exit(2)
if b"EICAR" in data:
    print(sys.argv[-1] + ": Test-Signature FOUND")
    print("Infected files: 1")
    sys.exit(1)
print(sys.argv[-1] + ": OK")
"""


def command_of(folder: Path) -> list[str]:
    """Write the scanner program into the folder; returns its command."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "scanner.py"
    script.write_text(SCRIPT, "utf-8")
    return [sys.executable, "-I", str(script)]
