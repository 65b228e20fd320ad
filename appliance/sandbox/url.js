// Runs once, when the template is made, before the prelude: URL and URLSearchParams as the WHATWG URL Standard has them.
// Hosts that are not ASCII are lower-cased, composed (NFKC) and written in Punycode (RFC 3492), without the tables of UTS #46.
(() => {
  "use strict";
  const { defineProperty } = Object;
  const PORTS = { "http:": "80", "https:": "443", "ws:": "80", "wss:": "443", "ftp:": "21", "file:": "" };
  const encoder = new TextEncoder(), decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const hex = (byte) => "%" + (byte + 256).toString(16).slice(1).toUpperCase();
  // The percent-encode sets: what is encoded beside controls and everything that is not ASCII.
  const FRAGMENT = ' "<>`', QUERY = ' "#<>', SPECIAL_QUERY = QUERY + "'", PATH = QUERY + "?^`{}", USERINFO = PATH + "/:;=@[\\]|";
  const escape = (text, set) => {
    let out = "";
    for (const each of text.toWellFormed()) {
      if (each > "\x1f" && each < "\x7f" && !set.includes(each)) out += each;
      else for (const byte of encoder.encode(each)) out += hex(byte);
    }
    return out;
  };
  const unescape = (text) => {
    const bytes = encoder.encode(text), out = [];
    for (let at = 0; at < bytes.length; at++) {
      const code = bytes[at] === 37 ? /^[0-9a-f]{2}$/i.exec(String.fromCharCode(...bytes.subarray(at + 1, at + 3)))?.[0] : undefined;
      out.push(code === undefined ? bytes[at] : parseInt(code, 16));
      if (code !== undefined) at += 2;
    }
    return decoder.decode(Uint8Array.from(out));
  };
  const fail = (text) => { throw new TypeError(`'${text}' is not a valid URL`); };

  // ---- hosts
  const punycode = (label) => {
    const points = Array.from(label, (each) => each.codePointAt(0));
    let out = points.filter((each) => each < 128).map((each) => String.fromCodePoint(each)).join("");
    let handled = out.length, n = 128, delta = 0, bias = 72;
    const basic = handled;
    if (basic) out += "-";
    while (handled < points.length) {
      const next = Math.min(...points.filter((each) => each >= n));
      delta += (next - n) * (handled + 1);
      n = next;
      for (const each of points) {
        if (each < n) delta++;
        if (each !== n) continue;
        let q = delta;
        for (let k = 36; ; k += 36) {
          const t = k <= bias ? 1 : k >= bias + 26 ? 26 : k - bias;
          if (q < t) break;
          const digit = t + ((q - t) % (36 - t));
          out += String.fromCharCode(digit + (digit < 26 ? 97 : 22));
          q = Math.floor((q - t) / (36 - t));
        }
        out += String.fromCharCode(q + (q < 26 ? 97 : 22));
        delta = handled === basic ? Math.floor(delta / 700) : delta >> 1;
        delta += Math.floor(delta / (handled + 1));
        let k = 0;
        for (; delta > 455; k += 36) delta = Math.floor(delta / 35);
        bias = k + Math.floor((36 * delta) / (delta + 38));
        delta = 0;
        handled++;
      }
      delta++;
      n++;
    }
    return "xn--" + out;
  };
  const number = (text) => {
    if (text === "") return NaN;
    if (/^0x[0-9a-f]*$/i.test(text)) return text.length > 2 ? parseInt(text, 16) : 0;
    if (/^0[0-7]*$/.test(text)) return parseInt(text, 8);
    return /^[0-9]+$/.test(text) ? parseInt(text, 10) : NaN;
  };
  const ipv4 = (host) => {
    const parts = host.split(".");
    if (parts.length > 1 && parts.at(-1) === "") parts.pop();
    if (!/^([0-9]+|0x[0-9a-f]*)$/i.test(parts.at(-1))) return undefined;
    const values = parts.map(number);
    const last = values.at(-1);
    if (parts.length > 4 || values.some(Number.isNaN) || values.slice(0, -1).some((each) => each > 255)) return null;
    if (last >= 256 ** (5 - values.length)) return null;
    const whole = values.slice(0, -1).reduce((sum, each, index) => sum + each * 256 ** (3 - index), last);
    return [3, 2, 1, 0].map((index) => Math.floor(whole / 256 ** index) % 256).join(".");
  };
  const ipv6 = (text) => {
    let rest = text;
    const dotted = /^(.*:)(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(rest);
    if (dotted) {
      const four = dotted.slice(2).map((each) => (/^(0|[1-9]\d*)$/.test(each) ? Number(each) : 256));
      if (four.some((each) => each > 255)) return null;
      rest = dotted[1] + ((four[0] << 8) | four[1]).toString(16) + ":" + ((four[2] << 8) | four[3]).toString(16);
    }
    const halves = rest.split("::");
    const groups = halves.map((half) => (half === "" ? [] : half.split(":")));
    const count = groups.flat().length;
    if (halves.length > 2 || (halves.length === 1 ? count !== 8 : count > 7)) return null;
    if (groups.flat().some((each) => !/^[0-9a-f]{1,4}$/i.test(each))) return null;
    const all = [...groups[0], ...new Array(8 - count).fill("0"), ...(groups[1] ?? [])].map((each) => parseInt(each, 16).toString(16));
    let best = { at: -1, length: 1 };
    for (let at = 0; at < 8; at++) {
      let length = 0;
      while (all[at + length] === "0") length++;
      if (length > best.length) best = { at, length };
    }
    if (best.at < 0) return `[${all.join(":")}]`;
    return `[${all.slice(0, best.at).join(":")}::${all.slice(best.at + best.length).join(":")}]`;
  };
  const FORBIDDEN = /[\0\t\n\r #/:<>?@[\\\]^|]/, FORBIDDEN_DOMAIN = /[\0-\x20"#%/:<>?@[\\\]^`{|}\x7f]/;
  /** The host as it is written, or null. */
  const hostOf = (text, isSpecial) => {
    if (text[0] === "[") return text.at(-1) === "]" ? ipv6(text.slice(1, -1)) : null;
    if (!isSpecial) return FORBIDDEN.test(text) ? null : escape(text, "");
    const plain = unescape(text).toLowerCase().normalize("NFKC").replace(/[\u3002\uff0e\uff61]/g, ".").replace(/[\u00ad\u200b\u2060\ufeff]/g, "");
    const domain = plain.toLowerCase().split(".").map((each) => (/[^\0-\x7f]/.test(each) ? punycode(each) : each)).join(".");
    if (domain === "" || FORBIDDEN_DOMAIN.test(domain)) return null;
    const address = ipv4(domain);
    return address === undefined ? domain : address;
  };

  // ---- parsing: a record {scheme, username, password, host (null: none), port, path (text: opaque), query, fragment (null: none)}
  const isSpecial = (record) => record.scheme in PORTS;
  const isDrive = (text) => /^[a-z][:|]$/i.test(text);
  const segments = (record, text) => {
    const separator = isSpecial(record) ? /[/\\]/ : /\//;
    const parts = text.split(separator);
    parts.forEach((part, index) => {
      const name = part.replace(/%2e/gi, "."), isLast = index === parts.length - 1;
      if (name === "..") {
        if (!(record.scheme === "file:" && record.path.length === 1 && isDrive(record.path[0]))) record.path.pop();
        if (isLast) record.path.push("");
      } else if (name === ".") {
        if (isLast) record.path.push("");
      } else {
        const drive = record.scheme === "file:" && !record.path.length && isDrive(part);
        record.path.push(drive ? part[0] + ":" : escape(part, PATH));
      }
    });
  };
  const setPort = (record, text) => {
    if (!/^[0-9]*$/.test(text) || Number(text) > 65535) return false;
    const port = text === "" ? "" : String(Number(text));
    record.port = port === PORTS[record.scheme] ? "" : port;
    return true;
  };
  const setAuthority = (record, text) => {
    const at = text.lastIndexOf("@"), special = isSpecial(record);
    if (at >= 0) {
      const colon = text.slice(0, at).indexOf(":");
      record.username = escape(text.slice(0, colon < 0 ? at : colon), USERINFO);
      record.password = colon < 0 ? "" : escape(text.slice(colon + 1, at), USERINFO);
    }
    const [, name, port] = /^(\[[^\]]*\]|[^:]*)(?::(.*))?$/s.exec(text.slice(at + 1)) ?? [];
    if (name === undefined || (name === "" && (special || at >= 0 || port !== undefined))) return false;
    const host = name === "" ? "" : hostOf(name, special);
    if (host === null) return false;
    record.host = host;
    return setPort(record, port ?? "");
  };
  const setQuery = (record, text) => { record.query = escape(text, isSpecial(record) ? SPECIAL_QUERY : QUERY); };
  const parse = (input, base) => {
    const text = input.replace(/^[\0-\x20]+|[\0-\x20]+$/g, "").replace(/[\t\n\r]/g, "");
    const [, before, fragment] = /^([^#]*)(?:#(.*))?$/s.exec(text);
    const found = /^([a-z][a-z0-9+.-]*:)(.*)$/is.exec(before);
    const record = { scheme: "", username: "", password: "", host: null, port: "", path: [], query: null, fragment: null };
    if (fragment !== undefined) record.fragment = escape(fragment, FRAGMENT);
    const inherit = (...names) => { for (const name of names) record[name] = Array.isArray(base[name]) ? [...base[name]] : base[name]; };
    let rest = found ? found[2] : before;
    if (found) record.scheme = found[1].toLowerCase();
    else if (!base) fail(input);
    else if (typeof base.path === "string") {
      if (before !== "" || fragment === undefined) fail(input);
      inherit("scheme", "path", "query");
      return record;
    } else record.scheme = base.scheme;
    const special = isSpecial(record), slash = special ? /^[/\\]/ : /^\//, slashes = special ? /^[/\\]{2}/ : /^\/\//;
    const relative = base && typeof base.path !== "string" && (!found || (special && base.scheme === record.scheme && !slash.test(rest)));
    const cut = (isSpecialPath) => {
      const at = rest.indexOf("?");
      if (at >= 0) setQuery(record, rest.slice(at + 1));
      const path = at >= 0 ? rest.slice(0, at) : rest;
      return isSpecialPath && path === "" ? "/" : path;
    };
    if (found && !special && !slash.test(rest)) {
      record.path = escape(cut(), "").replace(/ +$/, (spaces) => (record.query === null && record.fragment === null ? "" : spaces));
      return record;
    }
    if (record.scheme === "file:") {
      record.host = "";
      if (slashes.test(rest)) {
        const [, name, path] = /^..([^/\\?]*)(.*)$/s.exec(rest);
        if (isDrive(name)) rest = "/" + rest.slice(2);
        else {
          const host = name === "" ? "" : hostOf(name, true);
          if (host === null) fail(input);
          record.host = host === "localhost" ? "" : host;
          rest = path;
        }
        segments(record, cut(true).replace(slash, ""));
        return record;
      }
    } else if (slashes.test(rest) || (special && !relative)) {
      const authority = special ? /^[/\\]*([^/\\?]*)(.*)$/s : /^\/\/([^/?]*)(.*)$/s;
      const [, name, path] = authority.exec(rest);
      if (!setAuthority(record, name)) fail(input);
      rest = path;
      const whole = cut(special);
      if (whole !== "") segments(record, whole.replace(slash, ""));
      return record;
    }
    if (!base || typeof base.path === "string" || (found && base.scheme !== record.scheme) || (found && !special)) {
      segments(record, cut(special).replace(slash, ""));
      return record;
    }
    inherit("username", "password", "host", "port");
    if (slash.test(rest)) {
      segments(record, cut().replace(slash, ""));
    } else if (rest === "") {
      inherit("path", "query");
    } else if (rest[0] === "?") {
      inherit("path");
      cut();
    } else {
      const path = cut();
      inherit("path");
      record.path.pop();
      segments(record, path);
    }
    return record;
  };
  const pathOf = ({ path }) => (typeof path === "string" ? path : path.map((each) => "/" + each).join(""));
  const hostName = (record) => (record.host === null ? "" : record.host + (record.port === "" ? "" : ":" + record.port));
  const write = (record) => {
    let out = record.scheme;
    if (record.host !== null) {
      const password = record.password ? ":" + record.password : "";
      out += "//" + (record.username || password ? record.username + password + "@" : "") + hostName(record);
    } else if (typeof record.path !== "string" && record.path.length > 1 && record.path[0] === "") out += "/.";
    return out + pathOf(record) + (record.query === null ? "" : "?" + record.query) + (record.fragment === null ? "" : "#" + record.fragment);
  };

  // ---- URLSearchParams
  const formEscape = (text) => escape(text, " !\"#$%&'()+,/:;<=>?@[\\]^`{|}~").replaceAll("%20", "+");
  const formParse = (text) => text.split("&").filter(Boolean).map((each) => {
    const at = each.indexOf("=");
    return (at < 0 ? [each, ""] : [each.slice(0, at), each.slice(at + 1)]).map((part) => unescape(part.replaceAll("+", " ")));
  });
  let bind;
  class URLSearchParams {
    #list = []; #changed = () => {};
    constructor(init = "") {
      if (typeof init === "object" && init !== null) {
        const pairs = typeof init[Symbol.iterator] === "function" ? Array.from(init, (each) => [...each]) : Object.entries(init);
        if (pairs.some((each) => each.length !== 2)) throw new TypeError("URLSearchParams takes pairs of a name and a value");
        this.#list = pairs.map((each) => each.map((part) => String(part).toWellFormed()));
      } else this.#list = formParse(String(init).replace(/^\?/, ""));
    }
    static {
      bind = (params, text, changed) => {
        params.#list = formParse(text);
        params.#changed = changed;
      };
    }
    get size() { return this.#list.length; }
    append(name, value) { this.#list.push([String(name), String(value)]); this.#changed(); }
    delete(name, value) {
      this.#list = this.#list.filter((each) => each[0] !== String(name) || (value !== undefined && each[1] !== String(value)));
      this.#changed();
    }
    get(name) { return this.#list.find((each) => each[0] === String(name))?.[1] ?? null; }
    getAll(name) { return this.#list.filter((each) => each[0] === String(name)).map((each) => each[1]); }
    has(name, value) { return this.#list.some((each) => each[0] === String(name) && (value === undefined || each[1] === String(value))); }
    set(name, value) {
      const first = this.#list.findIndex((each) => each[0] === String(name));
      if (first < 0) this.#list.push([String(name), String(value)]);
      else {
        this.#list[first] = [String(name), String(value)];
        this.#list = this.#list.filter((each, index) => index <= first || each[0] !== String(name));
      }
      this.#changed();
    }
    sort() { this.#list.sort((one, other) => (one[0] < other[0] ? -1 : one[0] > other[0] ? 1 : 0)); this.#changed(); }
    forEach(visit, self) { for (const [name, value] of this.#list) visit.call(self, value, name, this); }
    *entries() { for (let at = 0; at < this.#list.length; at++) yield [...this.#list[at]]; }
    *keys() { for (const [name] of this.entries()) yield name; }
    *values() { for (const [, value] of this.entries()) yield value; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return this.#list.map((each) => each.map(formEscape).join("=")).join("&"); }
  }

  class URL {
    #record; #params;
    constructor(url, base) {
      this.#record = parse(String(url), base === undefined ? undefined : parse(String(base)));
      this.#renew();
    }
    static canParse(url, base) { return URL.parse(url, base) !== null; }
    static parse(url, base) {
      try { return new URL(url, base); } catch { return null; }
    }
    #renew() {
      this.#params ??= new URLSearchParams();
      bind(this.#params, this.#record.query ?? "", () => {
        const text = this.#params.toString();
        this.#record.query = text === "" ? null : text;
      });
    }
    get href() { return write(this.#record); }
    set href(value) { this.#record = parse(String(value)); this.#renew(); }
    get origin() { return isSpecial(this.#record) && this.#record.scheme !== "file:" ? `${this.#record.scheme}//${this.host}` : "null"; }
    get protocol() { return this.#record.scheme; }
    set protocol(value) {
      const found = /^[a-z][a-z0-9+.-]*/i.exec(String(value));
      const scheme = found && found[0].toLowerCase() + ":";
      if (!scheme || (scheme in PORTS) !== isSpecial(this.#record)) return;
      this.#record.scheme = scheme;
      setPort(this.#record, this.#record.port);
    }
    get username() { return this.#record.username; }
    set username(value) { if (this.#record.host) this.#record.username = escape(String(value), USERINFO); }
    get password() { return this.#record.password; }
    set password(value) { if (this.#record.host) this.#record.password = escape(String(value), USERINFO); }
    get host() { return hostName(this.#record); }
    set host(value) {
      const copy = { ...this.#record };
      if (typeof copy.path !== "string" && setAuthority(copy, String(value).replace(/[/?#].*$/s, "").replaceAll("@", "%40"))) {
        this.#record = /:\d+$/.test(String(value)) ? copy : { ...copy, port: this.#record.port };
      }
    }
    get hostname() { return this.#record.host ?? ""; }
    set hostname(value) {
      const host = hostOf(String(value).replace(/[/?#:].*$/s, ""), isSpecial(this.#record));
      if (typeof this.#record.path !== "string" && host) this.#record.host = host;
    }
    get port() { return this.#record.port; }
    set port(value) { if (this.#record.host && this.#record.scheme !== "file:") setPort(this.#record, /^[0-9]*/.exec(String(value))[0]); }
    get pathname() { return pathOf(this.#record); }
    set pathname(value) {
      if (typeof this.#record.path === "string") return;
      this.#record.path = [];
      segments(this.#record, String(value).replace(isSpecial(this.#record) ? /^[/\\]/ : /^\//, ""));
    }
    get search() { return this.#record.query ? "?" + this.#record.query : ""; }
    set search(value) {
      const text = String(value).replace(/^\?/, "");
      if (text === "") this.#record.query = null;
      else setQuery(this.#record, text);
      this.#renew();
    }
    get searchParams() { return this.#params; }
    get hash() { return this.#record.fragment ? "#" + this.#record.fragment : ""; }
    set hash(value) {
      const text = String(value).replace(/^#/, "");
      this.#record.fragment = text === "" ? null : escape(text, FRAGMENT);
    }
    toString() { return this.href; }
    toJSON() { return this.href; }
  }
  for (const each of [URL, URLSearchParams]) {
    defineProperty(each.prototype, Symbol.toStringTag, { value: each.name, configurable: true });
    defineProperty(globalThis, each.name, { value: each, writable: true, configurable: true });
  }
})();
