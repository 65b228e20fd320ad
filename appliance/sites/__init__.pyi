from .demo import make_demo as make_demo
from .hosts import build_sites as build_sites
