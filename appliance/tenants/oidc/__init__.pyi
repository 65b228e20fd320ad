from .client import AuthorizationResponse as AuthorizationResponse
from .client import Identity as Identity
from .client import OidcClient as OidcClient
from .discovery import ProviderFailed as ProviderFailed
