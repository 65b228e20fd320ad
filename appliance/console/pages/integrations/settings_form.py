"""The form of a connector's settings.

A secret that was entered is never shown again: it is carried from page to page in an encrypted hidden field.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any

from appliance.connectors import translate_schema
from appliance.console.frame.forms import Field, InputForm, member_of, pointer_parts, read_form
from appliance.console.frame.routing import Visit
from appliance.core import clock
from appliance.core.errors import ConfigInvalid, Detail
from appliance.integrations import is_marker

DRAFT = "draft"
FORGET = "forget:"
RETENTION_MS = 3_600_000
TYPED, SEALED, FORGOTTEN = "typed", "sealed", "forgotten"


class SettingsForm:
    """The fields of a connector's settings; `stored` are the saved settings of an integration, with markers for secrets."""

    def __init__(self, visit: Visit, connector: str, schema: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> None:
        self._visit = visit
        self._context = f"{visit.scope.tenant_id}/settings-draft/{visit.person.user_id}/{connector}"
        self._stored = stored or {}
        self.form = InputForm(translate_schema(schema))
        self.draft = ""
        self.has_lost = False

    @property
    def main(self) -> list[Field]:
        """The most important fields: required ones, those marked as main, and credentials."""
        return [each for each in self.form.fields if not _is_further(each)]

    @property
    def further(self) -> list[Field]:
        """The remaining fields, whose defaults suit most integrations."""
        return [each for each in self.form.fields if _is_further(each)]

    @property
    def further_stands_out(self) -> bool:
        """Whether one of the remaining fields has an error or a value other than its default."""
        return any(each.error or (each.value and not _is_default(each)) for top in self.further for each in top.walk())

    def fill(self) -> "SettingsForm":
        """Fill the fields with the saved settings or the defaults; returns the form."""
        self.form.fill(self._stored or self.form.defaults())
        for each in self._secrets():
            each.secret_state = SEALED if is_marker(_value_at(self._stored, each.pointer)) else ""
        mark_unchosen(self.form.root)
        return self

    def read(self) -> dict[str, Any]:
        """The submitted settings, with secrets as text or as markers; parse errors are in the form's `problems`."""
        sent = self._visit.request.form
        value = read_form(self.form, sent)
        settings: dict[str, Any] = value if isinstance(value, dict) else {}
        before, typed = self._open_draft(), {}
        for each in self._secrets():
            text = each.value.replace("\r\n", "\n")
            if text.startswith("="):
                continue  # A reference such as `= secrets.x` is not itself secret.
            if f"{FORGET}{each.name}" in sent and not text:
                each.secret_state = FORGOTTEN
                continue
            if text := text or before.get(each.pointer, ""):
                typed[each.pointer] = text
                _set_at(settings, each.pointer, text)
                each.secret_state = TYPED
            elif is_marker(_value_at(self._stored, each.pointer)):
                _set_at(settings, each.pointer, {"sealed": True})
                each.secret_state = SEALED
            each.value = ""
        drop_irrelevant(self.form.root, settings)
        mark_unchosen(self.form.root)
        self.draft = self._seal(typed) if typed else ""
        return settings

    def point_out(self, details: list[Detail]) -> None:
        """Show errors with pointers such as `/settings/…` at their fields."""
        inside = [Detail(each.pointer.removeprefix("/settings"), each.code, each.message) for each in details]
        self.form.show_errors(inside)

    def _secrets(self) -> Iterator[Field]:
        return (each for each in self.form.all_fields() if each.is_secret)

    def _seal(self, typed: Mapping[str, str]) -> str:
        text = json.dumps({"at": clock.now_ms(), "secrets": typed})
        return base64.urlsafe_b64encode(self._visit.services.sealer.seal(text.encode(), self._context)).decode("ascii")

    def _open_draft(self) -> Mapping[str, str]:
        """The secrets that were entered on earlier pages; none when the form carries none or they have expired."""
        sent = self._visit.request.field(DRAFT)
        if not sent:
            return {}
        try:
            draft = json.loads(self._visit.services.sealer.open(base64.urlsafe_b64decode(sent), self._context))
        except (ConfigInvalid, binascii.Error, ValueError):
            draft = {"at": 0}
        self.has_lost = clock.now_ms() - draft["at"] > RETENTION_MS
        return {} if self.has_lost else draft["secrets"]


def _is_further(field: Field) -> bool:
    schema = field.schema
    decides = field.required or any(schema.get(mark) is True for mark in ("secret", "secret_target", "main"))
    return not decides and not (field.kind == "group" and any(each.is_secret for each in field.walk()))


def _is_default(field: Field) -> bool:
    default = field.schema.get("default")
    return field.value in (_text_of(default), json.dumps(default))


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def drop_irrelevant(group: Field, value: Any) -> None:
    """Remove the values of fields that do not apply to the choices made in their siblings."""
    if group.kind != "group" or not isinstance(value, dict):
        return
    for child in group.children:
        name = member_of(child.pointer)
        only_for = child.schema.get("only_for")
        if isinstance(only_for, Mapping) and not all(_chosen(group, value, key) in allowed for key, allowed in only_for.items()):
            value.pop(name, None)
        else:
            drop_irrelevant(child, value.get(name))
            if not child.required and value.get(name) == {} and child.kind == "group":
                del value[name]


def mark_unchosen(group: Field) -> None:
    """Mark the fields that do not apply to the current choices, so that scripts can hide them without shifting the layout."""
    fields = {member_of(each.pointer): each for each in group.children}
    for child in group.children:
        only_for = child.schema.get("only_for")
        rules = only_for.items() if isinstance(only_for, Mapping) else ()
        child.is_unchosen = any(_value_in(fields.get(name)) not in [json.dumps(each) for each in values] for name, values in rules)
        mark_unchosen(child)


def _value_in(field: Field | None) -> str:
    """The chosen value of a field, or its default, as JSON."""
    return "" if field is None else field.value or json.dumps(field.schema.get("default"))


def _chosen(group: Field, value: Mapping[str, Any], name: str) -> Any:
    default = next((each.schema.get("default") for each in group.children if member_of(each.pointer) == name), None)
    return value.get(name, default)


def _value_at(value: Any, pointer: str) -> Any:
    for part in pointer_parts(pointer):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _set_at(settings: dict[str, Any], pointer: str, value: Any) -> None:
    *above, last = pointer_parts(pointer)
    for part in above:
        settings = settings.setdefault(part, {})
    settings[last] = value
