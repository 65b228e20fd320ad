from .domains import CertificatePermission as CertificatePermission
from .domains import custom_hosts as custom_hosts
from .smoke_probe import SmokeProbe as SmokeProbe
