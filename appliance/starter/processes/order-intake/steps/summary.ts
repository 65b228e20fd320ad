/** What came in, what was taken, what it is worth, and every defect by line and field. */

import { toText, toUnits } from "./money.ts";
import type { PricedOrder } from "./prepare.ts";

interface Input {
  check: { orders_read: number; lines_read: number; defect_count: number; defects: object[]; ignored_columns: string[] };
  orders: PricedOrder[];
}

export default async function ({ check, orders }: Input, api: Api) {
  const by_class: Record<string, { orders: number; total: string }> = {};
  for (const name of ["auto", "review", "manager"]) {
    const own = orders.filter((order) => order.approval_class === name);
    by_class[name] = { orders: own.length, total: sum(own.map((order) => order.total)) };
  }
  const rejected = check.orders_read - orders.length;
  if (rejected) api.log.warn("orders were left out because of defects", { rejected, defects: check.defect_count });
  api.log.info("orders were taken in", { accepted: orders.length, rejected });
  return {
    orders: { read: check.orders_read, accepted: orders.length, rejected },
    lines: { read: check.lines_read, accepted: orders.reduce((count, order) => count + order.lines.length, 0) },
    total: sum(orders.map((order) => order.total)),
    payable: sum(orders.map((order) => order.payable)),
    by_class,
    defect_count: check.defect_count,
    defects: check.defects,
    ignored_columns: check.ignored_columns,
  };
}

function sum(amounts: string[]): string {
  return toText(amounts.reduce((cents, amount) => cents + toUnits(amount, 2)!, 0n), 2);
}
