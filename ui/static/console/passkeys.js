// Creates and uses passkeys: a form marked with `data-passkey` is sent once the browser has answered for it.

function toBytes(text) {
  const plain = text.replaceAll("-", "+").replaceAll("_", "/");
  return Uint8Array.from(atob(plain), (each) => each.charCodeAt(0));
}

function toText(buffer) {
  const binary = Array.from(new Uint8Array(buffer), (each) => String.fromCharCode(each)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function withIds(list) {
  return (list || []).map((each) => ({ ...each, id: toBytes(each.id) }));
}

// The options as the browser's interface takes them: bytes where JSON has base64url.
function readOptions(options) {
  const read = { ...options, challenge: toBytes(options.challenge) };
  if (options.user) read.user = { ...options.user, id: toBytes(options.user.id) };
  if (options.excludeCredentials) read.excludeCredentials = withIds(options.excludeCredentials);
  if (options.allowCredentials) read.allowCredentials = withIds(options.allowCredentials);
  return read;
}

function describe(credential) {
  const response = {};
  for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
    if (credential.response[name]) response[name] = toText(credential.response[name]);
  }
  return JSON.stringify({ id: credential.id, rawId: toText(credential.rawId), type: credential.type, response });
}

async function perform(form) {
  const answer = await fetch(form.dataset.options, { headers: { Accept: "application/json" }, redirect: "error" });
  if (!answer.ok) throw new Error(`${form.dataset.options} answered ${answer.status}`);
  const { options, token } = await answer.json();
  const credential = await navigator.credentials[form.dataset.passkey]({ publicKey: readOptions(options) });
  form.elements.token.value = token;
  form.elements.response.value = describe(credential);
}

async function onSubmit(event) {
  const form = event.target;
  if (form.elements.response.value) return;
  event.preventDefault();
  event.stopPropagation(); // the console disables the buttons of a form that is sent
  const [failed, known] = ["failed", "known"].map((name) => form.querySelector(`[data-passkey-${name}]`));
  for (const text of [failed, known]) if (text) text.hidden = true;
  try {
    await perform(form);
  } catch (error) {
    const text = error.name === "InvalidStateError" && known ? known : failed;
    text.hidden = false;
    return;
  }
  form.requestSubmit();
}

for (const form of document.querySelectorAll("form[data-passkey]")) {
  if (!window.PublicKeyCredential) form.remove();
  else form.addEventListener("submit", onSubmit);
}

// What was signed counts once: a page that comes back from the browser's memory asks again.
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-passkey]")) {
    form.elements.token.value = "";
    form.elements.response.value = "";
  }
});
