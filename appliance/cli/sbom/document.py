"""The bill of materials as a document of CycloneDX 1.6 (ECMA-424), equal for equal contents."""

import json
import uuid
from datetime import UTC, datetime
from typing import Any

from appliance.core.config import environment
from appliance.core.errors import ConfigInvalid
from appliance.core.sentences import Sentence

from .npm_packages import NpmPackages
from .python_packages import APPLIANCE, PythonPackages


def make_document() -> dict[str, Any]:
    """The document for what is installed here; its time is that of SOURCE_DATE_EPOCH, and is left out without it."""
    python, npm = PythonPackages(), NpmPackages()
    appliance = python.component(APPLIANCE)
    dependencies = {**python.dependencies(), **npm.dependencies()}
    dependencies[appliance["bom-ref"]] |= npm.direct()
    tool = {"type": "application", "name": "gos sbom", "version": appliance["version"]}
    components = {each["bom-ref"]: each for each in (*python.components(), *npm.components())}
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {**timestamp(), "tools": {"components": [tool]}, "component": appliance},
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(dependencies[ref])} for ref in sorted(dependencies)],
    }
    return {**document, "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True)).urn}


def timestamp() -> dict[str, str]:
    """The member `timestamp` of the metadata."""
    text = environment("SOURCE_DATE_EPOCH")
    if text is None:
        return {}
    try:
        return {"timestamp": datetime.fromtimestamp(int(text), UTC).isoformat().replace("+00:00", "Z")}
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigInvalid(Sentence(
            "SOURCE_DATE_EPOCH is %(value)s, which is not a time; set it to seconds since 1970, or unset it", value=text,
        )) from error  # fmt: skip
