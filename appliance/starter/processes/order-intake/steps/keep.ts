/** Keeps every order together with its lines: each batch is written whole or not at all. */

import type { PricedOrder } from "./prepare.ts";

const LARGEST_BATCH = 1000;
const PAGE = 500;

type Change = Operation<"orders" | "order_lines">;

interface Input {
  orders: PricedOrder[];
  answers: { body: { reference: string } }[];
  known: string[];
}

export default async function (input: Input, api: Api) {
  const known = new Set(input.known);
  let operations: Change[] = [];
  let batches = 0;
  const write = async () => {
    if (operations.length) batches += 1;
    if (operations.length) await api.datapool.batch({ operations });
    operations = [];
  };
  for (const [index, order] of input.orders.entries()) {
    const own = [...toOperations(order, input.answers[index].body.reference)];
    if (known.has(order.number)) own.push(...(await removals(api, order)));
    if (operations.length + own.length > LARGEST_BATCH) await write();
    operations.push(...own);
  }
  await write();
  return { orders: input.orders.length, batches };
}

function* toOperations(order: PricedOrder, reference: string): Generator<Change> {
  const { lines, ...head } = order;
  yield { op: "upsert", collection: "orders", key: ["number"], values: { ...head, lines: lines.length, reference } };
  for (const line of lines) {
    const values = { order_number: order.number, ...line };
    yield { op: "upsert", collection: "order_lines", key: ["order_number", "position"], values };
  }
}

/** Lines that the order had before and has no more. */
async function removals(api: Api, order: PricedOrder): Promise<Change[]> {
  const filter = { order_number: { _eq: order.number }, position: { _gt: order.lines.length } };
  const page = await api.datapool.query("order_lines", { filter, fields: ["id"], limit: PAGE });
  return page.items.map((line) => ({ op: "delete", collection: "order_lines", id: line.id }));
}
