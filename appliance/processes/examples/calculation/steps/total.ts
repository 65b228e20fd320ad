export default async function (input: StepInput) {
  const total = input.items.reduce((sum, item) => sum + item.price * item.quantity, 0);
  return { total, count: input.items.length };
}
