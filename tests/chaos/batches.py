"""Long experiments in batches: each with a seed and a process of its own, each with a line in a file of results."""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def commit() -> str:
    """The commit under test."""
    git = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=8"]
    return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()


def read_results(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class Batches:
    """Adds `--results`, `--batches`, `--seed` and `--one` to a command, and runs the batches that the results lack."""

    def __init__(self, parser: argparse.ArgumentParser, module: str, *, batches: int) -> None:
        self._parser, self._module = parser, module
        parser.add_argument("--results", type=Path, required=True)
        parser.add_argument("--batches", type=int, default=batches)
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--one", action="store_true", help="run the batch of this seed in this process")

    def run(self, run_batch: Callable[[argparse.Namespace], dict[str, Any]]) -> int:
        """1 unless every batch has a line, and every line `holds`."""
        args = self._parser.parse_args()
        if args.one:
            result = run_batch(args)
            with args.results.open("a") as file:
                file.write(json.dumps(result) + "\n")
            print(json.dumps(result), flush=True)
            return int(not result["holds"])
        seeds = range(args.seed, args.seed + args.batches)
        for seed in seeds:
            if seed not in {each["seed"] for each in read_results(args.results)}:
                command = [sys.executable, "-m", self._module, *sys.argv[1:], "--one", "--seed", str(seed)]
                subprocess.run(command, check=False)
        passed = {each["seed"] for each in read_results(args.results) if each["holds"]}
        print(f"{len(passed & set(seeds))} of {len(seeds)} batches hold", flush=True)
        return int(not passed.issuperset(seeds))
