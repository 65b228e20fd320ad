"""Names, folders and tags of documents: what is accepted, and a sender's file name made harmless."""

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
# Path and shell characters, and what changes the reading direction of a name ("invoice\u202efdp.exe").
_HARMFUL = re.compile(r'[\x00-\x1f\x7f-\x9f/\\:*?"<>|\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]')


def clean_name(name: str) -> str:
    """The last part of a path without characters that harm, at most 200 long with its extension; `document` for nothing."""
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    plain = "".join(letter for letter in _HARMFUL.sub("_", last) if letter.isprintable()).strip(" .")
    if len(plain) > LONGEST_NAME:
        stem, dot, extension = plain.rpartition(".")
        keep = f"{dot}{extension}" if stem and len(extension) <= 20 else ""
        plain = plain[: LONGEST_NAME - len(keep)].rstrip(" .") + keep
    return plain or "document"


def disposition(name: str, kind: Literal["attachment", "inline"]) -> str:
    """Content-Disposition (RFC 6266) of a file with this name: in ASCII for old clients, and as it is."""
    plain = "".join(letter if letter.isascii() and letter not in '"\\%' else "_" for letter in name)
    exact = "" if plain == name else f"; filename*=UTF-8''{quote(name, safe='')}"
    return f'{kind}; filename="{plain}"{exact}'


def check_name(name: str, pointer: str = "/name") -> str:
    """The name itself when cleaning leaves it as it is; ValidationFailed suggests a better one."""
    if clean_name(name) != name:
        raise ValidationFailed(
            Sentence(
                "%(name)s is not a name for a document; %(name2)s would be", name=repr(name[:80]), name2=repr(clean_name(name))
            ),
            pointer=pointer,
        )
    return name


def check_folder(folder: str, pointer: str = "/folder") -> str:
    """`a/b` without slashes around it; the root is empty."""
    plain = folder.strip("/")
    if len(plain) > LONGEST_FOLDER or any(clean_name(part) != part for part in plain.split("/") if plain):
        raise ValidationFailed(
            Sentence(
                "%(folder)s is not a folder; write it like invoices/2026, at most %(longest_folder)s characters",
                folder=repr(folder[:80]), longest_folder=LONGEST_FOLDER,
            ),
            pointer=pointer,
        )
    return plain


def check_tags(tags: Sequence[str], pointer: str = "/tags") -> tuple[str, ...]:
    """The tags in order, each once."""
    if len(tags) > MOST_TAGS:
        raise ValidationFailed(Sentence("a document has at most %(most_tags)s tags", most_tags=MOST_TAGS), pointer=pointer)
    for index, tag in enumerate(tags):
        if not 1 <= len(tag) <= LONGEST_TAG or not tag.isprintable() or tag != tag.strip() or "," in tag:
            raise ValidationFailed(
                Sentence(
                    "%(tag)s is not a tag; use 1 to %(longest_tag)s characters without commas",
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
