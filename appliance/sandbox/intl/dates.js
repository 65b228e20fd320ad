// Runs when the runtimes are prepared: parses the patterns of a language, which would cost a step 150 ms, and leaves them as JSON.
import { DateTimeFormat } from "@formatjs/intl-datetimeformat";

globalThis.__parseDates = (entry) => {
  DateTimeFormat.__addLocaleData(entry);
  const { formats, ...data } = DateTimeFormat.localeData[entry.locale];
  // All ranges are alike, and most patterns are the same with twelve hours: `intl.js` puts them back.
  const gregory = formats.gregory.map(({ pattern12, rangePatterns, rangePatterns12, ...each }) => {
    if (pattern12 !== each.pattern) each.pattern12 = pattern12;
    data.range = rangePatterns;
    return each;
  });
  globalThis.__parsed = JSON.stringify({ locale: entry.locale, data: { ...data, formats: { gregory } } });
};
