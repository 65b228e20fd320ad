"""The filter grammar: conditions are parsed into one tree, then evaluated in Python or compiled to SQL with the same result."""

from appliance.conditions.binding import bind
from appliance.conditions.evaluation import matches
from appliance.conditions.parsing import parse
from appliance.conditions.sql import Column, Related, Sql, all_of, any_of, compile_condition
from appliance.conditions.strict_evaluation import UNKNOWN, Incomparable, Test, compile_test
from appliance.conditions.tree import GROUPS, OPERATORS, AllOf, AnyOf, Compare, Condition, Field, Inside, Never, Placeholder

__all__ = [
    "GROUPS",
    "OPERATORS",
    "UNKNOWN",
    "AllOf",
    "AnyOf",
    "Column",
    "Compare",
    "Condition",
    "Field",
    "Incomparable",
    "Inside",
    "Never",
    "Placeholder",
    "Related",
    "Sql",
    "Test",
    "all_of",
    "any_of",
    "bind",
    "compile_condition",
    "compile_test",
    "matches",
    "parse",
]
