"""Converts between Tryton's JSON, in which dates, decimals and bytes are tagged objects, and plain JSON with texts."""

import base64
import binascii
import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from appliance.connectors.contract import ConfigError


def to_plain(value: Any) -> Any:
    """Convert a value of Tryton to plain JSON; dates and times, which Tryton keeps in UTC, end in `Z`."""
    if isinstance(value, list):
        return [to_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    match value.get("__class__"):
        case "Decimal":
            return str(value["decimal"])
        case "date":
            return datetime.date(value["year"], value["month"], value["day"]).isoformat()
        case "datetime":
            day = datetime.date(value["year"], value["month"], value["day"])
            clock = datetime.time(value["hour"], value["minute"], value["second"], value["microsecond"])
            return f"{datetime.datetime.combine(day, clock).isoformat()}Z"
        case "time":
            return datetime.time(value["hour"], value["minute"], value["second"], value["microsecond"]).isoformat()
        case "timedelta":
            return value["seconds"]
        case "bytes":
            return "".join(str(value["base64"]).split())
    return {name: to_plain(each) for name, each in value.items()}


def to_tryton(name: str, kind: str, value: Any) -> Any:
    """Convert a plain value for a field of this type; ConfigError when the field cannot hold it."""
    try:
        match kind, value:
            case "numeric", str() | int() | float() if not isinstance(value, bool):
                return {"__class__": "Decimal", "decimal": str(Decimal(str(value)))}
            case "date", str():
                day = datetime.date.fromisoformat(value)
                return {"__class__": "date", "year": day.year, "month": day.month, "day": day.day}
            case "datetime" | "timestamp", str():
                moment = datetime.datetime.fromisoformat(value)
                moment = moment.astimezone(datetime.UTC) if moment.tzinfo else moment
                return {
                    "__class__": "datetime", "year": moment.year, "month": moment.month, "day": moment.day, "hour": moment.hour,
                    "minute": moment.minute, "second": moment.second, "microsecond": moment.microsecond,
                }  # fmt: skip
            case "time", str():
                clock = datetime.time.fromisoformat(value)
                parts = {"hour": clock.hour, "minute": clock.minute, "second": clock.second, "microsecond": clock.microsecond}
                return {"__class__": "time", **parts}
            case "timedelta", int() | float() if not isinstance(value, bool):
                return {"__class__": "timedelta", "seconds": value}
            case "binary", str():
                base64.b64decode(value, validate=True)
                return {"__class__": "bytes", "base64": value}
    except (ValueError, InvalidOperation, binascii.Error) as error:
        raise ConfigError(f"The field {name} is of type {kind}; {str(value)[:60]!r} is not a valid value.") from error
    return value
