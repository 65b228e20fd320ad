// Runs once, when the template is made, before the prelude: what the web platform has that reaches nothing.
// Sources: WHATWG Encoding, URL, DOM (aborting), File API and HTML (structured cloning), as far as a step needs them.
(() => {
  "use strict";
  const host = globalThis.__host;
  const { defineProperty, defineProperties } = Object;
  const isView = ArrayBuffer.isView;
  const publish = (values) => {
    for (const [name, value] of Object.entries(values)) {
      defineProperty(globalThis, name, { value, writable: true, configurable: true });
      if (value.prototype && !Object.hasOwn(value.prototype, Symbol.toStringTag)) {
        defineProperty(value.prototype, Symbol.toStringTag, { value: name, configurable: true });
      }
    }
  };
  const bytesOf = (source, name) => {
    if (source instanceof ArrayBuffer || source instanceof SharedArrayBuffer) return new Uint8Array(source);
    if (isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
    throw new TypeError(`${name} takes an ArrayBuffer or a view of one`);
  };

  // ---- text
  const encode = (text) => {
    const out = new Uint8Array(text.length * 3);
    let at = 0;
    for (let index = 0; index < text.length; index++) {
      let code = text.charCodeAt(index);
      if (code < 0x80) { out[at++] = code; continue; }
      if (code < 0x800) { out[at++] = 0xc0 | (code >> 6); out[at++] = 0x80 | (code & 63); continue; }
      if (code >= 0xd800 && code < 0xe000) {
        const low = code < 0xdc00 ? text.charCodeAt(index + 1) : 0;
        if (low >= 0xdc00 && low < 0xe000) {
          code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
          index++;
          out[at++] = 0xf0 | (code >> 18); out[at++] = 0x80 | ((code >> 12) & 63);
          out[at++] = 0x80 | ((code >> 6) & 63); out[at++] = 0x80 | (code & 63);
          continue;
        }
        code = 0xfffd;
      }
      out[at++] = 0xe0 | (code >> 12); out[at++] = 0x80 | ((code >> 6) & 63); out[at++] = 0x80 | (code & 63);
    }
    return out.slice(0, at);
  };
  /** UTF-8 as far as it is complete: what follows of a sequence cut off at the end is left, unless `last`. */
  const decodeUtf8 = (bytes, last, bad) => {
    let out = "", units = [], at = 0;
    const put = (code) => {
      if (code > 0xffff) { code -= 0x10000; units.push(0xd800 + (code >> 10), 0xdc00 + (code & 0x3ff)); } else units.push(code);
      if (units.length > 4000) { out += String.fromCharCode(...units); units = []; }
    };
    while (at < bytes.length) {
      const first = bytes[at];
      if (first < 0x80) { put(first); at++; continue; }
      const count = first >= 0xc2 && first < 0xe0 ? 1 : first >= 0xe0 && first < 0xf0 ? 2 : first >= 0xf0 && first < 0xf5 ? 3 : 0;
      let code = count && first & (0x3f >> count), read = 1;
      for (; read <= count && at + read < bytes.length; read++) {
        const next = bytes[at + read];
        const least = read === 1 ? (first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80) : 0x80;
        const most = read === 1 ? (first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf) : 0xbf;
        if (next < least || next > most) break;
        code = (code << 6) | (next & 63);
      }
      if (count && read > count) put(code);
      else if (count && at + read === bytes.length && !last) break;
      else put(bad());
      at += read;
    }
    return [out + String.fromCharCode(...units), bytes.slice(at)];
  };
  const WINDOWS_1252 = "€\u0081‚ƒ„…†‡ˆ‰Š‹Œ\u008dŽ\u008f\u0090‘’“”•–—˜™š›œ\u009džŸ";
  const LABELS = {
    "utf-8": "utf-8", utf8: "utf-8", "unicode-1-1-utf-8": "utf-8", "utf-16le": "utf-16le", "utf-16": "utf-16le", ucs2: "utf-16le",
    "utf-16be": "utf-16be", "windows-1252": "windows-1252", "iso-8859-1": "windows-1252", latin1: "windows-1252", ascii: "windows-1252",
    "us-ascii": "windows-1252", cp1252: "windows-1252",
  };
  class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(text = "") { return encode(String(text)); }
    encodeInto(text, target) {
      let read = 0, written = 0;
      for (const each of String(text)) {
        const bytes = encode(each);
        if (written + bytes.length > target.length) break;
        target.set(bytes, written);
        written += bytes.length;
        read += each.length;
      }
      return { read, written };
    }
  }
  class TextDecoder {
    #left = new Uint8Array(0); #begun = false;
    constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
      const encoding = LABELS[String(label).trim().toLowerCase()];
      if (encoding === undefined) throw new RangeError(`TextDecoder does not know '${label}'; it knows UTF-8, UTF-16 and Windows-1252`);
      defineProperties(this, { encoding: { value: encoding }, fatal: { value: Boolean(fatal) }, ignoreBOM: { value: Boolean(ignoreBOM) } });
    }
    decode(source = new Uint8Array(0), { stream = false } = {}) {
      const bad = () => {
        if (this.fatal) throw new TypeError(`the bytes are not ${this.encoding}`);
        return 0xfffd;
      };
      const given = bytesOf(source, "TextDecoder.decode"), bytes = new Uint8Array(this.#left.length + given.length);
      bytes.set(this.#left);
      bytes.set(given, this.#left.length);
      let text = "", left = new Uint8Array(0);
      if (this.encoding === "utf-8") [text, left] = decodeUtf8(bytes, !stream, bad);
      else if (this.encoding === "windows-1252") {
        for (const each of bytes) text += each >= 0x80 && each < 0xa0 ? WINDOWS_1252[each - 0x80] : String.fromCharCode(each);
      } else {
        const big = this.encoding === "utf-16be", whole = bytes.length & ~1;
        for (let at = 0; at < whole; at += 2) text += String.fromCharCode(big ? (bytes[at] << 8) | bytes[at + 1] : bytes[at] | (bytes[at + 1] << 8));
        left = bytes.slice(whole);
        if (!stream && left.length) { text += String.fromCharCode(bad()); left = new Uint8Array(0); }
        if (!text.isWellFormed()) { bad(); text = text.toWellFormed(); }
      }
      if (!this.#begun && text) {
        this.#begun = true;
        if (!this.ignoreBOM && text[0] === "\ufeff" && this.encoding !== "windows-1252") text = text.slice(1);
      }
      this.#left = left;
      if (!stream) this.#begun = false;
      return text;
    }
  }

  // ---- random bytes: a stream of the host's, as repeatable as the step's seed, and known to nobody else
  let block = 0, fresh = new Uint8Array(0);
  const take = (count) => {
    const out = new Uint8Array(count);
    for (let at = 0; at < count;) {
      if (!fresh.length) {
        const text = host("r" + block++);
        if (text === undefined) throw new Error("there are no random bytes here");
        fresh = Uint8Array.from({ length: text.length / 2 }, (_, index) => parseInt(text.slice(index * 2, index * 2 + 2), 16));
      }
      const part = fresh.subarray(0, count - at);
      out.set(part, at);
      at += part.length;
      fresh = fresh.slice(part.length);
    }
    return out;
  };
  const hex = (byte) => (byte + 256).toString(16).slice(1);
  class Crypto {
    getRandomValues(view) {
      if (!isView(view) || view instanceof DataView || view instanceof Float64Array || view instanceof Float32Array) {
        throw new DOMException("crypto.getRandomValues takes an array of integers", "TypeMismatchError");
      }
      if (view.byteLength > 65536) throw new DOMException("crypto.getRandomValues gives 65,536 bytes at most", "QuotaExceededError");
      new Uint8Array(view.buffer, view.byteOffset, view.byteLength).set(take(view.byteLength));
      return view;
    }
    randomUUID() {
      const bytes = take(16);
      bytes[6] = (bytes[6] & 0x0f) | 0x40;
      bytes[8] = (bytes[8] & 0x3f) | 0x80;
      const text = Array.from(bytes, hex).join("");
      return [text.slice(0, 8), text.slice(8, 12), text.slice(12, 16), text.slice(16, 20), text.slice(20)].join("-");
    }
  }

  // ---- copies
  const ERRORS = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };
  const structuredClone = (value, { transfer } = {}) => {
    if (transfer !== undefined && [...transfer].length) throw new DOMException("a step has nobody to transfer to", "DataCloneError");
    const seen = new Map();
    const copy = (each) => {
      if (typeof each === "function" || typeof each === "symbol") {
        throw new DOMException(`${typeof each === "symbol" ? String(each) : "a function"} could not be cloned`, "DataCloneError");
      }
      if (typeof each !== "object" || each === null) return each;
      if (seen.has(each)) return seen.get(each);
      const note = (made) => { seen.set(each, made); return made; };
      if (each instanceof Date) return note(new Date(each.getTime()));
      if (each instanceof RegExp) return note(new RegExp(each.source, each.flags));
      if (each instanceof ArrayBuffer) return note(each.slice(0));
      if (isView(each)) {
        const buffer = copy(each.buffer);
        return note(new each.constructor(buffer, each.byteOffset, each instanceof DataView ? each.byteLength : each.length));
      }
      if (each instanceof Map) {
        const made = note(new Map());
        for (const [key, one] of [...each]) made.set(copy(key), copy(one));
        return made;
      }
      if (each instanceof Set) {
        const made = note(new Set());
        for (const one of [...each]) made.add(copy(one));
        return made;
      }
      if (each instanceof Error) {
        const made = note(Object.create((ERRORS[each.name] ?? Error).prototype));
        for (const name of ["stack", "message", "cause"]) {
          if (Object.hasOwn(each, name)) defineProperty(made, name, { value: copy(each[name]), writable: true, configurable: true });
        }
        return made;
      }
      if (each instanceof Boolean || each instanceof Number || each instanceof String || each instanceof BigInt) return note(Object(each.valueOf()));
      if (each instanceof WeakMap || each instanceof WeakSet || each instanceof WeakRef || each instanceof Promise) {
        throw new DOMException(`a ${each.constructor.name} could not be cloned`, "DataCloneError");
      }
      const made = note(Array.isArray(each) ? new Array(each.length) : {});
      for (const name of Object.keys(each)) defineProperty(made, name, { value: copy(each[name]), writable: true, configurable: true, enumerable: true });
      return made;
    };
    return copy(value);
  };

  // ---- events and aborting
  class Event {
    #prevented = false;
    constructor(type, { cancelable = false } = {}) {
      this.type = String(type);
      this.cancelable = Boolean(cancelable);
      this.target = this.currentTarget = null;
      this.stopped = false;
    }
    get defaultPrevented() { return this.#prevented; }
    preventDefault() { this.#prevented ||= this.cancelable; }
    stopImmediatePropagation() { this.stopped = true; }
    stopPropagation() {}
  }
  class EventTarget {
    #listeners = new Map();
    addEventListener(type, listener, options) {
      if (listener === null || listener === undefined) return;
      const listeners = this.#listeners.get(type) ?? [];
      this.#listeners.set(type, listeners);
      if (!listeners.some((each) => each.listener === listener)) {
        listeners.push({ listener, once: typeof options === "object" && options !== null && options.once === true });
      }
    }
    removeEventListener(type, listener) {
      this.#listeners.set(type, (this.#listeners.get(type) ?? []).filter((each) => each.listener !== listener));
    }
    dispatchEvent(event) {
      event.target = event.currentTarget = this;
      const named = this[`on${event.type}`];
      if (typeof named === "function") named.call(this, event);
      for (const { listener, once } of [...(this.#listeners.get(event.type) ?? [])]) {
        if (event.stopped) break;
        if (once) this.removeEventListener(event.type, listener);
        typeof listener === "function" ? listener.call(this, event) : listener.handleEvent(event);
      }
      return !event.defaultPrevented;
    }
  }
  const inside = {};
  const LATER = "a step has no timers; await api.wait.for('10s'), or put a wait step into the process";
  class AbortSignal extends EventTarget {
    #reason; #aborted = false;
    constructor(key) {
      if (key !== inside) throw new TypeError("make an AbortController; its signal is an AbortSignal");
      super();
      this.onabort = null;
    }
    get aborted() { return this.#aborted; }
    get reason() { return this.#reason; }
    throwIfAborted() { if (this.#aborted) throw this.#reason; }
    static end(signal, reason) {
      if (signal.#aborted) return;
      signal.#aborted = true;
      signal.#reason = reason === undefined ? new DOMException("the operation was aborted", "AbortError") : reason;
      signal.dispatchEvent(new Event("abort"));
    }
    static abort(reason) {
      const signal = new AbortSignal(inside);
      end(signal, reason);
      return signal;
    }
    static any(signals) {
      const made = new AbortSignal(inside);
      for (const each of signals) {
        if (each.aborted) { end(made, each.reason); break; }
        each.addEventListener("abort", () => end(made, each.reason), { once: true });
      }
      return made;
    }
    static timeout() { throw new Error(LATER); }
  }
  const { end } = AbortSignal;
  delete AbortSignal.end;
  class AbortController {
    #signal = new AbortSignal(inside);
    get signal() { return this.#signal; }
    abort(reason) { end(this.#signal, reason); }
  }

  // ---- blobs
  class Blob {
    #bytes; #type;
    constructor(parts = [], { type = "" } = {}) {
      const pieces = Array.from(parts, (each) => {
        if (each instanceof Blob) return each.#bytes;
        return isView(each) || each instanceof ArrayBuffer ? bytesOf(each, "Blob") : encode(String(each));
      });
      this.#bytes = new Uint8Array(pieces.reduce((sum, each) => sum + each.length, 0));
      let at = 0;
      for (const each of pieces) { this.#bytes.set(each, at); at += each.length; }
      this.#type = /[^\x20-\x7e]/.test(type) ? "" : String(type).toLowerCase();
    }
    get size() { return this.#bytes.length; }
    get type() { return this.#type; }
    async arrayBuffer() { return this.#bytes.slice().buffer; }
    async bytes() { return this.#bytes.slice(); }
    async text() { return new TextDecoder().decode(this.#bytes); }
    slice(start, end, type = "") { return new Blob([this.#bytes.slice(start, end)], { type }); }
    stream() { throw new Error("a step has no streams; await blob.text() or blob.bytes()"); }
  }

  // ---- what a step does otherwise
  const timer = (name) => ({ [name]() { throw new Error(`${name}: ${LATER}`); } })[name];
  const nothing = (name) => ({ [name]() {} })[name];
  publish({
    TextEncoder, TextDecoder, structuredClone, Event, EventTarget, AbortSignal, AbortController, Blob, Crypto, crypto: new Crypto(),
    setTimeout: timer("setTimeout"), setInterval: timer("setInterval"), setImmediate: timer("setImmediate"),
    clearTimeout: nothing("clearTimeout"), clearInterval: nothing("clearInterval"), clearImmediate: nothing("clearImmediate"),
  });
})();
