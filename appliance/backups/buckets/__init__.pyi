from .addresses import is_bucket as is_bucket
from .folders import BucketFolder as BucketFolder
from .folders import open_folder as open_folder
from .objects import find_object as find_object
from .uploads import make_in_bucket as make_in_bucket
