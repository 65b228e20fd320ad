from .domains import Permission as Permission
from .domains import custom_hosts as custom_hosts
from .probing import Probing as Probing
