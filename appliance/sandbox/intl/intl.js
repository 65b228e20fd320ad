// Intl for steps: FormatJS with its data fetched from the host as it is needed, collation of our own, and the methods of the language
// that take a locale. Evaluated once in an instance, when code first asks for any of it. The default is English and UTC, always.
import { DateTimeFormat } from "@formatjs/intl-datetimeformat";
import ListFormat from "@formatjs/intl-listformat";
import { NumberFormat } from "@formatjs/intl-numberformat";
import { PluralRules } from "@formatjs/intl-pluralrules";
import RelativeTimeFormat from "@formatjs/intl-relativetimeformat";
import { makeCollator } from "./collator.js";
import { services } from "./services.js";

const { fetch } = globalThis.__intl;
const { parse, stringify } = JSON;
const { defineProperty } = Object;
// {locales: {tag: tag whose data it has}, zones: [names]}
const index = parse(fetch("index"));
const locales = new Set(Object.keys(index.locales));

// ---- locales: a language that is not here is refused, where browsers would silently speak English
const TAG = /^[a-z]{2,3}(-[a-z]{4})?(-([a-z]{2}|\d{3}))?(-([a-z\d]{5,8}|\d[a-z\d]{3}))*(-[a-wyz\d](-[a-z\d]{2,8})+)*(-x(-[a-z\d]{1,8})+)?$/i;
const canonical = (value) => {
  if (typeof value !== "string" && (typeof value !== "object" || value === null)) throw new TypeError("a locale is a text such as 'de-DE'");
  const tag = String(value);
  if (!TAG.test(tag)) throw new RangeError(`'${tag}' is not a locale such as 'de-DE'`);
  let extended = false;
  return tag.split("-").map((part, index) => {
    extended ||= index > 0 && part.length === 1;
    if (index > 0 && !extended && part.length === 4 && /^[a-z]/i.test(part)) return part[0].toUpperCase() + part.slice(1).toLowerCase();
    return index > 0 && !extended && part.length === 2 ? part.toUpperCase() : part.toLowerCase();
  }).join("-");
};
const getCanonicalLocales = (requested) => {
  if (requested === undefined) return [];
  return [...new Set((typeof requested === "string" ? [requested] : Array.from(Object(requested))).map(canonical))];
};
const tagsOf = getCanonicalLocales;
const bare = (tag) => tag.replace(/-[ux]-.*$/, "");
const known = (tag) => {
  for (let name = bare(tag); name; name = name.includes("-") ? name.slice(0, name.lastIndexOf("-")) : "") {
    if (locales.has(name)) return name;
  }
};
const checked = (requested) => {
  if (requested === undefined) return "en";
  const tags = tagsOf(requested);
  const found = tags.find(known);
  if (tags.length && found === undefined) {
    const languages = [...new Set([...locales].map((each) => each.split("-")[0]))].join(", ");
    throw new RangeError(`a step has no data of the locale '${tags[0]}'; it has ${languages}`);
  }
  return tags.length ? tags.filter(known) : "en";
};

/** What is thrown deep inside is thrown from here: a stack has ten lines, and the author's own shall be among them. */
const shallow = (work) => {
  try {
    return work();
  } catch (fault) {
    throw fault instanceof RangeError ? new RangeError(fault.message) : fault instanceof TypeError ? new TypeError(fault.message) : fault;
  }
};

/** `construct` with its locales checked, called with `new` or without. */
const service = (name, Base, callable) => {
  const make = (target, [requested, options], newTarget) => {
    const given = options === undefined ? {} : { ...Object(options) };
    return shallow(() => Reflect.construct(target, [checked(requested), { ...given, localeMatcher: "lookup" }], newTarget));
  };
  const made = new Proxy(Base, {
    construct: (target, values, newTarget) => make(target, values, newTarget === made ? target : newTarget),
    apply: (target, self, values) => {
      if (!callable) throw new TypeError(`Intl.${name} must be called with new`);
      return make(target, values, target);
    },
  });
  defineProperty(Base.prototype, "constructor", { value: made, writable: true, configurable: true });
  defineProperty(Base, "supportedLocalesOf", {
    value: (requested) => tagsOf(requested).filter(known), writable: true, configurable: true,
  });
  return made;
};

