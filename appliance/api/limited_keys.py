"""Which routes a key can use that is limited to named processes, collections and integrations; it is refused all others.

Each route is in exactly one of these groups, or in `REFUSED` of `tests/api/tenants/test_limited_keys.py`, which fails for others.
"""

from collections.abc import Mapping

from appliance.core.errors import KeyLimited, NotFound
from appliance.core.scope import TenantScope
from appliance.core.sentences import Sentence
from appliance.tenants.keys import lineage

from .frame.routing import Route


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


OF_PROCESS = _names("""
    execute_process list_executions get_execution change_execution list_steps list_execution_logs list_journal follow_execution
    cancel_execution retry_execution resume_execution get_retry_plan get_process list_versions get_version get_version_diff
    pause_process resume_triggers list_triggers list_firings list_samples get_sample
""")
OF_COLLECTION = _names("""
    get_collection list_entities create_entity get_entity update_entity replace_entity delete_entity list_entity_history
    follow_collection query_entities import_entities export_entities
""")
OF_INTEGRATION = _names("""
    get_integration list_actions get_action list_calls get_call execute_action retry_call settle_call test_integration close_circuit
""")
PATH_PARAMETERS = (
    ("process", "process_id", OF_PROCESS), ("collection", "collection", OF_COLLECTION), ("integration", "slug", OF_INTEGRATION),
)  # fmt: skip
"""The kind of resource that a path parameter of these routes names: outside the limits of the key, it is as unknown."""

NARROWED = _names("list_processes search_executions list_collections run_batch list_integrations search_calls")
"""Routes whose function of the domain leaves out, or does not find, what is outside the limits."""

OWN_KEYS = _names("get_key list_key_addresses list_key_requests rotate_key revoke_key change_key")
"""Routes about a key: a limited key can only use them for itself and for keys that descend from it."""

UNRELATED = _names("""
    issue_key get_tenant list_quotas list_skills get_skill get_skill_file
    list_documents create_document list_folders move_folder get_document change_document delete_document download_document
    get_document_text list_revisions add_revision get_document_preview get_document_retention retain_document hold_document
    release_document request_review list_reviews get_review withdraw_review list_shares create_share get_share update_share
    revoke_share list_downloads export_downloads publish_document get_publication unpublish_document
    list_folder_rules put_folder_rule delete_folder_rule
""")
"""Routes that concern no process, collection or integration.  A key issued by a limited one has at most its limits."""

REACHABLE = OF_PROCESS | OF_COLLECTION | OF_INTEGRATION | NARROWED | OWN_KEYS | UNRELATED


def check_limits(route: Route, scope: TenantScope, path_args: Mapping[str, str]) -> None:
    """If the caller's key is limited: KeyLimited for a route that could reach beyond, NotFound for a resource that is outside."""
    if scope.limits is None:
        return
    if route.name not in REACHABLE:
        raise KeyLimited(
            "this key is limited to some processes, collections and integrations, and this operation could reach others; use a key "
            "without this limit"
        )
    for kind, parameter, names in PATH_PARAMETERS:
        if route.name in names:
            scope.check_reach(kind, path_args[parameter])
    if route.name in OWN_KEYS and not _is_own(scope, path_args["key_id"]):
        raise NotFound(Sentence("there is no API key %(key_id)s in this tenant", key_id=repr(path_args["key_id"][:80])))


def _is_own(scope: TenantScope, key_id: str) -> bool:
    authority = lineage.load_authority(scope, key_id)
    return authority is not None and scope.actor in {f"key:{key.id}" for key in authority.chain}
