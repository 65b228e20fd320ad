from .compatibility import declaration_of as declaration_of
from .reloading import Watch as Watch
from .scaffold import write_package_declaration as write_package_declaration
from .scaffold import write_scaffold as write_scaffold