/** Let a service fetch the data of a locale when it first looks for it. */
const lazily = (Base, kind, read = parse) => {
  Base.availableLocales = locales;
  Base.getDefaultLocale = () => "en";
  Base.__defaultLocale = "en";
  const data = Base.localeData = {};
  const settle = (tag, value) => defineProperty(data, tag, { value, writable: true, configurable: true, enumerable: true });
  let loading = false; // while a service takes data in, it looks whether related locales have theirs
  const load = (tag) => {
    const source = index.locales[tag];
    if (source !== tag) return settle(tag, data[source]);
    loading = true;
    Base.__addLocaleData(read(fetch(`${kind}/${tag}`)));
    loading = false;
  };
  for (const tag of locales) {
    defineProperty(data, tag, {
      configurable: true, enumerable: true,
      get() {
        if (loading) return null;
        load(tag);
        return data[tag];
      },
      set(value) { settle(tag, value); },
    });
  }
};
DateTimeFormat.__addLocaleData = ({ locale, data }) => {
  for (const each of data.formats.gregory) {
    each.pattern12 ??= each.pattern;
    each.rangePatterns = each.rangePatterns12 = data.range;
  }
  data.formats.iso8601 = data.formats.gregory;
  DateTimeFormat.localeData[locale] = data;
};
lazily(DateTimeFormat, "date");
lazily(NumberFormat, "number");
lazily(ListFormat, "list");
lazily(RelativeTimeFormat, "relative");
lazily(PluralRules, "plural", (text) => new Function(`return ${text}`)());

// ---- time zones
const zones = DateTimeFormat.tzData = {};
for (const name of index.zones) {
  defineProperty(zones, name, {
    configurable: true, enumerable: true,
    get() {
      const value = parse(fetch(`zone/${name}`)).map(([from, ...rest]) => [from ?? -Infinity, ...rest]);
      defineProperty(zones, name, { value, enumerable: true });
      return value;
    },
  });
}

// ---- Collator
const slots = new WeakMap();
const pick = (options, name, values, fallback) => {
  const value = options[name];
  if (value === undefined) return fallback;
  const text = String(value);
  if (!values.includes(text)) throw new RangeError(`${name} of a Collator is one of ${values.join(", ")}, not ${text}`);
  return text;
};
class Collator {
  constructor(requested, options) {
    const [locale] = [checked(requested)].flat(), given = options === undefined ? {} : Object(options);
    const extension = /-u-(?:.*-)?co-(\w+)/.exec(locale)?.[1], numeric = /-u-(?:.*-)?kn(?:-true)?(?:-|$)/.test(locale);
    const chosen = {
      usage: pick(given, "usage", ["sort", "search"], "sort"),
      sensitivity: pick(given, "sensitivity", ["base", "accent", "case", "variant"], "variant"),
      ignorePunctuation: given.ignorePunctuation === undefined ? false : Boolean(given.ignorePunctuation),
      collation: given.collation === undefined ? (extension === "phonebk" ? extension : "default") : String(given.collation),
      numeric: given.numeric === undefined ? numeric : Boolean(given.numeric),
      caseFirst: pick(given, "caseFirst", ["upper", "lower", "false"], "false"),
    };
    if (!["default", "phonebk"].includes(chosen.collation)) throw new RangeError(`a step has no collation '${chosen.collation}'`);
    const language = bare(locale).split("-")[0];
    const compare = makeCollator({ ...chosen, language: language === "no" || language === "nn" ? "nb" : language, phonebook: chosen.collation === "phonebk" });
    slots.set(this, { locale: bare(locale), ...chosen, compare: (left, right) => compare(String(left), String(right)) });
  }
  get compare() { return slots.get(this).compare; }
  resolvedOptions() {
    const { compare, ...options } = slots.get(this);
    return options;
  }
  get [Symbol.toStringTag]() { return "Intl.Collator"; }
}

