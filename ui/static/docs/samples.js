// Code samples for an operation of the OpenAPI document. They read the API key from GOS_API_KEY, need no library, and contain
// the examples of the document where it has some. Pure functions: the tests run them in Node.

export const LANGUAGES = [
  { id: "curl", name: "curl" },
  { id: "python", name: "Python" },
  { id: "typescript", name: "TypeScript" },
  { id: "php", name: "PHP" },
];

const MOST_NESTING = 6; // levels of an example made from a schema
const FILES = { // names for bodies that are files, by media type
  "application/zip": "archive.zip", "application/gzip": "archive.tar.gz", "text/csv": "rows.csv", "application/x-ndjson": "rows.ndjson",
  "application/pdf": "answer.pdf", "text/html": "answer.html", "text/plain": "answer.txt", "application/yaml": "answer.yaml",
};

/** The sample of an operation in one of LANGUAGES, as text that ends without a line feed. */
export function sample(document, path, method, language) {
  return WRITERS[language](describeRequest(document, path, method));
}

/** What a sample sends and expects: method, url, headers without the key, body ({json} or {file}), and `answer`: "json", "stream",
 * "none", or the name of a file to write. */
export function describeRequest(document, path, method) {
  const operation = document.paths[path][method.toLowerCase()];
  const parameters = (operation.parameters ?? []).map((each) => resolve(document, each));
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => {
    const parameter = parameters.find((each) => each.in === "path" && each.name === name);
    return encodeURIComponent(String((parameter && parameterExample(document, parameter)) ?? name));
  });
  const query = parameters.filter((each) => each.in === "query" && each.required)
    .map((each) => `${encodeURIComponent(each.name)}=${encodeURIComponent(asText(parameterExample(document, each) ?? each.name))}`);
  const headers = parameters.filter((each) => each.in === "header" && each.required)
    .map((each) => [each.name, asText(parameterExample(document, each) ?? "0")]);
  const url = (operation.servers ?? document.servers)[0].url + filled + (query.length ? `?${query.join("&")}` : "");
  const { type, body } = describeBody(document, operation);
  if (type) headers.push(["Content-Type", type]);
  return { method: method.toUpperCase(), url, headers, body, answer: describeAnswer(document, operation) };
}

function describeBody(document, operation) {
  const content = operation.requestBody && resolve(document, operation.requestBody).content;
  if (!content) return {};
  if (content["application/json"]) {
    return { type: "application/json", body: { json: mediaExample(document, content["application/json"]) ?? {} } };
  }
  const type = Object.keys(content)[0];
  return { type, body: { file: FILES[type] ?? "file.bin" } };
}

function describeAnswer(document, operation) {
  const status = Object.keys(operation.responses).filter((each) => each.startsWith("2")).sort()[0];
  const content = status && resolve(document, operation.responses[status]).content;
  if (!content) return "none";
  if (content["application/json"]) return "json";
  const type = Object.keys(content)[0];
  return type === "text/event-stream" ? "stream" : FILES[type] ?? "answer.bin";
}

function resolve(document, part) {
  if (!part?.$ref) return part;
  return resolve(document, part.$ref.slice(2).split("/").reduce((inner, name) => inner?.[name.replaceAll("~1", "/").replaceAll("~0", "~")], document));
}

function firstExample(holder) {
  if (holder.example !== undefined) return holder.example;
  if (Array.isArray(holder.examples)) return holder.examples[0];
  return Object.values(holder.examples ?? {})[0]?.value;
}

function parameterExample(document, parameter) {
  const example = firstExample(parameter);
  if (example !== undefined) return example;
  const schema = resolve(document, parameter.schema ?? {});
  const known = knownValue(schema);
  if (known !== undefined) return known;
  return schema.type === "string" && !schema.format ? undefined : schemaExample(document, schema, 0);
}

function mediaExample(document, media) {
  return firstExample(media) ?? schemaExample(document, media.schema ?? {}, 0);
}

function knownValue(schema) {
  return [firstExample(schema), schema.const, schema.default ?? undefined, schema.enum?.[0]].find((value) => value !== undefined);
}

const STRINGS = {
  "date-time": "2026-01-31T12:00:00Z", date: "2026-01-31", email: "ada@example.com", uri: "https://example.com/",
  uuid: "00000000-0000-4000-8000-000000000000",
};

/** A value with the required members of a schema. */
function schemaExample(document, reference, nesting) {
  const schema = resolve(document, reference);
  const known = knownValue(schema);
  if (known !== undefined) return known;
  const choice = (schema.anyOf ?? schema.oneOf)?.find((each) => each.type !== "null");
  if (choice) return schemaExample(document, choice, nesting);
  if (schema.allOf) return Object.assign({}, ...schema.allOf.map((each) => schemaExample(document, each, nesting)));
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  if (type === "object" || schema.properties) {
    const names = nesting < MOST_NESTING ? schema.required ?? [] : [];
    return Object.fromEntries(names.map((name) => [name, schemaExample(document, schema.properties?.[name] ?? {}, nesting + 1)]));
  }
  if (type === "array") return schema.minItems && nesting < MOST_NESTING ? [schemaExample(document, schema.items ?? {}, nesting + 1)] : [];
  if (type === "integer" || type === "number") return schema.minimum ?? 1;
  if (type === "boolean") return true;
  if (type === "null") return null;
  return type === "string" ? STRINGS[schema.format] ?? "text" : {};
}

const asText = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));

// Literals. `quote` writes a text, `words` the names of constants, `object` and `list` the brackets of a language.

