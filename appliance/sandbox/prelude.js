// Runs once, when the template is made: builds everything a step sees beside the language itself.
// Nothing in here is a trust boundary: the host checks whatever arrives. Messages to the host are one letter and text.
(() => {
  "use strict";
  const host = globalThis.__host;
  delete globalThis.__host;
  const { parse, stringify } = JSON;
  const { freeze, isFrozen, getOwnPropertyNames, defineProperty, getPrototypeOf: prototypeOf } = Object;
  const MapOf = Map, PromiseOf = Promise, Text = String, Fault = Error, FunctionOf = Function;
  const now = Date.now;
  const isArray = Array.isArray, isFinite = Number.isFinite;

  // ---- faults
  const inner = /<prelude>|<intl>|\(native\)/;
  // More than the host keeps of a message or of a stack; methods are taken now, before code can replace them.
  const { call: callOf } = FunctionOf.prototype, sliceOf = callOf.bind(Text.prototype.slice);
  const cut = (text) => (text.length > 16000 ? sliceOf(text, 0, 16000) : text);
  const trace = (stack) => cut(Text(stack)).split("\n").filter((line) => line && !inner.test(line)).join("\n");
  const show = (value) => {
    try {
      if (typeof value === "string") return value;
      if (value instanceof Fault) return Text(value) + (value.stack ? "\n" + trace(value.stack) : "");
      if (typeof value === "object" && value !== null) return stringify(value) ?? Text(value);
      return Text(value);
    } catch {
      return "[unprintable]";
    }
  };
  const describe = (thrown) => {
    try {
      if (typeof thrown !== "object" || thrown === null) return { name: "Thrown", message: cut(show(thrown)), stack: "" };
      const isFault = thrown instanceof Fault;
      const message = cut(thrown.message === undefined ? show(thrown) : Text(thrown.message));
      return {
        name: isFault ? cut(Text(thrown.name)) : "Thrown",
        message,
        stack: isFault ? trace(thrown.stack) : "",
        code: typeof thrown.code === "string" ? cut(thrown.code) : undefined,
        retryable: thrown.retryable === true,
        failure_class: typeof thrown.failure_class === "string" ? thrown.failure_class : undefined,
        cause: thrown.cause === undefined ? undefined : cut(show(thrown.cause)),
      };
    } catch {
      return { name: "Error", message: "what was thrown cannot be described", stack: "" };
    }
  };

  // ---- calls to the host
  let last = 0;
  const pending = new MapOf();
  const call = (method, parameters) => {
    const at = new Fault().stack;
    return new PromiseOf((resolve, reject) => {
      const body = stringify(parameters); // may make calls of its own, which then come first
      const id = last + 1;
      host("c" + id + "\n" + method + "\n" + body);
      last = id;
      pending.set(id, [resolve, reject, at]);
    });
  };
  const settle = (text) => {
    if (text === "") return forgetIntl();
    const first = text.indexOf("\n"), second = text.indexOf("\n", first + 1);
    const id = +text.slice(0, first), ok = text.slice(first + 1, second) === "1", body = text.slice(second + 1);
    const entry = pending.get(id);
    if (entry === undefined) return;
    pending.delete(id);
    if (ok) return entry[0](parse(body));
    const answer = parse(body), fault = new Fault(answer.message);
    defineProperty(fault, "name", { value: "ApiError", configurable: true, writable: true });
    fault.stack = trace(entry[2]);
    fault.code = answer.code;
    fault.retryable = answer.retryable === true;
    if (answer.details !== undefined) fault.details = answer.details;
    if (answer.failure_class !== undefined) {
      defineProperty(fault, "failure_class", { value: answer.failure_class, configurable: true, writable: true });
    }
    entry[1](fault);
  };

  // ---- api
  const methods = (space, names) => {
    const out = {};
    for (const name of names) out[name] = (...parameters) => call(space + "." + name, parameters);
    return out;
  };
  const log = {}, out = {};
  for (const level of ["info", "warn", "error"]) {
    log[level] = (message, fields) => { host("l" + level + "\n" + stringify([show(message), fields])); };
  }
  for (const [name, level] of [["log", "info"], ["info", "info"], ["debug", "info"], ["warn", "warn"], ["error", "error"]]) {
    out[name] = (...values) => { host("l" + level + "\n" + stringify([values.map(show).join(" ")])); };
  }
  const api = {
    integrations: freeze(methods("integrations", ["execute"])),
    datapool: freeze(methods("datapool", ["find", "query", "create", "update", "upsert", "delete", "batch"])),
    documents: freeze(methods("documents", ["get", "read", "create"])),
    processes: freeze(methods("processes", ["execute"])),
    human: freeze(methods("human", ["request"])),
    wait: freeze(methods("wait", ["for", "until"])),
    events: freeze(methods("events", ["wait"])),
    llm: freeze(methods("llm", ["generate"])),
    secrets: freeze(methods("secrets", ["get"])),
    log: freeze(log),
    now: () => new Date(now()).toISOString(),
  };
  globalThis.console = freeze(out);

  // ---- random and clock: Math.random is xoshiro128** (Blackman, Vigna), seeded by the host when it is first asked
  let seeded = false, s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  const next = () => {
    const r = Math.imul(s1, 5), t = s1 << 9;
    s2 ^= s0; s3 ^= s1; s1 ^= s2; s0 ^= s3; s2 ^= t; s3 = (s3 << 11) | (s3 >>> 21);
    return Math.imul((r << 7) | (r >>> 25), 9) >>> 0;
  };
  const random = () => {
    if (!seeded) { [s0, s1, s2, s3] = parse(host("s")); seeded = true; }
    return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
  };
  defineProperty(Math, "random", { value: random, writable: true, configurable: true });
  let origin;
  const performance = freeze({ now() { const at = now(); origin ??= at; return at - origin; } });
  defineProperty(globalThis, "performance", { value: performance, writable: true, configurable: true });

  // ---- Intl, and what takes a locale: the host hands over the code when it is first asked for, which most steps never do
  let international, isHeld = false;
  const loadIntl = () => {
    if (international === undefined) {
      const link = { fetch: (name) => host("i" + name), loaded: (Intl, methods) => { international = { Intl, methods }; } };
      defineProperty(globalThis, "__intl", { value: link, configurable: true });
      host("i");
      delete globalThis.__intl;
      if (international === undefined) throw new Fault("Intl is not available here");
    }
    return international;
  };
  defineProperty(globalThis, "Intl", {
    configurable: true,
    get() {
      const { Intl } = loadIntl();
      isHeld = true;
      defineProperty(globalThis, "Intl", { value: Intl, writable: true, configurable: true });
      return Intl;
    },
    set(value) { defineProperty(globalThis, "Intl", { value, writable: true, configurable: true }); },
  });
  /** A step that falls asleep holds none of it, unless its code took `Intl` itself; what it needs later comes again. */
  const forgetIntl = () => { if (!isHeld) international = undefined; };
  const apply = Reflect.apply;
  for (const [owner, names] of [
    [Date, ["toLocaleString", "toLocaleDateString", "toLocaleTimeString"]], [Number, ["toLocaleString"]], [BigInt, ["toLocaleString"]],
    [Array, ["toLocaleString"]], [Text, ["localeCompare", "toLocaleUpperCase", "toLocaleLowerCase"]],
  ]) {
    for (const name of names) {
      const key = owner.name + "." + name;
      const own = name.endsWith("Case") ? owner.prototype[name] : undefined; // without a locale it is what it says
      const method = (locale) => (own !== undefined && locale === undefined ? own : loadIntl().methods[key]);
      const value = { [name](...given) { return apply(method(given[0]), this, given); } }[name];
      defineProperty(value, "length", { value: name === "localeCompare" ? 1 : 0, configurable: true });
      defineProperty(owner.prototype, name, { value, writable: true, configurable: true });
    }
  }

  const harden = (value) => {
    if (typeof value !== "object" || value === null || isFrozen(value)) return value;
    freeze(value);
    for (const name of getOwnPropertyNames(value)) harden(value[name]);
    return value;
  };

  // ---- a step: text is the facts about the execution, a line feed, and the input
  const start = async (module, text) => {
    try {
      const end = text.indexOf("\n");
      api.execution = harden(parse(text.slice(0, end)));
      freeze(api);
      const input = parse(text.slice(end + 1));
      const entry = (await module).default;
      if (typeof entry !== "function") {
        throw new TypeError("the step must have a default export that is a function: export default async function (input, api) { … }");
      }
      const answer = await entry(input, api);
      const body = answer === undefined ? "null" : stringify(answer);
      if (typeof body !== "string") throw new TypeError("the step returned a " + typeof answer + "; return plain data");
      host("d" + body);
    } catch (thrown) {
      host("f" + stringify(describe(thrown)));
    }
  };

  // ---- expressions: several, each on its own, over the same names. Freezing them costs three times as much as reading them;
  // it is left out where no text looks as if it would change something.
  const changing = /[^=!<>]=(?![=>])|\+\+|--|push|pop|shift|splice|sort|reverse|fill|copyWithin|assign|define|delete|set|\]\s*\(/;
  const plain = (value, path) => {
    switch (typeof value) {
      case "string": case "boolean": return;
      case "number":
        if (!isFinite(value)) throw new TypeError(path + " is " + value);
        return;
      case "object": break;
      default: throw new TypeError(path + " is " + (value === undefined ? "undefined" : "a " + typeof value));
    }
    if (value === null) return;
    if (isArray(value)) { for (let i = 0; i < value.length; i++) plain(value[i], path + "[" + i + "]"); return; }
    if (typeof value.toJSON === "function") return;
    const parent = prototypeOf(value);
    if (parent !== null && parent !== Object.prototype) {
      throw new TypeError(path + " is a " + (value.constructor?.name ?? "special object") + ", not plain data");
    }
    for (const name of Object.keys(value)) plain(value[name], path + "." + name);
  };
  const compile = (text, names) => {
    new FunctionOf(...names, '"use strict";return[\n' + text + "\n]");
    return new FunctionOf(...names, '"use strict";return(\n' + text + "\n)");
  };
  const evaluate = (text) => {
    delete Math.random; // an expression has the same value whenever it is asked
    delete globalThis.crypto;
    const first = text.indexOf("\n"), second = text.indexOf("\n", first + 1);
    const names = parse(text.slice(0, first)), tasks = parse(text.slice(first + 1, second)), rest = text.slice(second + 1);
    let values = rest === "" ? [] : parse(rest);
    if (tasks.some((task) => changing.test(task[1]))) values = values.map(harden);
    for (const [key, source] of tasks) {
      try {
        const value = compile(source, names)(...values);
        plain(value, "the value");
        host("v" + key + "\n" + stringify(value));
      } catch (thrown) {
        host("w" + key + "\n" + stringify(describe(thrown)));
      }
    }
  };
  const check = (text) => {
    try {
      compile(text, []);
      host("v0\ntrue");
    } catch (thrown) {
      host("w0\n" + stringify(describe(thrown)));
    }
  };

  globalThis.__start = start;
  globalThis.__settle = settle;
  globalThis.__evaluate = (text) => (text[0] === "?" ? check(text.slice(1)) : evaluate(text.slice(1)));
})();
