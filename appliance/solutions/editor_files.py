"""Generates files for editors: the types of a solution's step code and the schemas of its files.  They are never applied."""

import json
from collections.abc import Iterator

from appliance.connectors.registry import Registry
from appliance.processes.definitions import API_FILE, code_steps, declare_process
from appliance.solutions.checks import solution_dependencies
from appliance.solutions.definition import EDITOR_FILE, Solution
from appliance.solutions.schemas import schema_files

SCHEMA_FOLDER = ".gos"

_COMPILER_OPTIONS = {
    "target": "esnext", "module": "esnext", "moduleResolution": "bundler", "moduleDetection": "force", "lib": ["esnext"],
    "types": [], "strict": True, "useUnknownInCatchVariables": False, "noImplicitAny": False, "noEmit": True,
    "allowJs": True, "checkJs": False, "resolveJsonModule": True, "allowImportingTsExtensions": True,
}  # fmt: skip


def type_files(registry: Registry, solution: Solution) -> Iterator[tuple[str, str]]:
    """(path, text) of the generated files: for every process with code an api.d.ts and a tsconfig.json that matches the type
    checker, and in a hidden folder the JSON Schemas of the solution's files."""
    for name, schema in schema_files(registry).items():
        yield f"{SCHEMA_FOLDER}/{name}", json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    dependencies = solution_dependencies(registry, solution)
    settings = json.dumps({"compilerOptions": _COMPILER_OPTIONS, "include": [API_FILE, "**/*.ts", "**/*.js"]}, indent=2) + "\n"
    for process_id, process in sorted(solution.processes.items()):
        if any(code_steps(process.definition)):
            yield f"processes/{process_id}/{API_FILE}", declare_process(process.definition, dependencies)
            yield f"processes/{process_id}/{EDITOR_FILE}", settings
