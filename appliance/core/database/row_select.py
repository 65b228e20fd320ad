"""SELECT statements that read whole rows of one model, without the slow ways of peewee."""

from functools import cache
from typing import Any

from peewee import BigIntegerField, CursorWrapper, IntegerField, ModelSelect, TextField


class RowSelect(ModelSelect):  # type: ignore[misc]  # peewee carries no types
    """peewee's SELECT of a model's fields.

    As long as these are all fields of the model, and no other table is joined, their part of the SQL is rendered once, and rows
    become models directly: peewee spends 500 bytecodes on each column and 1,200 on each row of a list.
    """

    def __init__(self, model: Any, fields: Any = ()) -> None:
        super().__init__(model, fields or model._meta.sorted_fields)
        self._all_fields = None if fields else self._returning  # Other columns replace `_returning`.

    def __sql_selection__(self, ctx: Any, is_subquery: bool = False) -> Any:
        if self._all_fields is not self._returning:
            return super().__sql_selection__(ctx, is_subquery)
        return ctx.literal(_columns(self.model, ctx.alias_manager[self.model._meta.table]))

    def _get_model_cursor_wrapper(self, cursor: Any) -> Any:
        if self._all_fields is not self._returning or self._joins or len(self._from_list) > 1:
            return super()._get_model_cursor_wrapper(cursor)
        return _Rows(cursor, self.model)


@cache
def _columns(model: Any, alias: str) -> str:
    return ", ".join(f'"{alias}"."{each.column_name}"' for each in model._meta.sorted_fields)


class _Rows(CursorWrapper):  # type: ignore[misc]
    """The rows of a cursor as models; its columns are the model's fields, in their order."""

    def __init__(self, cursor: Any, model: Any) -> None:
        super().__init__(cursor)
        self._model, (self._names, self._converters) = model, _fields_of(model)

    def process_row(self, row: Any) -> Any:
        instance = self._model(__no_default__=1)
        instance.__data__ = data = dict(zip(self._names, row, strict=True))
        for name, convert in self._converters:
            data[name] = convert(data[name])
        return instance


@cache
def _fields_of(model: Any) -> tuple[tuple[str, ...], tuple[tuple[str, Any], ...]]:
    """The names of the fields, and the conversions of those whose values the databases do not return as they are."""
    fields = model._meta.sorted_fields
    converted = [each for each in fields if type(each) not in (TextField, IntegerField, BigIntegerField)]
    return tuple(each.name for each in fields), tuple((each.name, each.python_value) for each in converted)
