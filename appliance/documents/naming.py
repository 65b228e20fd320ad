"""Names, folders, tags and comments of documents: validation, and cleaning of file names from uploads."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal
from urllib.parse import quote

from appliance.core.errors import ValidationFailed
from appliance.core.sentences import Sentence

LONGEST_NAME = 200
LONGEST_FOLDER = 500
LONGEST_TAG = 60
MOST_TAGS = 50
LONGEST_COMMENT = 1000
# Path and shell characters, and those that change the reading direction of a name ("invoice\u202efdp.exe").
_HARMFUL = re.compile(r'[\x00-\x1f\x7f-\x9f/\\:*?"<>|\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]')


def clean_name(name: str) -> str:
    """The last part of a path without harmful characters, at most 200 characters long including its extension; `document` if
    nothing is left."""
    base = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    cleaned = "".join(character for character in _HARMFUL.sub("_", base) if character.isprintable()).strip(" .")
    if len(cleaned) > LONGEST_NAME:
        stem, dot, extension = cleaned.rpartition(".")
        suffix = f"{dot}{extension}" if stem and len(extension) <= 20 else ""
        cleaned = cleaned[: LONGEST_NAME - len(suffix)].rstrip(" .") + suffix
    return cleaned or "document"


def disposition(name: str, kind: Literal["attachment", "inline"]) -> str:
    """A Content-Disposition header (RFC 6266) for a file name, with an ASCII fallback for old clients."""
    ascii_name = "".join(character if character.isascii() and character not in '"\\%' else "_" for character in name)
    exact = "" if ascii_name == name else f"; filename*=UTF-8''{quote(name, safe='')}"
    return f'{kind}; filename="{ascii_name}"{exact}'


def check_name(name: str, pointer: str = "/name") -> str:
    """The name, if cleaning does not change it; otherwise ValidationFailed with a suggestion."""
    if clean_name(name) != name:
        raise ValidationFailed(
            Sentence(
                "%(name)s cannot be the name of a document; use %(name2)s instead",
                name=repr(name[:80]), name2=repr(clean_name(name)),
            ),
            pointer=pointer,
        )
    return name


def check_folder(folder: str, pointer: str = "/folder") -> str:
    """The folder as `a/b`, without leading and trailing slashes; the root is empty. ValidationFailed."""
    folder_path = folder.strip("/")
    if len(folder_path) > LONGEST_FOLDER or any(clean_name(part) != part for part in folder_path.split("/") if folder_path):
        raise ValidationFailed(
            Sentence(
                "%(folder)s is not a folder; use a path such as invoices/2026, at most %(longest_folder)s characters",
                folder=repr(folder[:80]), longest_folder=LONGEST_FOLDER,
            ),
            pointer=pointer,
        )
    return folder_path


def check_tags(tags: Sequence[str], pointer: str = "/tags") -> tuple[str, ...]:
    """The tags, sorted and without duplicates; ValidationFailed."""
    if len(tags) > MOST_TAGS:
        raise ValidationFailed(Sentence("a document has at most %(most_tags)s tags", most_tags=MOST_TAGS), pointer=pointer)
    for index, tag in enumerate(tags):
        if not 1 <= len(tag) <= LONGEST_TAG or not tag.isprintable() or tag != tag.strip() or "," in tag:
            raise ValidationFailed(
                Sentence(
                    "%(tag)s is not a valid tag; use 1 to %(longest_tag)s characters without commas",
                    tag=repr(tag[:80]), longest_tag=LONGEST_TAG,
                ),
                pointer=f"{pointer}/{index}",
            )
    return tuple(sorted(set(tags)))


def check_comment(comment: str, pointer: str = "/comment") -> str:
    """The comment itself; ValidationFailed when it is too long."""
    if len(comment) > LONGEST_COMMENT:
        raise ValidationFailed(
            Sentence("a comment has at most %(longest_comment)s characters", longest_comment=LONGEST_COMMENT), pointer=pointer
        )
    return comment
