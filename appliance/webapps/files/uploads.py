"""Receives the contents of a version that is being uploaded: verified, stored, and compressed at once.

Compressing each content as it arrives leaves little work for `finalize_version`.
"""

from collections.abc import Mapping, Sequence
from typing import BinaryIO

from appliance.blobs import ArchiveLimits, Blobs, ReceivedFile, read_members
from appliance.core.database import db
from appliance.core.errors import ApplianceError, NotFound, ValidationFailed
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.webapps import versions
from appliance.webapps.models import FileRow, VersionRow
from appliance.webapps.records import FileSpec

from .limits import Limits
from .preparation import EncodedForm, prepare_contents


def put_content(scope: TenantScope, blobs: Blobs, row: VersionRow, sha256: str, received: ReceivedFile) -> None:
    """Store one content; NotFound when the version does not list this sha256, ValidationFailed when different bytes arrived."""
    of_content = (FileRow.app_id == row.app_id, FileRow.number == row.number, FileRow.sha256 == sha256)
    spec = scope.select(FileRow).where(*of_content).first()
    if spec is None:
        raise NotFound(Sentence(
            "no file of version %(number)s has the content %(sha256)s; send only the contents listed under required",
            number=row.number, sha256=repr(sha256[:80]),
        ))
    if (received.sha256, received.size) != (spec.sha256, spec.size):
        raise ValidationFailed(Sentence(
            "received %(size)s bytes with the sha256 %(sha256)s instead of %(size2)s bytes; send the content again",
            size=received.size, sha256=received.sha256, size2=spec.size,
        ))
    blobs.put_received(scope, received)
    _prepare(scope, blobs, row, versions.new_contents(scope, row.app_id, row.number, sha256))


def put_contents(scope: TenantScope, blobs: Blobs, row: VersionRow, file: BinaryIO, limits: Limits) -> list[FileSpec]:
    """Store the members of an archive; ValidationFailed at the first that is no content of the version. Names are ignored."""
    expected = versions.all_contents(scope, row.app_id, row.number)
    stored = []
    with blobs.batch(scope) as batch:
        for member in read_members(file, ArchiveLimits(limits.files, limits.bytes)):
            received = blobs.receive(member.pieces)
            spec = FileSpec(received.sha256, received.size)
            if spec not in expected:
                received.discard()
                reason = Sentence(
                    "the archive member %(path)s is not a content of version %(number)s",
                    path=repr(member.path[:100]), number=row.number,
                )
                raise ValidationFailed(Sentence(
                    "%(text)s: received %(size)s bytes with the sha256 %(sha256)s; correct the archive and send it again",
                    text=reason, size=spec.size, sha256=spec.sha256,
                ))
            batch.add(received)
            stored.append(spec)
    received_specs = set(stored)
    new_contents = versions.new_contents(scope, row.app_id, row.number)
    _prepare(scope, blobs, row, [(path, spec) for path, spec in new_contents if spec in received_specs])
    return stored


def put_files(scope: TenantScope, blobs: Blobs, files: Mapping[str, bytes]) -> dict[str, FileSpec]:
    """Store the contents of a version that is not created yet."""
    specs = {}
    with blobs.batch(scope) as batch:
        for path, content in files.items():
            received = blobs.receive(content)
            batch.add(received)
            specs[path] = FileSpec(received.sha256, received.size)
    return specs


def _prepare(scope: TenantScope, blobs: Blobs, row: VersionRow, contents: Sequence[tuple[str, FileSpec]]) -> None:
    try:
        forms = prepare_contents(scope, blobs, contents)
    except ApplianceError as error:
        if error.status == 422:
            versions.fail(scope, row, error.message)
        raise
    db.write(lambda: save_forms(scope, blobs, row, forms))


def save_forms(scope: TenantScope, blobs: Blobs, row: VersionRow, forms: Sequence[EncodedForm]) -> None:
    """Inside a write; NotFound when the version was deleted after its contents arrived."""
    versions.get_row(scope, row.app_id, row.number)
    versions.insert_forms(scope, blobs, row.app_id, forms)
