"""Merges a pulled tenant into a folder: files that already say the same stay as they are, including comments."""

from collections.abc import Mapping

from appliance.core import yaml12
from appliance.solutions.definition import PROCESS_FILE, ROOT_FILE, Solution
from appliance.solutions.kinds.webapps import FOLDER as WEBAPPS
from appliance.solutions.kinds.webapps import comparable
from appliance.webapps.files import MANIFEST


def merge_pulled(own: Solution, pulled: Solution, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The pulled files that have to be written; the folder keeps its own name and description."""
    unchanged = {f"collections/{name}.yaml" for name, each in pulled.collections.items() if own.collections.get(name) == each}
    for slug, integration in pulled.integrations.items():
        mine = own.integrations.get(slug)
        if mine is not None and mine.spec == integration.spec:
            unchanged.add(f"integrations/{slug}.yaml")
    for process_id, process in pulled.processes.items():
        if process_id in own.processes and dict(own.processes[process_id].draft.definition) == dict(process.draft.definition):
            unchanged.add(f"processes/{process_id}/{PROCESS_FILE}")
    unchanged |= {
        f"{WEBAPPS}/{app_id}/{MANIFEST}"
        for app_id, app in pulled.webapps.items()
        if app_id in own.webapps and comparable(own.webapps[app_id].settings) == comparable(app.settings)
    }
    changed = {path: content for path, content in files.items() if path not in unchanged and path != ROOT_FILE}
    return changed | _root(own, pulled)


def _root(own: Solution, pulled: Solution) -> dict[str, bytes]:
    """A new solution.yaml if the tenant needs more than the folder lists."""
    connectors, secrets = own.needed_connectors(), own.needed_secrets()
    if set(pulled.needed_connectors()) <= set(connectors) and set(pulled.needed_secrets()) <= set(secrets):
        return {}
    needs = {
        "connectors": sorted({*connectors, *pulled.needed_connectors()}), "secrets": sorted({*secrets, *pulled.needed_secrets()}),
    }  # fmt: skip
    described = {"description": own.description} if own.description else {}
    return {ROOT_FILE: yaml12.dump({"name": own.name, **described, "needs": needs}).encode()}
