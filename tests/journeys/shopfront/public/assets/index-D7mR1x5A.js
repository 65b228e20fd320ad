const form = document.querySelector("#order"), answer = document.querySelector("#answer"), pack = document.querySelector("#pack");
const products = await (await fetch("/api/products?sort=name&fields=sku,name")).json();
form.sku.append(...products.data.map((each) => new Option(each.name, each.sku)));
form.onsubmit = async (event) => {
  event.preventDefault();
  const { sku, name, quantity } = Object.fromEntries(new FormData(form));
  const sent = await fetch("/api/orders", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ sku, name, quantity: Number(quantity) }),
  });
  const told = await sent.json();
  answer.textContent = told.success ? `Thank you, ${told.data.name}: ${told.data.total} euro` : told.error.message;
  pack.hidden = !told.success;
};
pack.onclick = async () => {
  const { follow } = await import("./follow-A9tK3w7Q.js");
  await follow("/api/parcels", document.querySelector("#progress"));
};
document.documentElement.dataset.ready = "yes";
