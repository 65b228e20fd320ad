"""Sets of files as skills, written by tests."""

ABOUT = """---
name: {name}
description: {description}
{more}---
# {name}

Ask before you write.
"""


def about(name: str = "returns", description: str = "How returns are handled.", more: str = "") -> bytes:
    """A SKILL.md."""
    return ABOUT.format(name=name, description=description, more=more).encode()


def skill(name: str = "returns", more: str = "", **files: bytes) -> dict[str, bytes]:
    """A valid skill, with these files under references/ beside its SKILL.md."""
    return {"SKILL.md": about(name, more=more)} | {f"references/{path}.md": content for path, content in files.items()}
