// What the pages do beyond HTML: local times, live parts, copying, loading a file into a field. Every page works without it.

// The page says its language and brings what is said here in it; dates follow the reader's own variant of that language.
const LANGUAGE = document.documentElement.lang;
const LOCALE = navigator.languages.find((each) => each.split("-")[0] === LANGUAGE.split("-")[0]) || LANGUAGE;
const PHRASES = JSON.parse(document.body.dataset.phrases);
const AGES = [[60e3, 1e3], [3600e3, 60e3], [86400e3, 3600e3], [30 * 86400e3, 86400e3]];

function ago(ms) {
  const age = Date.now() - ms;
  const size = Math.abs(age);
  if (size < 5e3) return age >= 0 ? PHRASES.justNow : PHRASES.now;
  const index = AGES.findIndex(([below]) => size < below);
  if (index < 0) return new Date(ms).toLocaleDateString(LOCALE, { dateStyle: "medium" });
  return PHRASES.ages[index][age > 0 ? 0 : 1].replace("#", (age > 0 ? Math.floor : Math.round)(size / AGES[index][1]));
}

function showTimes(root) {
  for (const element of root.querySelectorAll("time[datetime]")) {
    const when = new Date(element.dateTime);
    const utc = `${when.toISOString().slice(0, 19).replace("T", " ")} UTC`;
    element.title = `${when.toLocaleString(LOCALE, { dateStyle: "medium", timeStyle: "long" })}\n${utc}`;
    if ("clock" in element.dataset) {
      const time = when.toLocaleTimeString(LOCALE, { hour12: false });
      element.textContent = `${time}.${String(when.getMilliseconds()).padStart(3, "0")}`;
    } else if ("local" in element.dataset) {
      const local = new Date(when.getTime() - when.getTimezoneOffset() * 60e3);
      element.textContent = local.toISOString().slice(0, 16).replace("T", " ");
    } else {
      element.textContent = ago(when.getTime());
    }
  }
}

// A live part is fetched again and again and replaced; what the reader opened, focused or scrolled stays so.
function keepPlace(old, fresh) {
  for (const details of old.querySelectorAll("details[id]")) {
    const twin = fresh.querySelector(`#${CSS.escape(details.id)}`);
    if (twin) twin.open = details.open;
  }
  for (const field of old.querySelectorAll("input[type=checkbox][id], textarea[id]")) {
    const twin = fresh.querySelector(`#${CSS.escape(field.id)}`);
    if (twin) [twin.checked, twin.value] = [field.checked, field.value];
  }
  const focused = old.contains(document.activeElement) ? document.activeElement.closest("[id]")?.id : "";
  const scrolled = [...old.querySelectorAll("[data-scroll]")].map((box) => [box.dataset.scroll, box.scrollTop, box.scrollLeft]);
  return () => {
    if (focused) {
      const element = document.getElementById(focused);
      (element?.matches("details") ? element.querySelector("summary") : element)?.focus({ preventScroll: true });
    }
    for (const [name, top, left] of scrolled) {
      const box = fresh.querySelector(`[data-scroll="${CSS.escape(name)}"]`);
      if (box) { box.scrollTop = top; box.scrollLeft = left; }
    }
  };
}

async function refresh(part) {
  const answer = await fetch(part.dataset.live, { headers: { Accept: "text/html" }, redirect: "error" });
  if (!answer.ok) return null;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-part]");
  if (!fresh) return null;
  const restore = keepPlace(part, fresh);
  part.replaceWith(fresh);
  restore();
  prepare(fresh);
  return fresh;
}

async function follow(part) {
  let misses = 0;
  while (part && part.dataset.live && misses < 20) {
    const every = Number(part.dataset.every) * (1 + misses);
    await new Promise((resolve) => setTimeout(resolve, every));
    if (document.hidden) continue;
    try {
      const fresh = await refresh(part);
      if (!fresh) return;
      part = fresh;
      misses = 0;
    } catch {
      misses += 1; // the appliance restarts or the network pauses: ask again, more slowly
    }
  }
}

function copyText(button) {
  const source = document.getElementById(button.dataset.copy);
  navigator.clipboard.writeText(source.textContent).then(
    () => {
      const label = button.textContent;
      button.textContent = PHRASES.copied;
      setTimeout(() => { button.textContent = label; }, 1500);
    },
    () => window.getSelection().selectAllChildren(source),
  );
}

async function loadFile(input) {
  const target = document.getElementById(input.dataset.into);
  const file = input.files[0];
  if (!file) return;
  target.value = await file.text();
  target.dispatchEvent(new Event("input"));
  input.value = "";
}

function chooseScopes(button) {
  const wanted = button.dataset.choose;
  for (const box of document.querySelectorAll("input[name=scopes]")) {
    box.checked = wanted === "all" || (wanted === "read" && box.value.endsWith(".read"))
      || (wanted === "execute" && ["processflow.execute", "processflow.read"].includes(box.value));
  }
}

// Pictures are painted one at a time. Those that were not served because too many waited are asked for again one after the
// other, in two rounds; their marks stand there meanwhile.
const unserved = [];

function bePatient(picture) {
  picture.hidden = true;
  picture.dataset.tries = Number(picture.dataset.tries || 0) + 1;
  if (Number(picture.dataset.tries) > 2) return;
  unserved.push(picture);
  if (unserved.length === 1) setTimeout(askAgain, 1500);
}

