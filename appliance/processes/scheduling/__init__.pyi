from . import backlog as backlog
from . import concurrency_quota as concurrency_quota
from .clock_jumps import JUMP_MS as JUMP_MS
from .fair_threads import FairThreadPool as FairThreadPool
