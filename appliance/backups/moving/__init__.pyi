from .installation import Move as Move
from .installation import MoveResult as MoveResult
from .installation import move_installation as move_installation