async function askAgain() {
  const [picture] = unserved;
  const settled = new Promise((resolve) => {
    picture.addEventListener("load", resolve, { once: true });
    picture.addEventListener("error", resolve, { once: true });
  });
  picture.loading = "eager"; // what is hidden is never near enough to be loaded lazily
  picture.src = picture.src; // eslint-disable-line no-self-assign
  await settled;
  unserved.shift();
  if (unserved.length) askAgain();
}

// Fields that are only for another choice than the one that was made are hidden, and not sent.
function showChosen(root) {
  for (const part of root.querySelectorAll("[data-only-for]")) {
    const wanted = part.dataset.onlyFor.split(";").every((rule) => {
      const [name, values] = [rule.slice(0, rule.indexOf("=")), rule.slice(rule.indexOf("=") + 1)];
      const choice = document.getElementById(name);
      return !choice || values.split(",").includes(choice.value || choice.dataset.usual || "");
    });
    part.hidden = !wanted;
    part.classList.remove("unchosen");
    for (const field of part.querySelectorAll("input, select, textarea")) field.disabled = !wanted;
  }
}

function prepare(root) {
  showTimes(root);
  showChosen(root);
  for (const picture of root.querySelectorAll("img[data-patient]")) {
    picture.addEventListener("load", () => { picture.hidden = false; });
    picture.addEventListener("error", () => bePatient(picture));
    if (picture.complete && picture.currentSrc && !picture.naturalWidth) bePatient(picture); // it failed before this script ran
  }
  for (const element of root.querySelectorAll("[data-needs-js]")) element.hidden = false;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.copy) copyText(button);
  if (button?.dataset.choose) chooseScopes(button);
  if (button?.dataset.opens) openDialog(button.dataset.opens);
  if (button?.dataset.pick) document.getElementById(button.dataset.pick).click();
  for (const open of document.querySelectorAll("details.ask[open]")) {
    if (!open.contains(event.target)) open.open = false;
  }
});

document.addEventListener("change", (event) => {
  if (event.target.matches("input[type=file][data-into]")) loadFile(event.target);
  if (event.target.matches("select")) showChosen(document);
  if (event.target.matches("[data-keys]")) localStorage.setItem("keys", event.target.checked ? "on" : "off");
  if (event.target.matches("[data-submits]")) event.target.form.requestSubmit();
});

document.addEventListener("submit", (event) => {
  if (event.target.method === "dialog") return;
  // After the form's values were taken: a disabled button would not be among them.
  setTimeout(() => {
    for (const button of event.target.querySelectorAll("button")) button.disabled = true;
  });
});

// A page that comes back from the browser's memory must be usable again.
window.addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("form button[disabled]")) button.disabled = false;
});

// On paper what is folded is shown; afterwards it is as it was.
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("main details:not(.ask, [open], :has(form))")) {
    details.open = true;
    details.dataset.printed = "";
  }
});

window.addEventListener("afterprint", () => {
  for (const details of document.querySelectorAll("details[data-printed]")) {
    details.open = false;
    delete details.dataset.printed;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    for (const open of document.querySelectorAll("details.ask[open]")) {
      open.open = false;
      open.querySelector("summary").focus();
    }
  }
  const [at] = event.composedPath(); // inside the editor, which has a tree of its own
  const isTyping = at.isContentEditable || at.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, dialog");
  if (!isTyping && !event.ctrlKey && !event.metaKey && !event.altKey && localStorage.getItem("keys") !== "off") onLetter(event);
});

// `/` searches, `?` shows the keys, `g` and a letter go to a section of the menu. Who speaks to the browser turns them off.
let goAskedAt = -Infinity;

function onLetter(event) {
  const isGoing = event.timeStamp - goAskedAt < 2000;
  goAskedAt = event.key === "g" ? event.timeStamp : -Infinity;
  if (isGoing) {
    document.querySelector(`.menu a[data-key="${CSS.escape(event.key)}"]`)?.click();
  } else if (event.key === "?") {
    openDialog("keys-of-the-console");
  } else if (event.key === "/") {
    const search = document.querySelector("main input[type=search]");
    if (search) search.focus();
    else document.querySelector('.menu a[data-key="e"]')?.click();
    event.preventDefault();
  }
}

function openDialog(id) {
  const dialog = document.getElementById(id);
  if (!dialog || dialog.open) return;
  for (const box of dialog.querySelectorAll("[data-keys]")) box.checked = localStorage.getItem("keys") !== "off";
  dialog.showModal();
}

// What another script has made and is about to add.
document.addEventListener("gos:added", (event) => showTimes(event.detail));

// A picture that is wider than its box begins where its steps do.
for (const box of document.querySelectorAll("[data-middle]")) box.scrollLeft = Number(box.dataset.middle) - box.clientWidth / 2;

// Whoever goes to a step that is closed wants to see what is in it.
function openTarget() {
  const target = document.querySelector("details:target");
  if (target) { target.open = true; target.querySelector("summary").focus(); }
}

window.addEventListener("hashchange", openTarget);
openTarget();

prepare(document);
document.querySelector("[aria-invalid=true]")?.focus();
for (const part of document.querySelectorAll("[data-live]")) follow(part);
setInterval(() => showTimes(document), 20e3);

// A form that waited for a proof of who sends it; the appliance marks it only the first time.
document.querySelector("form[data-sends-itself]")?.requestSubmit();

// The menu scrolls by itself; where one is must be in sight.
const here = document.querySelector(".menu a[aria-current]");
const menu = here?.closest("nav");
if (menu) {
  const below = here.getBoundingClientRect().bottom - menu.getBoundingClientRect().bottom;
  if (below > 0) menu.scrollTop = below + menu.clientHeight / 2;
}
