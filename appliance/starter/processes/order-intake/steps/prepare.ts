/** Orders with discount, amount to be paid and approval class, as the order system and DataPool take them. */

import type { GoodOrder } from "./blocks.ts";
import { divideHalfUp, toText, toUnits } from "./money.ts";

export interface Price {
  volume_discount: number;
  approval_class: "auto" | "review" | "manager";
}

export type PricedOrder = GoodOrder & { volume_discount: string; payable: string; approval_class: Price["approval_class"] };

export default async function (input: { orders: GoodOrder[]; prices: Price[] }): Promise<PricedOrder[]> {
  return input.orders.map((order, index) => {
    const price = input.prices[index];
    const percent = BigInt(Math.round(price.volume_discount * 100));
    const cents = toUnits(order.total, 2)!;
    const payable = divideHalfUp(cents * (100n - percent), 100n);
    return {
      ...order,
      volume_discount: toText(percent, 2),
      payable: toText(payable, 2),
      approval_class: price.approval_class,
    };
  });
}
