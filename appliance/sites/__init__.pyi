from .demo import make_demo as make_demo
from .hosts import make_sites as make_sites
