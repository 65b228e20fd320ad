"""`python -m tests.mcp.suites`: fetches MCP's conformance suite and inspector once, by the lock beside this file."""

from pathlib import Path

from tests.npm_packages import Packages, fetch_packages, find_node

LOCK = Path(__file__).with_name("suite-packages")


def fetch_suites() -> Packages:
    """The suites in the cache, fetched when they are not there."""
    return Packages(find_node(), fetch_packages(LOCK, "mcp-suites"))


if __name__ == "__main__":
    fetch_suites()
