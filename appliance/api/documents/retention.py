"""/api/v1/documents/{document_id}/retention and /legal-hold, and /api/v1/documents/folder-rules."""

from typing import Annotated, Literal

from pydantic import Field

from appliance.api.frame.fields import UpdatedAt
from appliance.api.frame.routing import Body, Call, Query, View, route
from appliance.api.tenants.tenants import DeletedView
from appliance.core import clock
from appliance.core.errors import Conflict, NotFound
from appliance.documents import FolderRule, Retention, folder_rules, retention

from .document_views import DocumentId

RuleFolder = Annotated[
    str, Field(description="Path of the folder, such as `contracts/2026`, at most 500 characters; empty for all documents.")
]
Reason = Annotated[str, Field(description="Why the document is held, 1 to 1,000 characters.")]
Review = Annotated[
    Literal["none", "required"],
    Field(
        description="With `required`, only approved revisions are published or shared, in subfolders too; `none` asks for no "
        "review."
    ),
]
DeletionDays = Annotated[
    int,
    Field(
        description="Days after its newest revision when a document is deleted, unless retained or held; absent or null: never. A "
        "subfolder may have its own."
    ),
]


class LegalHoldView(View):
    """A legal hold: its reason, and who set it when."""

    reason: Reason
    held_at: Annotated[str, Field(description="Since when, RFC 3339 in UTC with milliseconds.")]
    held_by: Annotated[str, Field(description="Who set the hold or last changed its reason: `user:…` or `key:…`.")]


class RetentionView(View):
    """What prevents a document from being deleted; a member is absent where nothing is set."""

    document_id: DocumentId
    retain_until: Annotated[
        str | None, Field(description="Until when it cannot be deleted or moved, RFC 3339 in UTC; absent if it is not retained.")
    ] = None
    legal_hold: Annotated[
        LegalHoldView | None, Field(description="The hold that prevents deletion until it is released; absent if there is none.")
    ] = None


class RetainDocument(Body):
    """`retain_until` is an RFC 3339 time; null ends the retention."""

    retain_until: Annotated[
        str | None, Field(description="RFC 3339 time in the future, at most 100 years ahead; null ends the retention.")
    ]


class HoldDocument(Body):
    reason: Reason


class FolderRuleView(View):
    """The rule of a folder; it also applies to its subfolders."""

    folder: RuleFolder
    review: Review
    delete_after_days: DeletionDays | None = None
    updated_at: UpdatedAt
    updated_by: Annotated[str, Field(description="Who set the rule last: `user:…`, `key:…` or `system`.")]


class PutFolderRule(Body):
    """With `review: required`, only approved revisions may be published or shared. `delete_after_days` counts from a document's
    newest revision."""

    folder: RuleFolder
    review: Review = "none"
    delete_after_days: Annotated[DeletionDays, Field(ge=1, le=36_500)] | None = None


class FolderQuery(Query):
    folder: RuleFolder


def _view(state: Retention) -> RetentionView:
    hold = None
    if state.hold is not None:
        hold = LegalHoldView(reason=state.hold.reason, held_at=clock.rfc3339(state.hold.held_at), held_by=state.hold.held_by)
    until = clock.optional_rfc3339(state.retain_until)
    return RetentionView(document_id=state.document_id, retain_until=until, legal_hold=hold)


def _rule_view(rule: FolderRule) -> FolderRuleView:
    return FolderRuleView(
        folder=rule.folder, review=rule.review, delete_after_days=rule.delete_after_days,
        updated_at=clock.rfc3339(rule.updated_at), updated_by=rule.updated_by,
    )  # fmt: skip


@route("GET", "/documents/{document_id}/retention", scope="documents.read", returns=RetentionView)
def get_document_retention(call: Call, document_id: str) -> RetentionView:
    """Show what keeps a document from deletion.

    Its retention and its legal hold, which also keep it from being moved.
    """
    return _view(retention.get_retention(call.scope, document_id))


@route("PUT", "/documents/{document_id}/retention", scope="documents.retain", body=RetainDocument, returns=RetentionView)
def retain_document(call: Call, document_id: str) -> RetentionView:
    """Retain a document until a time.

    Before then it cannot be deleted or moved.
    """
    body: RetainDocument = call.body
    until = None if body.retain_until is None else clock.parse_rfc3339(body.retain_until, pointer="/retain_until")
    return _view(retention.set_retention(call.scope, document_id, until))


@route("PUT", "/documents/{document_id}/legal-hold", scope="documents.retain", body=HoldDocument, returns=RetentionView)
def hold_document(call: Call, document_id: str) -> RetentionView:
    """Put a document under a legal hold.

    Until it is released, the document cannot be deleted or moved. Repeating this changes the reason.
    """
    return _view(retention.set_hold(call.scope, document_id, call.body.reason))


@route("DELETE", "/documents/{document_id}/legal-hold", scope="documents.retain", returns=RetentionView)
def release_document(call: Call, document_id: str) -> RetentionView:
    """Release a document from its legal hold.

    Afterwards it can be deleted, unless its retention still forbids that.
    """
    return _view(retention.release_hold(call.scope, document_id))


@route("GET", "/documents/folder-rules", scope="documents.read", returns=list[FolderRuleView])
def list_folder_rules(call: Call) -> list[FolderRuleView]:
    """List the folder rules.

    A rule says whether documents need a review, and after how many days they are deleted; subfolders have it too.
    """
    return [_rule_view(rule) for rule in folder_rules.list_rules(call.scope)]


@route("PUT", "/documents/folder-rules", scope="documents.retain", body=PutFolderRule, returns=FolderRuleView, errors=(Conflict,))
def put_folder_rule(call: Call) -> FolderRuleView:
    """Set the rule of a folder.

    The folder may still be empty; a rule it has is replaced.
    """
    body: PutFolderRule = call.body
    return _rule_view(folder_rules.put_rule(call.scope, FolderRule(body.folder, body.review, body.delete_after_days)))


@route("DELETE", "/documents/folder-rules", scope="documents.retain", query=FolderQuery, returns=DeletedView, errors=(NotFound,))
def delete_folder_rule(call: Call) -> DeletedView:
    """Remove the rule of a folder.

    Its documents are then subject only to the rules of the folders above it.
    """
    folder_rules.delete_rule(call.scope, call.query.folder)
    return DeletedView(deleted=call.query.folder)
