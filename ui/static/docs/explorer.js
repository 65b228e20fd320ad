// The explorer: an index of tags and operations of our own, and Swagger UI for the operations of one tag at a time, because it
// takes seconds for all of them. The API key stays in this page's memory.
import { LANGUAGES, sample } from "./samples.js";

const place = document.getElementById("explorer");
const METHODS = ["get", "put", "post", "delete", "patch", "head", "options"];
let contract; // the OpenAPI document
let operations; // of all tags: {tag, id, method, path, summary}
let ui; // Swagger UI
let shownTag;
let destination = ""; // id of the operation to scroll to once it is rendered

// Colours follow the system, as in the console.
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const followScheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", followScheme);
followScheme();

// The index

const make = (name, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};
const hashOf = (tag, id) => `#/${encodeURIComponent(tag)}${id ? `/${encodeURIComponent(id)}` : ""}`;

function operationLink({ tag, id, method, path, summary }) {
  const link = make("a", { href: hashOf(tag, id), title: path },
    make("span", { className: `explorer-method explorer-${method}`, textContent: method.toUpperCase() }),
    make("span", { textContent: ` ${summary.replace(/\.$/, "")}` }));
  return make("li", {}, link);
}

function showIndex() {
  const words = document.getElementById("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = operations.filter((each) => words.every((word) => each.text.includes(word)));
  const [, current] = readHash();
  const items = contract.tags.map(({ name }) => {
    const listed = words.length ? matches.filter((each) => each.tag === name) : operations.filter((each) => each.tag === name);
    if (!listed.length) return null;
    const link = make("a", { href: hashOf(name), textContent: name });
    if (name === shownTag) link.ariaCurrent = current ? "true" : "page";
    const item = make("li", {}, link);
    if (words.length || name === shownTag) item.append(make("ul", {}, ...listed.map(operationLink)));
    for (const each of item.querySelectorAll("li > ul a")) {
      if (name === shownTag && each.getAttribute("href") === hashOf(name, current)) each.ariaCurrent = "page";
    }
    return item;
  });
  document.getElementById("tags").replaceChildren(...items.filter(Boolean));
  document.getElementById("matches").textContent = words.length
    ? matches.length === 1 ? "1 operation" : `${matches.length || "No"} operations` : "";
}

// Swagger UI, with the document reduced to a tag

function reduceTo(tag) {
  const paths = {};
  for (const { path, method } of operations.filter((each) => each.tag === tag)) {
    (paths[path] ??= {})[method] = contract.paths[path][method];
  }
  const components = { securitySchemes: contract.components.securitySchemes };
  const collect = (part) => {
    for (const [, kind, name] of JSON.stringify(part).matchAll(/"#\/components\/(\w+)\/([^"]+)"/g)) {
      if (components[kind]?.[name]) continue;
      (components[kind] ??= {})[name] = contract.components[kind][name];
      collect(components[kind][name]);
    }
  };
  collect(paths);
  return { ...contract, tags: contract.tags.filter(({ name }) => name === tag), paths, components };
}

function readHash() {
  return location.hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
}

function chooseTag() {
  const [wish] = readHash();
  return contract.tags.some(({ name }) => name === wish) ? wish : contract.tags[0].name;
}

/** Show what the address names: a tag, or an operation of it. */
function follow() {
  const tag = chooseTag();
  const [wish, id] = readHash();
  if (tag !== shownTag) ui.specActions.updateJsonSpec(reduceTo(tag));
  shownTag = tag;
  document.title = `${tag} · API · Governed Operations Service`;
  if (id) ui.layoutActions.show(["operations", tag, id], true);
  showIndex();
  destination = id ? `operations-${tag}-${id}` : "";
  if (wish && !id) window.scrollTo(0, 0);
  scrollToDestination();
}

function scrollToDestination() {
  const target = destination && document.getElementById(destination);
  if (!target) return;
  destination = "";
  target.scrollIntoView();
}

// Swagger UI's parts: one heading for the tag, an address for each operation that is opened, and names for its fields

function partsPlugin({ React }) {
  const create = React.createElement;
  return {
    components: {
      OperationTag: ({ tag, tagObj, children }) => create("section", { className: "explorer-tag" },
        create("h2", null, tag), create("p", null, tagObj.getIn(["tagDetails", "description"])), children),
    },
    statePlugins: {
      layout: {
        wrapActions: {
          show: (show) => (key, isShown = true) => {
            if (isShown && key[0] === "operations" && key[2]) {
              history.replaceState(null, "", hashOf(key[1], key[2]));
              showIndex();
            }
            return show(key, isShown);
          },
        },
      },
    },
  };
}

