export default async function (input, api) {
  const page = await api.datapool.query("orders", { group: ["class"], aggregate: { orders: { fn: "count" }, sum: { fn: "sum", field: "total" } } });
  const seal = await api.secrets.get("seal");
  api.log.info("the day is over", { classes: page.items.length });
  return { classes: page.items, fee: input.fee, sealed: seal.length };
}
