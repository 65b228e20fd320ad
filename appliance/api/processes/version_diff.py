"""/api/v1/processes/{id}/versions/{n}/diff: compare two versions, or a version with the draft."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from appliance.api.frame.routing import Call, Query, View, route
from appliance.core.errors import ValidationFailed
from appliance.processes.definitions import Comparison, FileChange, StepChange, version_diff

from .execution_views import StepId
from .processes import version_number
from .replay import DifferenceView, difference_view


class DiffQuery(Query):
    against: Annotated[Annotated[int, Field(ge=1, le=10**9)] | Literal["draft"] | None, Field(description=(
        "The version to compare with, or `draft`; default: the version before."
    ))] = None


class StepChangeView(View):
    """One step; `changes` covers its own members, not the steps inside it, and `moved` says that its place has changed."""

    step: StepId
    happened: Annotated[
        Literal["added", "removed", "changed"], Field(description="Whether the newer version added, removed or changed the step.")
    ]
    moved: Annotated[bool, Field(description="Whether the place of the step among the steps of both versions has changed.")]
    changes: Annotated[
        list[DifferenceView], Field(description="The changes of the step's own members, without those of the steps inside it.")
    ]


class FileChangeView(View):
    """One file; `diff` is a unified diff, absent if the files are too long."""

    path: Annotated[str, Field(description="The path of the file in the process, such as `steps/push.ts`.")]
    happened: Annotated[
        Literal["added", "removed", "changed"], Field(description="Whether the newer version added, removed or changed the file.")
    ]
    diff: Annotated[str | None, Field(description=(
        "The changed lines as a unified diff with 3 lines of context. Absent if the files are too long."
    ))] = None


class DiffView(View):
    """The changes from `from` to `to`: `changes` outside the steps, then `steps` by id, then `files`."""

    model_config = ConfigDict(serialize_by_alias=True, populate_by_name=True)

    from_: Annotated[int | Literal["draft"], Field(alias="from", description=(
        "The older side: a version, or `draft`; 0 if the first version is compared with nothing."
    ))]
    to: Annotated[int | Literal["draft"], Field(description="The newer side: a version, or `draft`.")]
    identical: Annotated[bool, Field(description="Whether both sides have the same definition and files.")]
    changes: Annotated[list[DifferenceView], Field(description="The changes of the definition outside of its steps.")]
    steps: Annotated[list[StepChangeView], Field(description="The steps that were added, removed, changed or moved, by id.")]
    files: Annotated[list[FileChangeView], Field(description="The files that were added, removed or changed, by path.")]


def _step(change: StepChange) -> StepChangeView:
    changes = [difference_view(each) for each in change.changes]
    return StepChangeView(step=change.step, happened=change.happened, moved=change.moved, changes=changes)


def _file(change: FileChange) -> FileChangeView:
    return FileChangeView(path=change.path, happened=change.happened, diff=change.diff)


def diff_view(comparison: Comparison) -> DiffView:
    diff = comparison.diff
    return DiffView(
        from_=comparison.older, to=comparison.newer, identical=diff.is_identical,
        changes=[difference_view(each) for each in diff.changes],
        steps=[_step(each) for each in diff.steps], files=[_file(each) for each in diff.files],
    )  # fmt: skip


@route(
    "GET", "/processes/{process_id}/versions/{version}/diff", scope="processflow.read", query=DiffQuery, returns=DiffView,
    errors=(ValidationFailed,),
)  # fmt: skip
def get_version_diff(call: Call, process_id: str, version: str) -> DiffView:
    """Compare a version with another or the draft.

    `against` is another version or `draft`, by default the version before it. Changes go from the older to the newer one, and
    the draft counts as newest; the first version is compared with nothing.
    """
    return diff_view(version_diff.compare(call.scope, process_id, version_number(version), call.query.against))
