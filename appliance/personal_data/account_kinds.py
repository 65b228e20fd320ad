"""The kinds that concern a person as such: the account, how they sign in, and what they visit."""

from appliance.core.texts import mark

from .kinds import Erasure, Form, Kind, Table

DELETE, PSEUDONYMISE, KEEP = Erasure.DELETE, Erasure.PSEUDONYMISE, Erasure.KEEP
ID, LOGIN, LISTED, KEY = Form.ID, Form.LOGIN, Form.LISTED, Form.KEY

WITH_ACCOUNT = mark("until the account is deleted")
A_DAY = mark("a day at most")
_A_WEEK = mark("a week at most")
_PROOF = mark("It shows how often a share was used. The address is replaced, and where it came from is emptied.")
_TRAIL = mark("Each entry contains the hash of the one before, so none can be changed; the trail proves who did what.")
_KEYS = mark("It shows what a key did. The key has ended, and is named by its id.")
_ADDRESSES = mark("It is a setting of the share: whoever manages it takes the address off the list.")
_FORMER = mark("The id in work and in audit trails needs a name to show; it is replaced by a pseudonym.")

ACCOUNT_KINDS = (
    Kind("account", mark("Account"), DELETE, (
        Table(
            "person", {"id": ID}, ("id", "login", "created_at", "language", "disabled_at", "password_expires_at"), has_tenant=False,
            with_account=True,
        ),
    ), period=WITH_ACCOUNT),
    Kind("former-account", mark("Login of a deleted account"), PSEUDONYMISE, (
        Table("deleted_person", {"id": ID}, ("id", "login", "deleted_at"), has_tenant=False, copies={"login": "id"}),
    ), reason=_FORMER, period=mark("as long as the appliance, under the pseudonym")),
    Kind("memberships", mark("Memberships and roles"), DELETE, (
        Table("membership", {"user_id": ID}, ("role", "approver", "source", "created_at", "steps_hidden_at"), with_account=True),
    ), period=mark("until somebody removes the member")),
    Kind("identities", mark("Accounts at identity providers"), DELETE, (
        Table(
            "person_identity", {"user_id": ID}, ("provider", "issuer", "subject", "created_at", "used_at", "disabled_at"),
            has_tenant=False,
        ),
        Table("provider_sign_in", {"user_id": ID}, ("issuer", "subject", "strong", "created_at"), has_tenant=False),
    ), period=WITH_ACCOUNT),
    Kind("provisioning", mark("What an identity provider sent"), DELETE, (
        Table(
            "scim_user", {"user_id": ID},
            ("provider", "user_name", "external_id", "active", "attributes", "disabled_at", "created_at", "updated_at"),
            has_tenant=False,
        ),
        Table("scim_member", {"user_id": ID}, ("group_id",), has_tenant=False),
    ), period=mark("until the provider or an operator deletes the account")),
    Kind("sign-ins", mark("Sign-ins, with browser and address"), DELETE, (
        Table("session", {"user_id": ID}, (
            "kind", "created_at", "expires_at", "browser", "system", "address", "used_address", "used_at", "proven_at",
        )),
        Table("step_up", {"user_id": ID}, ("target", "created_at", "expires_at")),
    ), setting="console.sign_in_days"),
    Kind("second-factors", mark("Second factors"), DELETE, (
        Table("second_factor", {"user_id": ID}, ("kind", "name", "created_at", "used_at"), has_tenant=False),
        Table("recovery_code", {"user_id": ID}, ("created_at", "used_at"), has_tenant=False),
    ), period=WITH_ACCOUNT),
    Kind("invitations-received", mark("Invitations they received"), DELETE, (
        Table("invitation", {"login": LOGIN}, ("role", "approver", "state", "created_at", "expires_at")),
    ), period=mark("until they are accepted, withdrawn or expire")),
    Kind("email-codes", mark("One-time codes sent to their address"), DELETE, (
        Table("email_code", {"email": LOGIN}, ("door", "state", "created_at", "expires_at")),
    ), period=A_DAY, is_of_visitors=True),
    Kind("visits", mark("Visits to WebApps"), DELETE, (
        Table(
            "webapp_visit", {"subject": ID, "email": LOGIN}, ("app_id", "kind", "created_at", "seen_at", "expires_at"),
        ),
        Table("webapp_sign_in", {"subject": ID}, ("app_id", "kind", "created_at", "expires_at")),
    ), period=_A_WEEK, is_of_visitors=True),
    Kind("downloads", mark("Downloads from shares with a verified address"), PSEUDONYMISE, (
        Table(
            "document_download", {"person": LOGIN},
            ("id", "document_id", "share_id", "at", "count", "bytes", "address", "agent", "outcome"),
            cleared=("address", "agent"), paged_by="id",
        ),
    ), reason=_PROOF, setting="retention.audit_days", is_of_visitors=True),
    Kind("share-audiences", mark("Shares that list their address"), KEEP, (
        Table("document_share", {"audience": LISTED}, ("id", "document_id", "created_at", "expires_at", "revoked_at")),
    ), reason=_ADDRESSES, period=mark("until the share expires or is revoked"), is_of_visitors=True),
    Kind("api-keys", mark("API keys they issued"), PSEUDONYMISE, (
        Table("api_key", {"issuer": ID, "created_by": ID}, (
            "id", "name", "environment", "kind", "scopes", "allowed_ips", "created_at", "expires_at", "last_used_at", "revoked_at",
        )),
    ), reason=mark("Audit trails and calls name the key. Unless an owner adopts it, it ends with the account."),
        period=mark("as long as the tenant")),
    Kind("service-accounts", mark("Service accounts they created or are responsible for"), PSEUDONYMISE, (
        Table("service_account", {"responsible": ID, "created_by": ID}, (
            "id", "title", "description", "scopes", "created_at", "disabled_at", "deleted_at",
        )),
    ), reason=mark("The account belongs to the tenant and continues. Owners see that nobody is responsible for it any more."),
        period=mark("as long as the tenant")),
    Kind("key-requests", mark("Requests of API keys they issued"), KEEP, (
        Table("key_request", {"key_id": KEY}, ("id", "at", "method", "path", "status", "address"), paged_by="id"),
    ), reason=_KEYS, setting="retention.key_requests_days"),
    Kind("key-addresses", mark("Addresses that API keys they issued were used from"), KEEP, (
        Table("key_address", {"key_id": KEY}, ("address", "first_at", "last_at")),
    ), reason=_KEYS, setting="retention.key_addresses_days"),
    Kind("repeated-requests", mark("Answers kept for repeated requests"), DELETE, (
        Table("idempotency", {"caller": ID}),
    ), period=A_DAY, is_exported=False),
    Kind("audit-trail", mark("Entries of audit trails"), KEEP, (
        Table("audit_entry", {"actor": ID, "subject": ID}, ("seq", "at", "actor", "action", "subject", "fields"), paged_by="seq"),
    ), reason=_TRAIL, setting="retention.audit_days"),
)  # fmt: skip
