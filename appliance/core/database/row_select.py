"""SELECT statements that read fields of one model, without the slow ways of peewee."""

from functools import cache
from typing import Any

from peewee import BigIntegerField, CursorWrapper, Field, IntegerField, ModelSelect, TextField


class RowSelect(ModelSelect):  # type: ignore[misc]  # peewee carries no types
    """peewee's SELECT of some or all fields of a model.

    As long as it reads nothing but fields of the model, and no other table is joined, their part of the SQL is rendered once, and
    rows become models directly: peewee spends 500 bytecodes on each column and 1,200 on each row of a list.
    """

    def __init__(self, model: Any, fields: tuple[Any, ...] = ()) -> None:
        fields = fields or tuple(model._meta.sorted_fields)
        super().__init__(model, fields)
        is_plain = all(isinstance(each, Field) and each.model is model for each in fields)
        # peewee replaces `_returning` when other columns are selected.
        self._plain, self._names = self._returning if is_plain else None, tuple(each.name for each in fields) if is_plain else ()

    def __sql_selection__(self, ctx: Any, is_subquery: bool = False) -> Any:
        if self._plain is not self._returning:
            return super().__sql_selection__(ctx, is_subquery)
        return ctx.literal(_columns(self.model, self._names, ctx.alias_manager[self.model._meta.table]))

    def _get_model_cursor_wrapper(self, cursor: Any) -> Any:
        if self._plain is not self._returning or self._joins or len(self._from_list) > 1:
            return super()._get_model_cursor_wrapper(cursor)
        return _Rows(cursor, self.model, self._names)


@cache
def _columns(model: Any, names: tuple[str, ...], alias: str) -> str:
    return ", ".join(f'"{alias}"."{model._meta.fields[name].column_name}"' for name in names)


class _Rows(CursorWrapper):  # type: ignore[misc]
    """The rows of a cursor as models; its columns are the fields `names`."""

    def __init__(self, cursor: Any, model: Any, names: tuple[str, ...]) -> None:
        super().__init__(cursor)
        self._model, self._names, self._conversions = model, names, _conversions(model, names)

    def process_row(self, row: Any) -> Any:
        instance = self._model(__no_default__=1)
        instance.__data__ = data = dict(zip(self._names, row, strict=True))
        for name, convert in self._conversions:
            data[name] = convert(data[name])
        return instance


@cache
def _conversions(model: Any, names: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    """Those of the fields whose values the databases do not return as they are."""
    fields = [model._meta.fields[name] for name in names]
    return tuple((each.name, each.python_value) for each in fields if type(each) not in (TextField, IntegerField, BigIntegerField))
