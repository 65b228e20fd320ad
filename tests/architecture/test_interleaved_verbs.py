"""Every route that writes has a test with two writers interleaved, or a reason why it needs none."""

import ast

from appliance.api import load_routes
from tests.architecture.source_tree import ROOT

COVERED = {
    "tests/agents/test_interleaving.py": "start_run cancel_run create_agent put_agent delete_agent put_skill delete_skill",
    "tests/datapool/test_collection_interleaving.py": "create_collection change_collection delete_collection",
    "tests/datapool/test_interleaving.py": "create_entity update_entity replace_entity delete_entity run_batch",
    "tests/documents/test_interleaving.py": (
        "create_document change_document delete_document add_revision move_folder publish_document unpublish_document "
        "hold_document put_folder_rule request_review withdraw_review create_share revoke_share open_upload append_upload "
        "delete_upload"
    ),
    "tests/governance/test_interleaving.py": "request_human_input cancel_request",
    "tests/governance/test_policy_interleaving.py": (
        "put_policy delete_policy activate_policy deactivate_policy put_kill_switch"
    ),
    "tests/integrations/test_interleaving.py": (
        "create_integration change_integration delete_integration test_integration execute_action"
    ),
    "tests/llm/test_interleaving.py": "create_llm_profile put_llm_profile delete_llm_profile",
    "tests/monitor/test_interleaving.py": (
        "create_alert change_alert delete_alert change_failure create_webhook change_webhook delete_webhook rotate_webhook"
    ),
    "tests/processes/test_interleaving.py": "cancel_execution resume_execution",
    "tests/processes/test_process_interleaving.py": (
        "execute_process retry_execution create_process put_process delete_process publish_process roll_back_process pause_process "
        "resume_triggers put_sample"
    ),
    "tests/tenants/test_interleaving.py": (
        "add_member remove_member make_invitation revoke_invitation issue_key rotate_key revoke_key change_key set_secret "
        "delete_secret add_secret_binding remove_secret_binding create_service_account change_service_account "
        "delete_service_account issue_service_account_key"
    ),
    "tests/webapps/test_interleaving.py": (
        "create_webapp change_webapp delete_webapp create_webapp_version put_webapp_content finalize_webapp_version publish_webapp "
        "roll_back_webapp unpublish_webapp claim_webapp_domain change_webapp_domain release_webapp_domain"
    ),
}
UNCOVERED = {
    "writes nothing but a record of what was asked": (
        "try_settings query_entities evaluate_policies replay_policy validate_process test_process replay_execution plan_solution "
        "test_llm_profile"
    ),
    "repeats verbs that are covered, each in a write of its own": (
        "act_on_executions retry_failures import_entities put_webapp_contents"
    ),
    "one exclusive write of verbs that are covered, which plans again inside": "apply_solution",
    "one exclusive write of one row, which reads what it depends on inside": (
        "retain_document release_document delete_folder_rule update_share change_execution delete_sample adopt_key rename_tenant "
        "close_circuit disconnect_oauth test_alert test_webhook redeliver revoke_visit settle_call"
    ),
    "not tested; its effects outside have leases, keys or consents of their own": (
        "retry_call start_oauth put_domain_certificate delete_domain_certificate verify_webapp_domain preview_webapp"
    ),
}


def test_every_route_that_writes_is_named_once() -> None:
    """Whoever adds one says here which test interleaves it, or why none does."""
    names = [name for group in (*COVERED.values(), *UNCOVERED.values()) for name in group.split()]
    assert sorted(names) == sorted(route.name for route in load_routes() if route.method != "GET")


def test_the_named_tests_interleave() -> None:
    for path in COVERED:
        tree = ast.parse((ROOT / path).read_text())
        assert {"check_pair", "interleave"} & {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}, path
