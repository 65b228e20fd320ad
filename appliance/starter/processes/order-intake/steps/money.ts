/** Exact sums of money: whole numbers in units of 10^-places, never binary fractions. */

/** `text` times 10^places, or null when it is no plain decimal number or has more digits after the point. */
export function toUnits(text: string, places: number): bigint | null {
  const parts = /^([-+]?)(\d{1,15})(?:\.(\d+))?$/.exec(text);
  if (parts === null) return null;
  const fraction = (parts[3] ?? "").replace(/0+$/, "");
  if (fraction.length > places) return null;
  const units = BigInt(parts[2] + fraction.padEnd(places, "0"));
  return parts[1] === "-" ? -units : units;
}

/** The units as text; trailing zeros after the point are left out down to `least` digits. */
export function toText(units: bigint, places: number, least: number = places): string {
  const sign = units < 0n ? "-" : "";
  const digits = String(units < 0n ? -units : units).padStart(places + 1, "0");
  const whole = digits.slice(0, digits.length - places);
  let fraction = digits.slice(digits.length - places);
  while (fraction.length > least && fraction.endsWith("0")) fraction = fraction.slice(0, -1);
  return sign + whole + (fraction ? "." + fraction : "");
}

/** The quotient rounded half up; neither may be negative. */
export function divideHalfUp(amount: bigint, by: bigint): bigint {
  return (2n * amount + by) / (2n * by);
}
