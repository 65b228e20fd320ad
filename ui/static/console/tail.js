// New lines on top of a list as the appliance keeps them. The page holds the newest; what it drops, a search finds.
// Pausing closes the stream and going on opens it after the last line, so that a reader who pauses misses nothing that fits.

const MOST = 500;
const panel = document.querySelector("[data-tail]");
const list = panel.querySelector("ol");
const state = document.querySelector("[data-tail-state]");
const button = document.querySelector("[data-pause]");
const words = JSON.parse(panel.dataset.words);
const fresh = [];
let stream = null;
let after = "";
let painting = 0;

function paint() {
  painting = 0;
  const lines = fresh.splice(0).slice(-MOST);
  const made = document.createElement("template");
  made.innerHTML = lines.reverse().join("");
  for (const line of made.content.querySelectorAll("[data-number]")) {
    if (list.querySelector(`[data-number="${CSS.escape(line.dataset.number)}"]`)) line.remove();
  }
  document.dispatchEvent(new CustomEvent("gos:added", { detail: made.content }));
  const isAway = window.scrollY > 0;
  const before = list.scrollHeight;
  list.hidden = false;
  panel.querySelector("[data-testid=empty]")?.remove();
  list.prepend(made.content);
  if (isAway) window.scrollBy(0, list.scrollHeight - before); // what somebody reads stays where it is
  while (list.children.length > MOST) list.lastElementChild.remove();
}

function tell(text) {
  if (state.textContent !== text) state.textContent = text;
}

function open() {
  const address = new URL(panel.dataset.tail, location.href);
  if (after) address.searchParams.set("after", after);
  stream = new EventSource(address);
  stream.onopen = () => tell(words.following);
  stream.onmessage = (event) => {
    after = event.lastEventId;
    fresh.push(JSON.parse(event.data));
    if (fresh.length > 2 * MOST) fresh.splice(0, fresh.length - MOST);
    painting ||= requestAnimationFrame(paint);
  };
  stream.onerror = () => {
    tell(stream.readyState === EventSource.CLOSED ? words.ended : words.again);
  };
}

function pause(isPaused) {
  button.setAttribute("aria-pressed", String(isPaused));
  button.querySelector("span").textContent = isPaused ? words.resume : words.pause;
  if (isPaused) {
    stream.close();
    tell(words.paused);
  } else {
    tell(words.connecting);
    open();
  }
}

button.addEventListener("click", () => pause(button.getAttribute("aria-pressed") !== "true"));
open();
