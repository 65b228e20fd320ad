"""The solution that the first tenant starts with; its folder is package data."""

from dataclasses import replace
from pathlib import Path

from appliance.core.config import Config
from appliance.solutions.definition import Solution, read_solution
from appliance.solutions.folder import read_folder

ORDER_SYSTEM = "order-system"


def starter_folder() -> Path:
    """The folder of the starter solution."""
    return Path(__file__).parent.parent / "starter"


def starter_input() -> Path:
    """A file with sample input for the starter's process."""
    return starter_folder() / "sample" / "input.json"


def order_system_url(config: Config) -> str:
    """The URL at which this appliance's connectors reach its demo order system."""
    return f"{'https' if config.tls_mode != 'off' else 'http'}://localhost:{config.server.port}/demo"


def starter_solution(base_url: str) -> Solution:
    """The starter solution with its order system at `base_url` (such as http://localhost:8080/demo)."""
    solution = read_solution(read_folder(starter_folder()))
    order_system = solution.integrations[ORDER_SYSTEM]
    spec = replace(order_system.spec, settings={**order_system.spec.settings, "base_url": base_url})
    return replace(solution, integrations={**solution.integrations, ORDER_SYSTEM: replace(order_system, spec=spec)})
