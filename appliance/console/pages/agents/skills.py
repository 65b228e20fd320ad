"""Pages of skills: the list, one skill with its files, requested and granted tools, and the forms to approve or revoke it."""

from appliance.agents.skills import LARGEST_CONTENT, FileChange, Skill, is_grantable, trust
from appliance.console.frame.people import Names
from appliance.console.frame.routing import Answer, File, Page, Redirect, Visit, page
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed


@page("GET", "/skills", scope="skills.read")
def list_skills(visit: Visit) -> Answer:
    """The tenant's skills, by name."""
    result = visit.services.agents.skills.list_page(visit.scope, visit.page())
    return Page("skills.html", {"skills": result.items, "next_cursor": result.next_cursor})


@page("GET", "/skills/<name>", scope="skills.read")
def show_skill(visit: Visit, name: str) -> Answer:
    """One skill."""
    return _skill_page(visit, name)


def _skill_page(visit: Visit, name: str, problem: ApplianceError | None = None) -> Page:
    loaded = visit.services.agents.skills.load_skill(visit.scope, name)
    skill = loaded.skill
    granted = skill.grant.tools if skill.grant is not None else ()
    values = {
        "skill": skill, "loaded": loaded, "names": Names(visit), "problem": problem,
        "refusal": trust.find_refusal(visit.scope, visit.person, skill), "may_revoke": trust.can_revoke(visit.scope, visit.person),
        "changes": _changes(visit, skill), "tools": [(tool, is_grantable(tool), tool in granted) for tool in skill.requested_tools],
    }  # fmt: skip
    return Page("skill.html", values, problem.status if problem else 200)


def _changes(visit: Visit, skill: Skill) -> list[FileChange]:
    """The file changes since the approved version; empty while that version is current."""
    if skill.grant is None or skill.trust == "trusted":
        return []
    return visit.services.agents.skills.compare(visit.scope, skill.name, skill.version_digest, skill.grant.digest)


@page("GET", "/skills/<name>/file", scope="skills.read")
def show_file(visit: Visit, name: str) -> Answer:
    """One file: text is shown as it is, everything else and very large text is downloaded."""
    skills, path = visit.services.agents.skills, visit.request.args.get("path", "")
    file, pieces = skills.open_file(visit.scope, name, path)
    if not file.is_text or file.size > LARGEST_CONTENT:
        return File(path.rpartition("/")[2], "application/octet-stream", pieces, file.size)
    return Page("skill_file.html", {"name": name, "file": file, "text": b"".join(pieces).decode("utf8")})


@page("POST", "/skills/<name>/approve", scope="skills.read")
def approve_skill(visit: Visit, name: str) -> Answer:
    """Approve the version that the page showed, with the chosen tools."""
    tools = visit.request.form.get("tools", [])
    try:
        if visit.request.field("read") != "yes":
            raise ValidationFailed(
                "read the instructions and the files, then confirm it with the checkbox below the tools", pointer="/read"
            )
        trust.approve_skill(visit.scope, visit.services.agents.skills, visit.person, name, visit.request.field("digest"), tools)
    except NotFound:
        raise
    except ApplianceError as error:
        return _skill_page(visit, name, error)
    return Redirect(f"/console/skills/{name}")


@page("POST", "/skills/<name>/revoke", scope="skills.read")
def revoke_skill(visit: Visit, name: str) -> Answer:
    """Withdraw the approval of every version."""
    try:
        trust.revoke_skill(visit.scope, visit.services.agents.skills, visit.person, name)
    except NotFound:
        raise
    except ApplianceError as error:
        return _skill_page(visit, name, error)
    return Redirect(f"/console/skills/{name}")
