"""What happens to new contents before a version is ready: no API key may be in them, and they are compressed by gzip.

What takes longer, `compression` does later.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from appliance.blobs import BYTES_TOGETHER, LARGEST, MOST_TOGETHER, Blobs, Located, Received, is_worth_a_try, quick_forms
from appliance.core.errors import ApiKeyLeaked
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.tenants.keys import holds_key
from appliance.webapps.records import FileSpec, NewVersion

IDENTITY = "identity"
AT_ONCE = 4


@dataclass(frozen=True)
class Form:
    """A content as it is sent: `sha256` is the blob of this form; `is_pending`: further forms are to come."""

    content: str
    encoding: str
    sha256: str
    size: int
    is_pending: bool = False


@dataclass(frozen=True)
class Prepared:
    """A version whose contents are stored, as far as no row tells of it."""

    new: NewVersion
    rules: Mapping[str, Any]
    forms: Sequence[Form]


def prepare_contents(scope: TenantScope, blobs: Blobs, files: Sequence[tuple[str, FileSpec]]) -> list[Form]:
    """The forms of these files' contents that are made at once, each stored; ApiKeyLeaked names the file that holds a key."""
    forms: list[Form] = []
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webapp") as threads:
        for group in _groups(files):
            located = blobs.locate(scope, [spec.sha256 for _, spec in group])
            going = [threads.submit(_prepare, blobs, path, located[spec.sha256]) for path, spec in group]
            wait(going)
            received = [each for task in going if task.exception() is None for _, each in task.result()]
            if failed := next((task for task in going if task.exception()), None):
                for each in received:
                    each.discard()
                failed.result()
            blobs.put_all(scope, received)
            for (path, spec), task in zip(group, going, strict=True):
                is_pending = is_worth_a_try(path, spec.size)
                forms.append(Form(spec.sha256, IDENTITY, spec.sha256, spec.size, is_pending=is_pending))
                forms.extend(Form(spec.sha256, encoding, each.sha256, each.size) for encoding, each in task.result())
    return forms


def _groups(files: Sequence[tuple[str, FileSpec]]) -> Iterator[list[tuple[str, FileSpec]]]:
    """So many at a time that little is lost, and little memory taken."""
    group: list[tuple[str, FileSpec]] = []
    size = 0
    for path, spec in files:
        if group and (len(group) == MOST_TOGETHER or size + spec.size > BYTES_TOGETHER):
            yield group
            group, size = [], 0
        group.append((path, spec))
        size += spec.size
    if group:
        yield group


def _prepare(blobs: Blobs, path: str, content: Located) -> list[tuple[str, Received]]:
    """On a thread of its own, which uses no database."""
    if content.size > LARGEST:
        _refuse_keys(path, content.pieces())
        return []
    data = b"".join(content.pieces())
    _refuse_keys(path, [data])
    if not is_worth_a_try(path, content.size):
        return []
    return [(encoding, blobs.receive(form)) for encoding, form in quick_forms(data)]


def _refuse_keys(path: str, pieces: Iterable[bytes]) -> None:
    """Every browser could read it there."""
    if holds_key(pieces):
        raise ApiKeyLeaked(
            Sentence(
                "%(path)s holds an API key, which everybody could read there: revoke the key, take it out and deploy again",
                path=path,
            ),
            pointer=f"/files/{path}",
        )
