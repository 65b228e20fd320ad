"""What the parameters in the paths of the API mean, as the OpenAPI document describes them."""

from collections.abc import Mapping

_DESCRIPTIONS: Mapping[str, str] = {
    "account_id": "Slug of the service account, as it was created.",
    "action": "Name of an action of the integration, as its list of actions shows it.",
    "agent_id": "Slug of the agent, as it was created.",
    "alert_id": "Identifies the alert; `id` in the list of alerts.",
    "app": "Id of the WebApp: at most 24 lower-case letters, digits and hyphens.",
    "approval_id": "Identifies the request to people; `id` in the list of approvals.",
    "binding_id": "Identifies the destination among those of the secret; `sbd_…`.",
    "call_id": "Identifies the call of the integration; `id` in the list of calls.",
    "collection": "Name of the collection, as it was created.",
    "connector": "Name of an installed connector, such as `http`.",
    "delivery_id": "Identifies the delivery; `id` in the list of the webhook's deliveries.",
    "document_id": "Identifies the document; `doc_…`.",
    "entity_id": "Identifies the entity within its collection.",
    "execution_id": "Identifies the execution; `id` in the list of executions.",
    "failure_id": "Identifies the group of failures; `id` in the list of failures.",
    "host": "Host name of the domain, as DNS writes it (punycode).",
    "invitation_id": "Identifies the invitation; `inv_…`.",
    "key_id": "Identifies the key; `key_…`, which is not the key's text.",
    "path": "Path of the file within the skill, at most 300 characters; its slashes may be written as `%2F`.",
    "policy": "Slug of the policy, as it was created.",
    "process_id": "Slug of the process, as it was created.",
    "review_id": "Identifies the review; `rev_…`.",
    "run_id": "Identifies the run of the agent; `id` in the list of runs.",
    "sha256": "SHA-256 digest of the content, 64 lower-case hexadecimal digits.",
    "share_id": "Identifies the share; `shr_…`.",
    "tenant_id": "Slug of the tenant.",
    "token_id": "Identifies the SCIM token; `sct_…`, which is not the token's text.",
    "trigger_id": "Id of the trigger in the process's definition.",
    "upload_id": "Identifies the upload; `upl_…`.",
    "user_id": "Identifies the person; `usr_…`.",
    "version": "Number of the version, counted from 1.",
    "visit": "Identifies the visit; `vis_…`.",
    "webhook_id": "Identifies the webhook; `id` in the list of webhooks.",
}
_BY_FAMILY: Mapping[tuple[str, str], str] = {
    ("appliance", "number"): "Number of the backup.",
    ("integrations", "slug"): "Slug of the integration, as it was created.",
    ("llm-profiles", "slug"): "Slug of the LLM profile, as it was created.",
    ("processes", "name"): "Name of the sample, as it was stored.",
    ("secrets", "name"): "Name of the secret: at most 63 letters, digits and underscores.",
    ("skills", "name"): "Name of the skill, as it was stored.",
}


def describe_parameter(path: str, name: str) -> str:
    """The description of the parameter `name` of a path such as `/documents/{document_id}`; KeyError if there is none."""
    return _BY_FAMILY.get((path.split("/")[1], name)) or _DESCRIPTIONS[name]