const FIELDS = { TEXTAREA: "Request body", SELECT: "Server", INPUT: "Value" };

function nameFields() {
  for (const field of place.querySelectorAll("input, textarea, select")) {
    if (field.ariaLabel || (field.labels?.length && field.id !== "servers")) continue; // that label is empty
    field.ariaLabel = field.closest("tr[data-param-name]")?.dataset.paramName ?? (field.placeholder || FIELDS[field.tagName]);
  }
  for (const example of place.querySelectorAll("pre.microlight")) example.tabIndex = 0; // it scrolls
}

// Code samples, below the parameters of an operation

function readLanguage() {
  const stored = localStorage.getItem("gos.samples");
  return LANGUAGES.some(({ id }) => id === stored) ? stored : LANGUAGES[0].id;
}

function samplesPlugin({ React }) {
  const create = React.createElement;

  function Samples({ path, method }) {
    const [language, setLanguage] = React.useState(readLanguage);
    const [copied, setCopied] = React.useState(false);
    const text = React.useMemo(() => sample(contract, path, method, language), [path, method, language]);
    const name = `samples-${method}-${path}`;
    const choose = (event) => {
      localStorage.setItem("gos.samples", event.target.value);
      setLanguage(event.target.value);
      setCopied(false);
    };
    const choices = LANGUAGES.map(({ id, name: label }) => create("label", { key: id },
      create("input", { type: "radio", name, value: id, checked: id === language, onChange: choose }), create("span", null, label)));
    const copy = create("button", { type: "button", onClick: () => navigator.clipboard.writeText(text).then(() => setCopied(true)) },
      copied ? "Copied" : "Copy");
    return create("section", { className: "explorer-samples", "aria-label": "Code samples" },
      create("div", { className: "explorer-samples-head" }, create("h4", null, "Code samples"),
        create("fieldset", null, create("legend", null, "Language"), ...choices), copy),
      create("pre", { tabIndex: 0 }, create("code", null, text)));
  }

  return {
    wrapComponents: {
      responses: (Responses) => (properties) => create(React.Fragment, null,
        create(Samples, { path: properties.path, method: properties.method }), create(Responses, properties)),
    },
  };
}

async function start() {
  if (!window.SwaggerUIBundle) {
    place.textContent = "The explorer's files are not installed here. The contract itself is /api-docs/openapi.json.";
    return;
  }
  contract = await (await fetch("/api-docs/openapi.json")).json();
  operations = Object.entries(contract.paths).flatMap(([path, item]) => METHODS.filter((method) => item[method]).map((method) => {
    const { operationId: id, summary, tags: [tag] } = item[method];
    return { tag, id, method, path, summary, text: `${tag} ${id} ${method} ${path} ${summary}`.toLowerCase() };
  }));
  shownTag = chooseTag();
  ui = window.SwaggerUIBundle({
    spec: reduceTo(shownTag),
    domNode: place,
    docExpansion: "list",
    defaultModelsExpandDepth: -1,
    displayRequestDuration: true,
    persistAuthorization: false,
    syntaxHighlight: { activated: false }, // its colours are too faint
    validatorUrl: null,
    tryItOutEnabled: true,
    presets: [window.SwaggerUIBundle.presets.apis],
    plugins: [partsPlugin, samplesPlugin],
    layout: "BaseLayout",
    onComplete: follow,
  });
  new MutationObserver(() => {
    nameFields();
    scrollToDestination();
  }).observe(place, { childList: true, subtree: true });
  const index = document.querySelector(".explorer-index");
  const isNarrow = window.matchMedia("(max-width: 60em)");
  const fold = () => { index.open = !isNarrow.matches; };
  isNarrow.addEventListener("change", fold);
  fold();
  document.getElementById("filter").addEventListener("input", showIndex);
  document.getElementById("tags").addEventListener("click", (event) => {
    if (!event.target.closest("a")) return;
    fold();
    place.focus({ preventScroll: true });
  });
  window.addEventListener("hashchange", follow);
}

start(); // a module runs once the page is parsed, after the deferred script of Swagger UI
