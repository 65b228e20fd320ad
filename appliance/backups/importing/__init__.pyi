from .preparation import SecretReplacement as SecretReplacement
from .requests import ImportRequest as ImportRequest
from .requests import ImportResult as ImportResult
