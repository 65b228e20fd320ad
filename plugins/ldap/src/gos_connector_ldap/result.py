"""Result messages of a directory (RFC 4511 § 4.1.9), mapped to errors of the contract."""

from dataclasses import dataclass, field

from appliance.connectors.contract import (
    AuthError,
    ConfigError,
    ConnectorError,
    RateLimited,
    Rejected,
    SystemFailure,
    TransientError,
)
from gos_connector_ldap.ber import ENUMERATED, Reader

SUCCESS, REFERRAL, NO_SUCH_OBJECT = 0, 10, 32
# Size limit and administrative limit exceeded: the entries so far are valid but incomplete.
CUT_OFF = frozenset({4, 11})

_EXCERPT = 500
_NAMES = {
    1: "operationsError", 2: "protocolError", 3: "timeLimitExceeded", 4: "sizeLimitExceeded", 7: "authMethodNotSupported",
    8: "strongerAuthRequired", 10: "referral", 11: "adminLimitExceeded", 12: "unavailableCriticalExtension",
    13: "confidentialityRequired", 16: "noSuchAttribute", 17: "undefinedAttributeType", 18: "inappropriateMatching",
    21: "invalidAttributeSyntax", 32: "noSuchObject", 34: "invalidDNSyntax", 48: "inappropriateAuthentication",
    49: "invalidCredentials", 50: "insufficientAccessRights", 51: "busy", 52: "unavailable", 53: "unwillingToPerform", 80: "other",
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """The result of a request: its code, the directory's message, and the URLs of other servers."""

    code: int
    message: str = ""
    referrals: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return _NAMES.get(self.code, f"code {self.code}")


def read_result(reader: Reader) -> Result:
    """Read a result; BerError when it is malformed."""
    code = reader.number(ENUMERATED)
    reader.text()  # The matched part of the DN.
    message = reader.text().replace("\x00", "").strip()[:_EXCERPT]
    referrals: list[str] = []
    if reader.next_tag() == 0xA3:
        inner = Reader(reader.take(0xA3))
        while inner.next_tag() is not None and len(referrals) < 10:
            referrals.append(inner.text()[:_EXCERPT])
    return Result(code, message, referrals)


def error_of(result: Result, peer: str, *, signed_in: bool) -> ConnectorError:
    """Return the contract's error for an unsuccessful result."""
    details = {"code": result.code, "name": result.name, "message": result.message}
    reason = f"{result.name}{f': {result.message}' if result.message else ''}"
    match result.code:
        case 49 | 48 | 7:
            return AuthError(f"{peer} does not accept `bind_dn` and `password` ({reason}).", details=details)
        case 8 | 13:
            return ConfigError(f"{peer} requires encryption or a sign-in ({reason}); set `tls` and `bind_dn`.", details=details)
        case 50:
            return AuthError(f"{peer} denies access to this user ({reason}).", details=details)
        case 1 if not signed_in:
            # Active Directory answers a search without a sign-in like this.
            return AuthError(f"{peer} requires a sign-in ({reason}); set `bind_dn` and `password`.", details=details)
        case 4 | 11:
            return Rejected(
                f"{peer} returned no entries because the search or the page is too large ({reason}); lower `page_size` in the "
                "settings, or narrow the search.",
                details=details,
            )
        case 3:
            return TransientError(f"{peer} exceeded its time limit for this search ({reason}).", details=details)
        case 51:
            return RateLimited(f"{peer} is too busy ({reason}).", details=details)
        case 52:
            return TransientError(f"{peer} is not available ({reason}).", details=details)
        case 1 | 80:
            return SystemFailure(f"{peer} failed ({reason}).", details=details)
        case 10:
            details["referrals"] = result.referrals
            return Rejected(f"{peer} does not hold this part of the tree; query the servers in `referrals`.", details=details)
        case 32:
            return Rejected(f"{peer} has no entry with this DN, or it is not visible ({reason}).", details=details)
    return Rejected(f"{peer} refused ({reason}).", details=details)
