"""Descriptions of requests for people, in the reader's language."""

from appliance.core.texts import gettext as _
from appliance.core.texts import mark
from appliance.governance.approvals.approvals import Approval

# Names of the built-in tools; any other tool is shown by its own name.
TOOL_LABELS = {
    "execute_process": mark("Execute a process"),
    "get_execution": mark("View an execution"),
    "list_tenant_integrations": mark("List the integrations"),
    "list_tenant_skills": mark("List the skills"),
    "load_tenant_skill": mark("Load a skill"),
    "publish_webapp": mark("Publish a WebApp"),
    "query_entities": mark("Query entities of DataPool"),
    "read_document": mark("Read a document"),
    "read_logs": mark("Read logs"),
    "search_documents": mark("Search documents"),
    "write_entities": mark("Write entities to DataPool"),
}


def describe_request(approval: Approval) -> str:
    """The action that a request is about, or the requester's title if it is about none."""
    return describe_action(approval) or approval.about.heading or approval.request.title


def describe_action(approval: Approval) -> str:
    """The action in words, derived from its tool, or its operation and integration; empty if there is none."""
    heading = approval.about.heading if approval.about.digest is not None else ""
    operation, of, integration = heading.rpartition(" of ")
    if of:
        return _("Call %(operation)s of %(integration)s", operation=operation, integration=integration)
    return _(TOOL_LABELS[heading]) if heading in TOOL_LABELS else heading
