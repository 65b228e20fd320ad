/** Lines that follow each other under one number become an order; what they say must agree. */

import { DISCOUNT_PLACES, PRICE_PLACES, type Line } from "./cells.ts";
import { divideHalfUp, toText } from "./money.ts";

const HEAD = ["ordered_at", "required_at", "shipped_at", "customer", "customer_name", "ship_country"] as const;
const AMOUNT_PLACES = PRICE_PLACES + DISCOUNT_PLACES;

export interface OrderLine {
  position: number;
  sku: string;
  product: string | null;
  quantity: number;
  unit_price: string;
  discount: string;
  /** quantity × unit_price × (1 − discount), exact. */
  amount: string;
}

export interface Order {
  number: string;
  ordered_at: string | null;
  required_at: string | null;
  shipped_at: string | null;
  customer: string | null;
  customer_name: string | null;
  ship_country: string | null;
  /** The sum of the amounts, rounded half up to cents once. */
  total: string;
  lines: OrderLine[];
}

/** An order of lines without a defect. */
export type GoodOrder = Order & { ordered_at: string; customer: string };

/** An order while its lines are read; `head` is what its first good line says, by column. */
export interface Block {
  lines: Line[];
  named: boolean;
  head: Map<string, string>;
  order: Order;
  exact: bigint;
  skus: Map<string, number>;
}

export function toBlocks(lines: Line[], products: Set<string>): Block[] {
  const blocks: Block[] = [];
  for (const line of lines) {
    const number = line.text("number", 40);
    const last = blocks[blocks.length - 1];
    if (last !== undefined && belongs(line, number, last)) compareHead(line, last);
    else blocks.push(begin(line));
    const block = blocks[blocks.length - 1];
    block.lines.push(line);
    if (!block.named && number !== null) {
      block.named = true;
      block.order.number = number;
    }
    addLine(line, block, products);
  }
  return blocks;
}

/** A line whose number cannot be read belongs to its neighbours when it agrees with them, so that no order loses a line unseen. */
function belongs(line: Line, number: string | null, block: Block): boolean {
  if (number !== null && block.named) return number === block.order.number;
  return HEAD.every((field) => line.raw(field) === block.lines[0].raw(field));
}

function begin(line: Line): Block {
  const order: Order = {
    number: "",
    ordered_at: line.date("ordered_at"),
    required_at: line.date("required_at", true),
    shipped_at: line.date("shipped_at", true),
    customer: line.text("customer", 40),
    customer_name: line.text("customer_name", 200, true),
    ship_country: line.text("ship_country", 100, true),
    total: "",
    lines: [],
  };
  for (const field of ["required_at", "shipped_at"] as const) {
    const day = order[field];
    if (day && order.ordered_at && day < order.ordered_at) line.refuse(field, "before_order", `${field} lies before ordered_at`);
  }
  const good = HEAD.filter((field) => !line.defects.some((defect) => defect.field === field));
  const head = new Map(good.map((field) => [field as string, line.raw(field)]));
  return { lines: [], named: false, head, order, exact: 0n, skus: new Map() };
}

/** Every line of an order says the same about the order. */
function compareHead(line: Line, block: Block): void {
  for (const field of HEAD) {
    if (line.raw(field) === block.head.get(field)) continue;
    const found = line.defects.length;
    if (field.endsWith("_at")) line.date(field, field !== "ordered_at");
    else line.text(field, 200, field !== "customer");
    if (line.defects.length > found) continue;
    if (!block.head.has(field)) block.head.set(field, line.raw(field));
    else line.refuse(field, "contradiction", `${field} differs from line ${block.lines[0].at} of the same order`);
  }
}

function addLine(line: Line, block: Block, products: Set<string>): void {
  const sku = line.text("sku", 40);
  const product = line.text("product", 200, true);
  const quantity = line.quantity("quantity");
  const price = line.price("unit_price");
  const discount = line.discount("discount");
  if (sku !== null && !products.has(sku)) line.refuse("sku", "unknown_product", `there is no product ${sku} in the catalogue`);
  if (sku !== null && block.skus.has(sku)) {
    line.refuse("sku", "duplicate_line", `the order has ${sku} on line ${block.skus.get(sku)} already; add the quantities up`);
  } else if (sku !== null) {
    block.skus.set(sku, line.at);
  }
  if (sku === null || quantity === null || price === null || discount === null) return;
  const exact = BigInt(quantity) * price * (10n ** BigInt(DISCOUNT_PLACES) - discount);
  block.exact += exact;
  block.order.lines.push({
    position: block.order.lines.length + 1,
    sku,
    product,
    quantity,
    unit_price: toText(price, PRICE_PLACES, 2),
    discount: toText(discount, DISCOUNT_PLACES),
    amount: toText(exact, AMOUNT_PLACES, 2),
  });
}

/** A number that comes again further down, or that DataPool holds already, is a defect of the line where it begins. */
export function takeDoubles(blocks: Block[], taken: Set<string>): void {
  const first = new Map<string, Block>();
  for (const block of blocks.filter((each) => each.named)) {
    const number = block.order.number;
    const earlier = first.get(number);
    if (earlier === undefined) first.set(number, block);
    if (earlier !== undefined) {
      const reason = `order ${number} began on line ${earlier.lines[0].at} already; the lines of an order stand together`;
      block.lines[0].refuse("number", "duplicate_number", reason);
    } else if (taken.has(number)) {
      const reason = `order ${number} was taken in before; to change it send on_duplicate: replace`;
      block.lines[0].refuse("number", "duplicate_number", reason);
    }
  }
}

export function finish(block: Block): GoodOrder {
  const cents = divideHalfUp(block.exact, 10n ** BigInt(AMOUNT_PLACES - 2));
  return { ...(block.order as GoodOrder), total: toText(cents, 2) };
}
