"""Which sets of files are a skill, and the errors of those that are not."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from appliance.agents.skills.format import (
    LARGEST_FILE,
    LARGEST_FRONT,
    LARGEST_SET,
    LARGEST_SKILL_FILE,
    MOST_FILES,
    is_grantable,
    parse_skill,
)
from appliance.core.errors import ApiKeyLeaked, PayloadTooLarge, ValidationFailed
from appliance.tenants.keys import make_key_text

from .sample_skills import about, skill


def refusal_of(files: dict[str, bytes], name: str = "returns") -> str:
    """The messages with which these files are refused."""
    with pytest.raises(ValidationFailed) as caught:
        parse_skill(name, files)
    return "\n".join(detail.message for detail in caught.value.details)


def test_a_skill_is_read_with_every_member_of_its_front_matter() -> None:
    more = (
        "license: Apache-2.0\ncompatibility: needs the integration erp\nmetadata:\n  version: 1.10\n  on: no\n"
        "allowed-tools: query_entities, Bash(git add:*) query_entities\n"
    )
    parsed = parse_skill("returns", skill(more=more, limits=b"at most 3\n"))
    assert (parsed.name, parsed.description, parsed.license) == ("returns", "How returns are handled.", "Apache-2.0")
    assert parsed.compatibility == "needs the integration erp"
    assert parsed.metadata == {"version": "1.10", "on": "no"}
    assert parsed.requested_tools == ("query_entities", "Bash(git add:*)")
    assert parsed.instructions == "# returns\n\nAsk before you write."
    assert [(file.path, file.is_text) for file in parsed.files] == [("SKILL.md", True), ("references/limits.md", True)]


def test_the_digest_is_that_of_sha256sum(tmp_path: Path) -> None:
    files = skill(limits=b"3\n") | {"assets/é.png": b"\x89PNG\0", "assets-more/a b.txt": b"x", "Z.md": b"z", "a.md": b"a"}
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    bash = shutil.which("bash") or "/bin/bash"
    command = r"find * -type f | LC_ALL=C sort | xargs -d '\n' sha256sum | sha256sum"
    printed = subprocess.run([bash, "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert parse_skill("returns", files).digest == f"sha256:{printed.split()[0]}"
    assert parse_skill("returns", dict(reversed(files.items()))).digest == f"sha256:{printed.split()[0]}"


def test_every_change_changes_the_digest() -> None:
    base = skill(limits=b"3")
    others = [skill(limits=b"4"), skill(limit=b"3"), skill(limits=b"3", more="license: MIT\n"), skill()]
    assert len({parse_skill("returns", files).digest for files in (base, *others)}) == 5


@pytest.mark.parametrize(
    "path",
    [
        "../up.md", "/etc/passwd", "a/../b.md", "a//b.md", "a\\b.md", "./a.md", "con.txt", "a/.hidden", ".git/config", "a. ",
        "x\0y", "a\u202eb.md", "a\u200bb.md", "a\nb.md", "e\u0301.md", "x" * 301,
    ],
)  # fmt: skip
def test_an_unsafe_or_misleading_path_is_refused(path: str) -> None:
    refusal_of(skill() | {path: b"x"})


@pytest.mark.parametrize(
    "files",
    [{"A.md": b"1", "a.md": b"2"}, {"skill.md": b"1"}, {"a": b"1", "a/b": b"2"}, {"ﬁ.md": b"1", "fi.md": b"2"}],
    ids=["case", "skill.md", "file and folder", "ligature"],
)
def test_paths_that_some_systems_treat_as_equal_are_refused(files: dict[str, bytes]) -> None:
    assert "contains" in refusal_of(skill() | files)


def test_the_main_file_must_be_called_skill_md() -> None:
    assert "exactly this name" in refusal_of({"skill.md": about()})
    assert "exactly this name" in refusal_of({"returns/SKILL.md": about()})
    assert "exactly this name" in refusal_of({})


@pytest.mark.parametrize(
    "name", ["", "Returns", "re--turns", "-returns", "returns-", "re_turns", "rétours", "r" * 65, "re/turns", "..", "returns\n"]
)
def test_a_name_has_only_lowercase_letters_digits_and_hyphens(name: str) -> None:
    assert "not a valid skill name" in refusal_of(skill(), name)


def test_the_name_is_that_of_the_folder() -> None:
    assert "make them equal" in refusal_of(skill("other"))


@pytest.mark.parametrize(
    ("front", "expected"),
    [
        ("", "mapping"),
        ("- name", "mapping"),
        ("name: returns", "description must be a text"),
        ("name: [returns]\ndescription: x", "name must be a text"),
        ("name: returns\ndescription: ''", "description must be a text"),
        ("name: returns\ndescription: " + "x" * 1025, "1024"),
        ("name: returns\ndescription: x\ncompatibility: " + "x" * 501, "500"),
        ("name: returns\ndescription: x\nlicense: {a: b}", "license"),
        ("name: returns\ndescription: x\nlicense:", "license"),
        ("name: returns\ndescription: x\nmetadata: {a: [1]}", "metadata"),
        ("name: returns\ndescription: x\nmetadata: text", "metadata"),
        ("name: returns\ndescription: x\nmodel: big", "'model' is not allowed"),
        ("name: returns\nname: returns\ndescription: x", "twice"),
        ("name: returns\ndescription: x\nallowed-tools: {a: b}", "allowed-tools"),
        ("name: returns\ndescription: x\nallowed-tools: [[a]]", "allowed-tools"),
        ("name: returns\ndescription: x\nallowed-tools: dele\u0442e", "not a tool name"),
        ("name: returns\ndescription: x\nallowed-tools: " + " ".join(f"t{n}" for n in range(65)), "64 tools"),
        ("name: &x returns\ndescription: *x", "aliases"),
        ("a: &a [x]\nb: &b [*a, *a]\nname: returns\ndescription: x", "aliases"),
        ("name: returns\ndescription: !!python/object:os.system x", "not allowed"),
        ("name: !!int 5\ndescription: x", "name must be a text"),
        ("name: !!int " + "9" * 5000 + "\ndescription: x", "number"),
        ("name: returns\ndescription: " + "[" * 100, "nested"),
        ("name: returns\ndescription: \"\\x07bell\"", "invisible to people"),
        ("name: returns\ndescription: x\nmetadata: {a: \"\\u202Eb\"}", "invisible to people"),
        ("name: returns\ndescription: \"ig\\u200Bnore\"", "invisible to people"),
    ],
)  # fmt: skip
def test_invalid_front_matter_is_refused(front: str, expected: str) -> None:
    assert expected in refusal_of({"SKILL.md": f"---\n{front}\n---\nBody.\n".encode()})


@pytest.mark.parametrize(
    "text", ["", "Body", "---\nname: returns", "\n---\nname: a\n---\n", "\ufeff---\nname: returns\ndescription: x\n---\n"]
)
def test_front_matter_stands_between_two_lines(text: str) -> None:
    refusal_of({"SKILL.md": text.encode()})


def test_huge_front_matter_is_refused_before_it_is_read() -> None:
    assert "16 KiB" in refusal_of({"SKILL.md": about(more="# " + "x" * LARGEST_FRONT + "\n")})


def test_a_description_is_one_line_however_it_is_written() -> None:
    text = "---\nname: returns\ndescription: |\n  First.\n  - other: second\n---\r\nBody\r\n"
    assert parse_skill("returns", {"SKILL.md": text.encode()}).description == "First. - other: second"


@pytest.mark.parametrize(
    "hidden",
    [
        "\u202e", "\u2066", "\u200b", "\u200e", "\u2060", "\ufeff", "\u00ad", "\U000e0041", "\U000e0100", "\ufe00", "\u3164",
        "\u2800", "\u115f", "\u034f", "\ue000", "\u2028", "a\u200db", "a\u200cb", "\u200d", "a\ufe0f",
        "e" + "\u0301" * 5, "\U000f0000", "\ufffe", "\u061c", "\u180e", "é\u200d\u200dé",
    ],
    ids=ascii,
)  # fmt: skip
def test_invisible_characters_are_refused(hidden: str) -> None:
    message = refusal_of({"SKILL.md": about() + f"Pay.{hidden} Now.".encode()})
    assert "SKILL.md: line 8, column" in message
    assert "U+" in message
    assert "references/x.md: line 2" in refusal_of(skill(x=f"first\nPay {hidden}!".encode()))


def test_texts_of_all_scripts_pass() -> None:
    text = "Grüße 退货 returns возврат مرتجعات می‌خواهم क्‍ष 👩‍💻 🏳️‍🌈 1️⃣ ❤️ n̈ café\ttab\r\nend\f"
    assert parse_skill("returns", skill(x=text.encode(), y="\ufeffwith a mark".encode())).files[1].is_text


@pytest.mark.parametrize("content", [b"\x89PNG\0", b"\xff\xfe", b"esc \x1b[2J", "c1 \u0085".encode()])
def test_bytes_that_are_no_text_are_binary(content: bytes) -> None:
    assert not parse_skill("returns", skill() | {"assets/a": content}).files[1].is_text
    assert "UTF-8 text" in refusal_of({"SKILL.md": about() + content})


def test_too_many_or_too_large_files_are_refused() -> None:
    with pytest.raises(PayloadTooLarge, match="files"):
        parse_skill("returns", skill() | {f"{n}.md": b"" for n in range(MOST_FILES)})
    big = b"\0" * LARGEST_FILE
    parse_skill("returns", skill() | {"a": big})
    with pytest.raises(PayloadTooLarge, match="20 MiB"):
        parse_skill("returns", skill() | {str(n): big for n in range(LARGEST_SET // LARGEST_FILE)})
    assert "5 MiB" in refusal_of(skill() | {"a": big + b"\0"})
    assert "128 KiB" in refusal_of({"SKILL.md": about() + b"x" * LARGEST_SKILL_FILE})


def test_a_key_of_this_appliance_is_refused() -> None:
    with pytest.raises(ApiKeyLeaked, match=r"references/x\.md"):
        parse_skill("returns", skill(x=f"use {make_key_text('test')}".encode()))


def test_all_problems_are_reported_at_once() -> None:
    message = refusal_of({"SKILL.md": b"---\nname: other\n---\n", "../a": b"", "b.md": "\u202e".encode()})
    assert all(part in message for part in ("make them equal", "description must be", "../a", "b.md"))


def test_only_plain_names_can_be_granted() -> None:
    assert all(map(is_grantable, ("query_entities", "mcp.read-it")))
    assert not any(map(is_grantable, ("Bash(git:*)", "*", "query_*", "a/b", "a:b", "")))


def test_the_digest_covers_the_contents_themselves() -> None:
    parsed = parse_skill("returns", skill(x=b"1"))
    lines = "".join(f"{hashlib.sha256(c).hexdigest()}  {p}\n" for p, c in sorted(skill(x=b"1").items()))
    assert parsed.digest == "sha256:" + hashlib.sha256(lines.encode()).hexdigest()
