from .frame.blueprint import make_blueprint as make_blueprint
from .frame.direct_routes import answer_routes as answer_routes
from .frame.docs import make_docs as make_docs
from .frame.route_modules import load_appliance_routes as load_appliance_routes
from .frame.route_modules import load_routes as load_routes
from .frame.routing import Route as Route
from .shapes import make_shapes as make_shapes
