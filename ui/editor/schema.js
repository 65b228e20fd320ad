// Completes the keys and the known words of a YAML text from a JSON Schema, by the indentation around the cursor.

const DEPTH = 12;

let schema = null;

async function load(address) {
  if (!schema) {
    const answer = await fetch(address);
    if (!answer.ok) return null;
    schema = await answer.json();
  }
  return schema;
}

// Everything that a value here may be: references followed, alternatives side by side.
function alternatives(node, depth = 0) {
  if (!node || typeof node !== "object" || depth > DEPTH) return [];
  const found = [node];
  if (node.$ref?.startsWith("#/")) {
    const target = node.$ref.slice(2).split("/").reduce((at, part) => at?.[part.replaceAll("~1", "/").replaceAll("~0", "~")], schema);
    found.push(...alternatives(target, depth + 1));
  }
  for (const name of ["allOf", "anyOf", "oneOf"]) for (const each of node[name] ?? []) found.push(...alternatives(each, depth + 1));
  for (const name of ["then", "else"]) found.push(...alternatives(node[name], depth + 1));
  return found;
}

function under(nodes, step) {
  const found = [];
  for (const node of nodes) {
    if (step === null) found.push(...alternatives(node.items));
    else {
      found.push(...alternatives(node.properties?.[step]));
      if (!node.properties?.[step]) found.push(...alternatives(node.additionalProperties));
    }
  }
  return found;
}

// The keys and list items (null) that lead to the line of the cursor, from the outside in.
export function pathTo(lines, indent) {
  const path = [];
  let within = indent;
  for (let number = lines.length - 1; number >= 0 && within > 0; number -= 1) {
    const found = /^(\s*)((?:- +)*)(?:([A-Za-z_][\w-]*)\s*:(?:\s|$))?/.exec(lines[number]);
    if (!lines[number].trim() || lines[number].trimStart().startsWith("#")) continue;
    const outer = found[1].length;
    const inner = outer + found[2].length;
    if (found[3] && inner < within) { path.unshift(found[3]); within = inner; }
    if (found[2] && outer < within) { path.unshift(null); within = outer; }
  }
  return path;
}

function keysOf(nodes) {
  const keys = new Map();
  for (const node of nodes) {
    for (const [name, value] of Object.entries(node.properties ?? {})) {
      if (!keys.has(name)) keys.set(name, { label: name, apply: `${name}: `, type: "property", info: value.description ?? value.title });
    }
  }
  return [...keys.values()];
}

function wordsOf(nodes) {
  const words = new Set();
  for (const node of nodes) {
    for (const each of node.enum ?? []) words.add(String(each));
    if ("const" in node) words.add(String(node.const));
    if ([node.type].flat().includes("boolean")) { words.add("true"); words.add("false"); }
  }
  return [...words].map((label) => ({ label, type: "enum" }));
}

export function completeBySchema(address) {
  return async (context) => {
    const line = context.state.doc.lineAt(context.pos);
    const before = line.text.slice(0, context.pos - line.from);
    const typed = /^(\s*(?:- +)*)(?:([A-Za-z_][\w-]*)\s*:\s+)?([\w-]*)$/.exec(before);
    if (!typed || (!typed[3] && !context.explicit && !/(?:^|- )$/.test(before))) return null;
    const root = await load(address);
    if (!root) return null;
    const above = [];
    for (let number = 1; number < line.number; number += 1) above.push(context.state.doc.line(number).text);
    const indent = typed[1].length;
    above.push(typed[1].trimEnd()); // the dashes of this very line count
    const path = pathTo(above, indent);
    if (typed[2]) path.push(typed[2]);
    let nodes = alternatives(root);
    for (const step of path) nodes = under(nodes, step);
    const options = typed[2] ? wordsOf(nodes) : keysOf(nodes);
    return options.length ? { from: context.pos - typed[3].length, options, validFor: /^[\w-]*$/ } : null;
  };
}