function literal(value, style, indent) {
  if (typeof value === "string") return style.quote(value);
  if (value === null || typeof value === "boolean") return style.words[String(value)];
  if (typeof value === "number") return String(value);
  const inner = `${indent}${style.step}`;
  const isList = Array.isArray(value);
  const items = isList ? value.map((each) => literal(each, style, inner))
    : Object.entries(value).map(([name, each]) => `${style.quote(name)}${style.colon}${literal(each, style, inner)}`);
  const [open, close] = isList ? style.list : style.object;
  if (!items.length) return isList ? open + close : style.empty ?? open + close;
  return `${open}\n${items.map((each) => inner + each).join(",\n")}${style.comma}\n${indent}${close}`;
}

const WORDS = { true: "true", false: "false", null: "null" };
const JAVASCRIPT = { quote: JSON.stringify, words: WORDS, step: "  ", colon: ": ", list: "[]", object: "{}", comma: "," };
const JSON_TEXT = { ...JAVASCRIPT, comma: "" };
// JSON's escapes are Python's too, but for halves of characters outside the first plane, which JSON.stringify leaves whole.
const PYTHON = { ...JAVASCRIPT, words: { true: "True", false: "False", null: "None" }, step: "    " };
const singleQuoted = (text) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
const PHP = {
  quote: singleQuoted, words: WORDS, step: "    ", colon: " => ", list: "[]", object: "[]", empty: "new stdClass()", comma: ",",
};
const inShell = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const WRITERS = {
  curl({ method, url, headers, body, answer }) {
    const options = [`curl --fail-with-body${answer === "stream" ? " --no-buffer" : ""}${method === "GET" ? "" : ` --request ${method}`} ${inShell(url)}`];
    options.push('--header "X-API-Key: $GOS_API_KEY"', ...headers.map(([name, value]) => `--header ${inShell(`${name}: ${value}`)}`));
    if (body?.file) options.push(`--data-binary @${body.file}`);
    else if (body) options.push(`--data ${inShell(literal(body.json, JSON_TEXT, ""))}`);
    if (answer.includes(".")) options.push(`--output ${answer}`);
    return options.join(" \\\n  ");
  },

  python({ method, url, headers, body, answer }) {
    const lines = [...(body?.json || answer === "json" ? ["import json"] : []), "import os"];
    lines.push(...(body?.file ? ["import pathlib"] : []), ...(answer === "stream" ? ["import sys"] : []), "import urllib.request", "");
    const fields = headers.map(([name, value]) => `        ${PYTHON.quote(name)}: ${PYTHON.quote(value)},`);
    lines.push("request = urllib.request.Request(", `    ${PYTHON.quote(url)},`, `    method="${method}",`);
    lines.push("    headers={", '        "X-API-Key": os.environ["GOS_API_KEY"],', ...fields, "    },");
    if (body?.file) lines.push(`    data=pathlib.Path("${body.file}").read_bytes(),`);
    else if (body) lines.push(`    data=json.dumps(${literal(body.json, PYTHON, "    ")}).encode(),`);
    lines.push(")", "with urllib.request.urlopen(request) as response:");
    if (answer === "json") lines.push("    print(json.load(response))");
    else if (answer === "stream") lines.push("    for line in response:", "        sys.stdout.write(line.decode())");
    else if (answer === "none") lines.push("    print(response.status)");
    else lines.push(`    with open("${answer}", "wb") as file:`, "        file.write(response.read())");
    return lines.join("\n");
  },

  typescript({ method, url, headers, body, answer }) {
    const names = [...(body?.file ? ["readFile"] : []), ...(answer.includes(".") ? ["writeFile"] : [])];
    const lines = names.length ? [`import { ${names.join(", ")} } from "node:fs/promises";`, ""] : [];
    const fields = headers.map(([name, value]) => `    ${JSON.stringify(name)}: ${JSON.stringify(value)},`);
    lines.push(`const response = await fetch(${JSON.stringify(url)}, {`, `  method: "${method}",`);
    lines.push("  headers: {", '    "X-API-Key": process.env.GOS_API_KEY ?? "",', ...fields, "  },");
    if (body?.file) lines.push(`  body: await readFile("${body.file}"),`);
    else if (body) lines.push(`  body: JSON.stringify(${literal(body.json, JAVASCRIPT, "  ")}),`);
    lines.push("});", "if (!response.ok) throw new Error(await response.text());");
    if (answer === "json") lines.push("console.log(await response.json());");
    else if (answer === "stream") lines.push("for await (const part of response.body ?? []) process.stdout.write(part);");
    else if (answer === "none") lines.push("console.log(response.status);");
    else lines.push(`await writeFile("${answer}", Buffer.from(await response.arrayBuffer()));`);
    return lines.join("\n");
  },

  php({ method, url, headers, body, answer }) {
    const fields = headers.map(([name, value]) => `        ${singleQuoted(`${name}: ${value}`)},`);
    const lines = ["<?php", "$context = stream_context_create(['http' => [", `    'method' => '${method}',`];
    lines.push("    'header' => [", "        'X-API-Key: ' . getenv('GOS_API_KEY'),", ...fields, "    ],");
    if (body?.file) lines.push(`    'content' => file_get_contents('${body.file}'),`);
    else if (body) lines.push(`    'content' => json_encode(${literal(body.json, PHP, "    ")}),`);
    lines.push("]]);");
    if (answer === "stream") return [...lines, `fpassthru(fopen(${singleQuoted(url)}, 'r', false, $context));`].join("\n");
    lines.push(`$response = file_get_contents(${singleQuoted(url)}, false, $context);`);
    lines.push("if ($response === false) {", "    exit(1);", "}");
    if (answer === "json") lines.push("print_r(json_decode($response, true));");
    else if (answer === "none") lines.push("echo $http_response_header[0], PHP_EOL;");
    else lines.push(`file_put_contents('${answer}', $response);`);
    return lines.join("\n");
  },
};