const international = Object.assign(services, {
  Collator: new Proxy(Collator, { apply: (target, self, values) => new target(...values) }),
  DateTimeFormat: service("DateTimeFormat", DateTimeFormat, true),
  ListFormat: service("ListFormat", ListFormat, false),
  NumberFormat: service("NumberFormat", NumberFormat, true),
  PluralRules: service("PluralRules", PluralRules, false),
  RelativeTimeFormat: service("RelativeTimeFormat", RelativeTimeFormat, false),
  getCanonicalLocales,
  supportedValuesOf(key) {
    if (key === "timeZone") return [...index.zones];
    if (key === "currency") return Object.keys(parse(fetch("number/en")).data.currencies).sort();
    const fixed = { calendar: ["gregory", "iso8601"], collation: ["phonebk"], numberingSystem: ["latn"] };
    if (!Object.hasOwn(fixed, key)) throw new RangeError(`a step cannot list the values of '${key}'`);
    return fixed[key];
  },
});
Collator.supportedLocalesOf = international.DateTimeFormat.supportedLocalesOf;
for (const name of Object.keys(international)) defineProperty(international, name, { enumerable: false });
defineProperty(international, Symbol.toStringTag, { value: "Intl", configurable: true });

// ---- the language's own methods: formatters are kept, since making one takes far longer than using it
const kept = new Map();
const cached = (name, requested, options) => {
  const key = `${name}\n${stringify(requested)}\n${stringify(options)}`;
  let found = typeof requested === "object" && requested !== null && !Array.isArray(requested) ? undefined : kept.get(key);
  if (found === undefined) {
    if (kept.size >= 100) kept.clear();
    kept.set(key, found = new international[name](requested, options));
  }
  return found;
};
const FIELDS = { date: ["weekday", "year", "month", "day"], time: ["dayPeriod", "hour", "minute", "second", "fractionalSecondDigits"] };
/** ECMA-402, ToDateTimeOptions: what is shown when the options name no field. */
const dated = (required, defaults) => function (requested, options) {
  const time = Date.prototype.getTime.call(this);
  const given = options === undefined ? {} : { ...Object(options) };
  const { dateStyle, timeStyle } = given;
  if ((required === "date" && timeStyle !== undefined) || (required === "time" && dateStyle !== undefined)) {
    throw new TypeError(`toLocale${required === "date" ? "Date" : "Time"}String takes no ${required === "date" ? "timeStyle" : "dateStyle"}`);
  }
  const asked = (required === "any" ? [...FIELDS.date, ...FIELDS.time] : FIELDS[required]).some((name) => given[name] !== undefined);
  if (!asked && dateStyle === undefined && timeStyle === undefined) {
    if (defaults !== "time") given.year = given.month = given.day = "numeric";
    if (defaults !== "date") given.hour = given.minute = given.second = "numeric";
  }
  const format = cached("DateTimeFormat", requested, given);
  return Number.isNaN(time) ? "Invalid Date" : format.format(time);
};
const TURKISH = new Set(["tr", "az"]);
const languageOf = (requested) => (requested === undefined ? "" : bare(tagsOf(requested)[0] ?? "").split("-")[0]);
const methods = {
  "Date.toLocaleString": dated("any", "all"),
  "Date.toLocaleDateString": dated("date", "date"),
  "Date.toLocaleTimeString": dated("time", "time"),
  "Number.toLocaleString"(requested, options) { return cached("NumberFormat", requested, options).format(Number.prototype.valueOf.call(this)); },
  "BigInt.toLocaleString"(requested, options) { return cached("NumberFormat", requested, options).format(BigInt.prototype.valueOf.call(this)); },
  "Array.toLocaleString"(requested, options) {
    return Array.from(this, (each) => (each === undefined || each === null ? "" : String(each.toLocaleString(requested, options)))).join(",");
  },
  "String.localeCompare"(other, requested, options) { return cached("Collator", requested, options).compare(String(this), String(other)); },
  "String.toLocaleUpperCase"(requested) {
    const text = String(this);
    return (TURKISH.has(languageOf(requested)) ? text.replaceAll("i", "İ") : text).toUpperCase();
  },
  "String.toLocaleLowerCase"(requested) {
    const text = String(this);
    return (TURKISH.has(languageOf(requested)) ? text.replaceAll("İ", "i").replaceAll("I", "ı") : text).toLowerCase();
  },
};
for (const [name, method] of Object.entries(methods)) {
  methods[name] = function (...given) { return shallow(() => Reflect.apply(method, this, given)); };
}
globalThis.__intl.loaded(international, methods);
