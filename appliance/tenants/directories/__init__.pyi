from .client import DirectoryClient as DirectoryClient
from .client import DirectoryFailed as DirectoryFailed
from .names import parse_dn as parse_dn
