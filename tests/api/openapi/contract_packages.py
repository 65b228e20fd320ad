"""`python -m tests.api.openapi.contract_packages` fetches linters of OpenAPI and a generator of TypeScript clients, by lock."""

from pathlib import Path

from tests.npm_packages import Packages, fetch_packages, find_node

LOCK = Path(__file__).with_name("contract-packages")


def fetch_contract_packages() -> Packages:
    """The packages in the cache, fetched when they are not there."""
    return Packages(find_node(), fetch_packages(LOCK, "contract-packages"))


if __name__ == "__main__":
    fetch_contract_packages()
