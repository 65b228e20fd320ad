/** Keeps the products that came along, so that lines may name them. */

interface Product {
  sku: string;
  name?: string;
}

export default async function (input: { products?: Product[] }, api: any) {
  const products = input.products ?? [];
  const operations = products.map((values) => ({ op: "upsert", collection: "products", key: ["sku"], values }));
  if (operations.length) await api.datapool.batch({ operations });
  return { products: products.length };
}
