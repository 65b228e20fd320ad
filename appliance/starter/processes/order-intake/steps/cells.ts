/** One cell at a time: what it must look like, and a defect with code and sentence where it does not. */

import { toUnits } from "./money.ts";

export interface Defect {
  /** Line of the file, from 1; the header is line 1. */
  line: number;
  field: string;
  code: string;
  message: string;
  value: string;
}

export const PRICE_PLACES = 4;
export const DISCOUNT_PLACES = 2;
// Their product has at most 12 digits before the point: what an exact amount in DataPool holds.
const LARGEST_QUANTITY = 999_999;
const LARGEST_PRICE = 999_999n;
const BROKEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\ufffd]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/;
// UTF-8 that was read as Latin-1 or Windows-1252: "Ã¼" where "ü" was meant.
const MISREAD = /[\u00c2\u00c3][\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]/;
const FORMULA = /^\s*[=+\-@]/;

/** Whether characters were lost or misread on the way. */
export function isBroken(text: string): boolean {
  return BROKEN.test(text) || MISREAD.test(text);
}

/** The cells of one line by column name; `refuse` notes a defect of this line. */
export class Line {
  readonly defects: Defect[] = [];
  /** Where the line stands in the file, from 1. */
  readonly at: number;
  readonly cells: Record<string, string>;

  constructor(at: number, cells: Record<string, string>) {
    this.at = at;
    this.cells = cells;
  }

  raw(field: string): string {
    return (this.cells[field] ?? "").trim();
  }

  refuse(field: string, code: string, message: string): null {
    const value = (this.cells[field] ?? "").slice(0, 100).replace(BROKEN, "\ufffd");
    this.defects.push({ line: this.at, field, code, message, value });
    return null;
  }

  /** Text that is not empty unless `optional`, whole, and no formula. */
  text(field: string, longest: number, optional = false): string | null {
    const value = this.raw(field);
    if (value === "") return optional ? null : this.refuse(field, "missing", `${field} is empty`);
    if (isBroken(value)) {
      return this.refuse(field, "broken_encoding", `${field} holds characters that were lost or misread; send the file as UTF-8`);
    }
    if (FORMULA.test(value)) return this.formula(field);
    if (value.length > longest) return this.refuse(field, "too_long", `${field} has more than ${longest} characters`);
    return value;
  }

  /** A day of the calendar as YYYY-MM-DD; a time behind it is cut off. */
  date(field: string, optional = false): string | null {
    const value = this.raw(field);
    if (value === "") return optional ? null : this.refuse(field, "missing", `${field} is empty`);
    const parts = /^(\d{4})-(\d{2})-(\d{2})(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:\d{2})?)?$/.exec(value);
    if (/^[=+@]/.test(value)) return this.formula(field);
    const day = parts && `${parts[1]}-${parts[2]}-${parts[3]}`;
    if (day === null || Number(day.slice(0, 4)) < 1900 || new Date(day + "T00:00:00Z").toJSON()?.slice(0, 10) !== day) {
      return this.refuse(field, "bad_date", `${field} is not a date such as 2026-01-31`);
    }
    return day;
  }

  /** A whole number from 1. */
  quantity(field: string): number | null {
    const value = this.decimal(field, 15);
    if (value === null) return null;
    const whole = toUnits(this.raw(field), 0);
    if (value <= 0n) return this.refuse(field, "not_positive", `${field} must be at least 1`);
    if (whole === null) return this.refuse(field, "not_whole", `${field} must be a whole number`);
    if (whole > LARGEST_QUANTITY) return this.refuse(field, "too_large", `${field} is larger than ${LARGEST_QUANTITY}`);
    return Number(whole);
  }

  /** A price from 0 in units of 10^-PRICE_PLACES. */
  price(field: string): bigint | null {
    const value = this.decimal(field, PRICE_PLACES);
    if (value === null) return null;
    if (value < 0n) return this.refuse(field, "negative", `${field} must not be negative`);
    return value > LARGEST_PRICE * 10n ** BigInt(PRICE_PLACES) ? this.refuse(field, "too_large", `${field} is larger than ${LARGEST_PRICE}`) : value;
  }

  /** A fraction from 0 to 1 in units of 10^-DISCOUNT_PLACES; empty is 0. */
  discount(field: string): bigint | null {
    if (this.raw(field) === "") return 0n;
    const value = this.decimal(field, DISCOUNT_PLACES);
    if (value === null) return null;
    const inRange = value >= 0n && value <= 10n ** BigInt(DISCOUNT_PLACES);
    return inRange ? value : this.refuse(field, "out_of_range", `${field} must be a fraction from 0 to 1 (0.15 is 15 percent)`);
  }

  private formula(field: string): null {
    return this.refuse(field, "formula", `${field} begins like a spreadsheet formula (= + - @)`);
  }

  private decimal(field: string, places: number): bigint | null {
    const value = this.raw(field);
    if (value === "") return this.refuse(field, "missing", `${field} is empty`);
    if (/^[=+@]/.test(value)) return this.formula(field);
    if (!/^-?\d{1,15}(\.\d{1,30})?$/.test(value)) {
      return this.refuse(field, "not_a_number", `${field} is not a number such as 12.50 (a point, no thousands separator)`);
    }
    const units = toUnits(value, places);
    return units ?? this.refuse(field, "too_precise", `${field} has more than ${places} digits after the point`);
  }
}
