from . import backlog as backlog
from .clock_jumps import JUMP_MS as JUMP_MS
from .shared_threads import SharedThreads as SharedThreads
