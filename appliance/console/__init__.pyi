from .blueprint import register as register
from .extraction import WAITS as WAITS
from .extraction import extract as extract
from .extraction import needed as needed
