from .addresses import is_host_name as is_host_name
from .addresses import parse_address as parse_address
from .host_names import normal_glob as normal_glob
from .host_names import normal_host as normal_host
from .host_names import without_port as without_port
from .resolving import resolving_for as resolving_for
