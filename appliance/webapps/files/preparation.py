"""Prepares new contents before a version is ready: rejects API keys, and compresses with gzip.

Stronger, slower compression is done later by `compression`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any

from appliance.blobs import BYTES_TOGETHER, LARGEST, MOST_TOGETHER, Blobs, LocatedContent, ReceivedFile, is_worth_a_try, quick_forms
from appliance.core.errors import ApiKeyLeaked
from appliance.core.pools import WEBAPP_FILES, open_pool
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.tenants.keys import contains_key
from appliance.webapps.records import FileSpec, NewVersion

IDENTITY = "identity"


@dataclass(frozen=True)
class EncodedForm:
    """One encoding of a content: `sha256` is the blob of the encoded bytes; `is_pending` means that stronger encodings follow."""

    content: str
    encoding: str
    sha256: str
    size: int
    is_pending: bool = False


@dataclass(frozen=True)
class Prepared:
    """A version whose contents are stored, but not its rows."""

    new: NewVersion
    rules: Mapping[str, Any]
    forms: Sequence[EncodedForm]


def prepare_contents(scope: TenantScope, blobs: Blobs, files: Sequence[tuple[str, FileSpec]]) -> list[EncodedForm]:
    """Create and store the quick encodings of these files' contents; ApiKeyLeaked names a file that contains a key."""
    forms: list[EncodedForm] = []
    with open_pool(WEBAPP_FILES) as threads:
        for group in _groups(files):
            located = blobs.locate(scope, [spec.sha256 for _, spec in group])
            tasks = [threads.submit(_prepare, blobs, path, located[spec.sha256]) for path, spec in group]
            wait(tasks)
            received = [each for task in tasks if task.exception() is None for _, each in task.result()]
            if failed := next((task for task in tasks if task.exception()), None):
                for blob in received:
                    blob.discard()
                failed.result()
            blobs.put_all(scope, received)
            for (path, spec), task in zip(group, tasks, strict=True):
                is_pending = is_worth_a_try(path, spec.size)
                forms.append(EncodedForm(spec.sha256, IDENTITY, spec.sha256, spec.size, is_pending=is_pending))
                forms.extend(EncodedForm(spec.sha256, encoding, each.sha256, each.size) for encoding, each in task.result())
    return forms


def _groups(files: Sequence[tuple[str, FileSpec]]) -> Iterator[list[tuple[str, FileSpec]]]:
    """Batches that bound the memory in use, and the work lost on a failure."""
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


def _prepare(blobs: Blobs, path: str, content: LocatedContent) -> list[tuple[str, ReceivedFile]]:
    """Runs on a thread of its own, and uses no database."""
    if content.size > LARGEST:
        _reject_keys(path, content.pieces())
        return []
    data = b"".join(content.pieces())
    _reject_keys(path, [data])
    if not is_worth_a_try(path, content.size):
        return []
    return [(encoding, blobs.receive(form)) for encoding, form in quick_forms(data)]


def _reject_keys(path: str, pieces: Iterable[bytes]) -> None:
    """Every browser could read a key in a served file."""
    if contains_key(pieces):
        raise ApiKeyLeaked(
            Sentence(
                "%(path)s contains an API key that anyone could read: revoke the key, remove it and deploy again",
                path=path,
            ),
            pointer=f"/files/{path}",
        )
