/** Reads the CSV, checks every line, and answers the orders without a defect and every defect there is. */

import { isBroken, Line, type Defect } from "./cells.ts";
import { readCsv, type Row } from "./csv.ts";
import { finish, takeDoubles, toBlocks } from "./blocks.ts";

const REQUIRED = ["number", "ordered_at", "customer", "sku", "quantity", "unit_price"];
const OPTIONAL = ["required_at", "shipped_at", "customer_name", "ship_country", "product", "discount"];
const COLUMNS = [...REQUIRED, ...OPTIONAL];
const AT_ONCE = 500;
// What is taken and listed at once, so that every step's output stays well below its limit.
const MOST_LINES = 1000;
const MOST_DEFECTS = 1000;

export default async function (input: StepInput, api: Api) {
  const rows = readCsv(input.orders);
  const header = readHeader(rows.shift());
  if (rows.length > MOST_LINES) header.defects.push(tooManyLines(rows));
  const lines = header.defects.length === 0 ? rows.map((row) => toLine(row, header.columns)) : [];
  const products = await findKnown(api, "products", "sku", lines.map((line) => line.raw("sku")));
  const blocks = toBlocks(lines, products);
  const taken = await findKnown(api, "orders", "number", blocks.map((block) => block.order.number));
  takeDoubles(blocks, input.on_duplicate === "replace" ? new Set() : taken);
  const orders = blocks.filter((block) => block.lines.every((line) => line.defects.length === 0)).map(finish);
  const defects = [...header.defects, ...lines.flatMap((line) => line.defects)];
  return {
    orders,
    defects: defects.slice(0, MOST_DEFECTS),
    defect_count: defects.length,
    known: orders.map((order) => order.number).filter((number) => taken.has(number)),
    pricing: { orders: orders.map((order) => ({ number: order.number, total: Number(order.total) })) },
    lines_read: rows.length,
    orders_read: blocks.length,
    ignored_columns: header.ignored,
  };
}

function readHeader(row: Row | undefined) {
  const names = (row?.cells ?? []).map((cell) => cell.trim().toLowerCase());
  const defects: Defect[] = [];
  const refuse = (field: string, code: string, message: string) =>
    defects.push({ line: row?.line ?? 1, field, code, message, value: "" });
  if (row?.fault) refuse("", "bad_quoting", row.fault);
  for (const column of REQUIRED) {
    if (!names.includes(column)) {
      refuse(column, "missing_column", `the column ${column} is missing; the first line names the columns, separated by commas`);
    }
  }
  for (const column of COLUMNS) {
    if (names.indexOf(column) !== names.lastIndexOf(column)) refuse(column, "duplicate_column", `the column ${column} is there twice`);
  }
  const ignored = names.filter((name) => !COLUMNS.includes(name)).map((name) => name.slice(0, 100));
  return { columns: names, defects, ignored };
}

function tooManyLines(rows: Row[]): Defect {
  const message = `the file has ${rows.length} lines and at most ${MOST_LINES} are taken at once; nothing of it was taken, send it in parts`;
  return { line: rows[MOST_LINES].line, field: "", code: "too_many_lines", message, value: "" };
}

function toLine(row: Row, columns: string[]): Line {
  const cells: Record<string, string> = {};
  columns.forEach((name, index) => (cells[name] = row.cells[index] ?? ""));
  const line = new Line(row.line, cells);
  if (row.fault !== null) {
    line.refuse("", "bad_quoting", row.fault);
  } else if (row.cells.length !== columns.length) {
    const code = row.cells.length > columns.length ? "too_many_fields" : "too_few_fields";
    line.refuse("", code, `the line has ${row.cells.length} fields, the header has ${columns.length}`);
  }
  return line;
}

/** Which of these values the collection holds. */
async function findKnown(api: Api, collection: "products" | "orders", field: "sku" | "number", values: string[]): Promise<Set<string>> {
  const wanted = [...new Set(values)].filter((value) => value !== "" && value.length <= 40 && !isBroken(value));
  const parts = [];
  for (let at = 0; at < wanted.length; at += AT_ONCE) parts.push(wanted.slice(at, at + AT_ONCE));
  const pages = await Promise.all(
    parts.map((part) => api.datapool.query(collection, { filter: { [field]: { _in: part } }, fields: [field], limit: AT_ONCE })),
  );
  return new Set(pages.flatMap((page) => page.items.map((item: any) => item[field])));
}
