"""One valid request for every route of skills."""

from collections.abc import Callable

from appliance.solutions import write_zip
from tests.api.example import Example
from tests.api.resources import Resources, fresh


def _files(name: str, more: str = "") -> dict[str, str]:
    about = f"---\nname: {name}\ndescription: An example.\nallowed-tools: query_entities\n---\nAsk first. {more}\n"
    return {"SKILL.md": about, "references/limits.md": "At most three.\n"}


def _skill(tenant: Resources) -> str:
    name = fresh("skill")
    tenant.ask("PUT", f"/skills/{name}", {"files": _files(name)})
    return name


def _shared(tenant: Resources) -> str:
    return tenant.once("skill", lambda: _skill(tenant))


def _put_skill(tenant: Resources) -> Example:
    name = _skill(tenant)
    archive = write_zip({path: text.encode() for path, text in _files(name, "Then write.").items()})
    return Example({"name": name}, archive, media="application/zip")


SKILLS: dict[str, Callable[[Resources], Example]] = {
    "list_skills": lambda tenant: Example(),
    "get_skill": lambda tenant: Example({"name": _shared(tenant)}),
    "get_skill_file": lambda tenant: Example({"name": _shared(tenant), "path": "references/limits.md"}),
    "put_skill": _put_skill,
    "delete_skill": lambda tenant: Example({"name": _skill(tenant)}),
}
