from . import backlog as backlog
from .clock_jumps import JUMP_MS as JUMP_MS
from .fair_threads import FairThreadPool as FairThreadPool
