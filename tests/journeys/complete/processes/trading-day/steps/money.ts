/** Ten-thousandths of quantity × price × (1 − discount), price and discount having at most two digits each. */
export function cents(quantity: string, price: string, discount: string): number {
  const hundredths = Math.round(Number(price) * 100);
  return Number(quantity) * hundredths * (100 - Math.round(Number(discount) * 100));
}

/** Ten-thousandths as an amount, rounded half up to two digits. */
export function text(tenThousandths: number): string {
  const rounded = Math.floor((tenThousandths + 50) / 100);
  return `${Math.floor(rounded / 100)}.${String(rounded % 100).padStart(2, "0")}`;
}
