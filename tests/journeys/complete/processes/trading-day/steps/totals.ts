import { cents, text } from "./money.ts";

interface Line { number: string; customer: string; quantity: string; unit_price: string; discount: string }

/** Lines of orders that stand together to orders; an order with a customer nobody knows goes where nobody takes it. */
export default function (input: StepInput, api: Api) {
  const orders = new Map<string, { number: string; customer: string; cents: number }>();
  for (const line of input.lines as Line[]) {
    const order = orders.get(line.number) ?? { number: line.number, customer: line.customer, cents: 0 };
    order.cents += cents(line.quantity, line.unit_price, line.discount);
    orders.set(line.number, order);
  }
  const known = new Set(input.customers!.map((each) => each.code));
  const found = [...orders.values()];
  return {
    orders: found.map((each) => ({
      number: each.number,
      customer: each.customer,
      total: text(each.cents),
      amount: each.cents / 10000,
      to: known.has(each.customer) ? "/orders" : "/nowhere",
    })),
    sum: text(found.reduce((sum, each) => sum + each.cents, 0)),
    digest: found.map((each) => `${each.number}:${each.cents}`).join(" "),
  };
}
