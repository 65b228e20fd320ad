type Input = { product: { name: string; price: number; stock: number } | null; quantity: number };

/** What a visitor may be told is thrown with the code `rejected`. */
function refuse(message: string): never {
  throw Object.assign(new Error(message), { code: "rejected" });
}

export default function (input: Input) {
  const product = input.product ?? refuse("This tea is no longer sold.");
  if (input.quantity > product.stock) refuse(`Only ${product.stock} packets of ${product.name} are left.`);
  return { total: product.price * input.quantity };
}
