"""Filters of lists, as criteria of the appliance: attributes that equal a value, joined by `and`."""

from collections.abc import Mapping

from scim2_models import ScimFilter
from scim2_models.path import AttrPath, CompareOperator, Comparison, FilterNode, LogicalExpr, LogicalOperator, ValuePath

from appliance.core.errors import InvalidFilter
from appliance.core.sentences import Sentence
from appliance.tenants.provisioning import Criterion

from .resources import Group, User

USER_ATTRIBUTES: Mapping[str, str] = {"id": "id", "username": "login", "externalid": "external_id", "active": "active"}
GROUP_ATTRIBUTES: Mapping[str, str] = {
    "id": "id", "displayname": "display_name", "externalid": "external_id", "members": "member", "members.value": "member"
}
_TRUTH = {"true": True, "false": False}
_MOST_CHARACTERS = 2_000


def read_filter(text: str, model: type[User | Group]) -> tuple[Criterion, ...]:
    """The criteria of a filter; none for an empty one.  InvalidFilter for one that is not supported."""
    if not text:
        return ()
    if len(text) > _MOST_CHARACTERS:
        raise InvalidFilter(Sentence("a filter can have at most %(most)s characters", most=_MOST_CHARACTERS))
    attributes = USER_ATTRIBUTES if model is User else GROUP_ATTRIBUTES
    return tuple(_to_criterion(term, attributes, str(model.__schema__)) for term in _terms(ScimFilter(text).ast))


def _terms(node: FilterNode) -> tuple[FilterNode, ...]:
    if isinstance(node, LogicalExpr) and node.op == LogicalOperator.and_:
        return tuple(term for each in node.terms for term in _terms(each))
    return (node,)


def _to_criterion(node: FilterNode, attributes: Mapping[str, str], schema: str) -> Criterion:
    path = None
    if isinstance(node, ValuePath) and isinstance(node.val_filter, Comparison):
        path, node = AttrPath(node.attr_path.attr, str(node.val_filter.attr_path)), node.val_filter
    if not isinstance(node, Comparison) or node.op != CompareOperator.eq:
        raise _not_supported(attributes)
    path = path or node.attr_path
    if path.uri is not None and path.uri.casefold() != schema.casefold():
        raise _not_supported(attributes)
    field = attributes.get(f"{path.attr}.{path.sub_attr}".casefold() if path.sub_attr else path.attr.casefold())
    value = node.value
    if field == "active":
        value = _TRUTH.get(str(value).casefold())
    if field is None or not isinstance(value, bool if field == "active" else str):
        raise _not_supported(attributes)
    if not str(value).isprintable():
        raise InvalidFilter("a filter can have printable characters only")
    return Criterion(field, value)  # type: ignore[arg-type]


def _not_supported(attributes: Mapping[str, str]) -> InvalidFilter:
    return InvalidFilter(Sentence(
        "this filter is not supported; use `eq` with a value, joined by `and`, for %(names)s",
        names=", ".join(sorted(attributes)),
    ))
