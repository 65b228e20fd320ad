"""Which provider sends a request, and what the configuration of this appliance reserves from providers."""

from appliance.core.config import Config
from appliance.core.config.sign_in import IdentityProvider
from appliance.core.crypto import Sealer
from appliance.core.errors import ExpiredApiKey, InvalidApiKey, RevokedApiKey
from appliance.tenants.keys.lineage import RateLimit
from appliance.tenants.rate_limits import RateLimiter
from appliance.tenants.sign_in import Attempts, open_counts
from appliance.tenants.single_sign_on.accounts import ReservedLogins

from . import tokens

REQUESTS, WINDOW_S = 3_000, 60  # Microsoft asks for 25 requests a second
TOKENS = ("scim", "token")


class Provisioning:
    """The providers whose `scim` is on, and the logins that none of them gets; `rates` counts their requests."""

    def __init__(self, config: Config, sealer: Sealer, rates: RateLimiter) -> None:
        self._providers = {each.id: each for each in config.sign_in.providers if each.scim}
        self._sealer, self._rates = sealer, rates
        self.reserved = ReservedLogins(config.console.administrators, config.sign_in.break_glass)
        self.attempts = Attempts(free=20, first=2.0, longest=300.0, counts=open_counts("scim token"))

    def authenticate(self, token: str, address: str) -> IdentityProvider:
        """The provider that this token belongs to.

        InvalidApiKey, RevokedApiKey, ExpiredApiKey; RateLimited for requests of the provider, or tokens of the address.
        """
        try:
            known = tokens.find_token(self._sealer, token)
            provider = self._providers.get(known.provider)
            if provider is None:
                raise InvalidApiKey("the provider of this token is not in sign_in.providers with scim on")
        except (InvalidApiKey, RevokedApiKey, ExpiredApiKey):
            self.attempts.begin(TOKENS, address)
            raise
        self._rates.count_requests(RateLimit(f"scim:{provider.id}", REQUESTS, WINDOW_S))
        return provider
