// Collation by keys: letters, then accents, then case, as the Unicode Collation Algorithm (UTS #10) compares them, with the order of
// CLDR's root for ASCII and the alphabets below for languages that sort letters of their own. A key is made once for each text.
const PUNCTUATION = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$";
// Letters that languages put behind another one: "z å ä ö" means that å, ä and ö follow z as letters of their own.
const ALPHABETS = {
  az: "c ç|e ə|g ğ|h x|i ı i|o ö|s ş|u ü", bs: "c č ć|d dž đ|l lj|n nj|s š|z ž", cs: "c č|h ch|r ř|s š|z ž",
  cy: "c ch|d dd|f ff|g ng|l ll|p ph|r rh|t th", da: "z æ ø å", es: "n ñ", et: "s š z ž|w õ ä ö ü", fi: "z å ä ö",
  hr: "c č ć|d dž đ|l lj|n nj|s š|z ž", hu: "c cs|d dz dzs|g gy|l ly|n ny|o ö|s sz|t ty|u ü|z zs", is: "a á|d ð|e é|i í|o ó|u ú|y ý|z þ æ ö å",
  lt: "c č|s š|z ž", lv: "c č|g ģ|k ķ|l ļ|n ņ|r ŗ|s š|z ž", mt: "b ċ|f ġ|h għ ħ|z ż", nb: "z æ ø å",
  pl: "a ą|c ć|e ę|l ł|n ń|o ó|s ś|z ź ż", ro: "a ă â|i î|s ș|t ț", sk: "a ä|c č|h ch|o ô|s š|z ž", sl: "c č ć|d đ|s š|z ž",
  sq: "c ç|d dh|e ë|g gj|l ll|n nj|r rr|s sh|t th|x xh|z zh", sv: "z å ä ö", tr: "c ç|g ğ|h ı|o ö|s ş|u ü",
};
// The same letter in the spelling of a neighbour, or doubled; these differ as accents do.
const VARIANTS = { sv: "æä øö", fi: "æä øö", da: "äæ öø", nb: "äæ öø", is: "øö", ro: "şș ţț" };
const EXPANSIONS = { ß: "ss", ẞ: "SS", æ: "ae", Æ: "AE", œ: "oe", Œ: "OE", ĳ: "ij", Ĳ: "IJ", ﬁ: "fi", ﬂ: "fl", þ: "th\u0338", Þ: "TH\u0338" };
const STROKES = { ø: "o", đ: "d", ł: "l", ħ: "h", ŧ: "t", Ø: "O", Đ: "D", Ł: "L", Ħ: "H", Ŧ: "T", ı: "i" };
// Letters whose mark makes another letter of them.
const KEPT = /[йЙїЇўЎ]/;
// Languages whose order is that of tables which are not here.
const UNKNOWN = new Set(["ja", "ko", "zh"]);
const MARK = /\p{M}/u, LETTER = /\p{L}/u, DIGIT = /\p{Nd}/u, SPACE = /[\p{Z}\s]/u, CURRENCY = /\p{Sc}/u, SYMBOL = /\p{S}/u, IGNORED = /[\p{Cc}\p{Cf}]/u;
const unit = (code) => String.fromCharCode(code);
const LETTERS = 0x1000, FAMILY = 0x40, BEYOND = 0x2000;

const alphabetOf = (language) => {
  const found = new Map();
  for (const group of (ALPHABETS[language] ?? "").split("|")) {
    const [base, ...letters] = group.split(" ");
    letters.forEach((letter, index) => {
      found.set(letter, unit(LETTERS + (base.codePointAt(0) - 97) * FAMILY + 1 + index + (found.get(base) ? 8 : 0)));
    });
  }
  for (const pair of (VARIANTS[language] ?? "").split(" ")) if (pair) found.set(pair[0], found.get(pair[1]) + "\u0001");
  return found;
};

export const makeCollator = ({ language, phonebook, sensitivity, numeric, ignorePunctuation, caseFirst }) => {
  if (UNKNOWN.has(language)) {
    throw new RangeError(`a step cannot sort by the rules of '${language}'; sort by a field that orders, such as a reading or a number`);
  }
  const alphabet = alphabetOf(language), longest = Math.max(1, ...[...alphabet.keys()].map((each) => each.length));
  const upper = caseFirst === "upper" ? "\u0001" : "\u0003";
  const keys = new Map();

  const weigh = (text) => {
    const primary = [], accents = [], cases = [];
    const put = (weight, isUpper, accent = "") => {
      primary.push(weight);
      accents.push("\u0001" + accent);
      cases.push(isUpper ? upper : "\u0002");
    };
    const one = (character, extra = "") => {
      const lower = character.toLowerCase(), isUpper = lower !== character;
      if (lower >= "a" && lower <= "z" && lower.length === 1) put(unit(LETTERS + (lower.charCodeAt(0) - 97) * FAMILY), isUpper, extra);
      else put(unit(BEYOND + (lower.codePointAt(0) >> 12)) + unit(0x100 + (lower.codePointAt(0) & 0xfff)), isUpper, extra);
    };
    const expanded = (character) => {
      if (phonebook && "äöüÄÖÜ".includes(character)) return character.normalize("NFD")[0] + (character < "a" ? "E" : "e");
      return EXPANSIONS[character];
    };
    for (let at = 0; at < text.length;) {
      let length = Math.min(longest, text.length - at), own;
      for (; length > 0; length--) {
        own = alphabet.get(text.slice(at, at + length).toLowerCase());
        if (own !== undefined) break;
      }
      if (own !== undefined) {
        const piece = text.slice(at, at + length);
        put(own[0], piece !== piece.toLowerCase(), own.slice(1));
        at += length;
        continue;
      }
      const character = String.fromCodePoint(text.codePointAt(at));
      at += character.length;
      if (MARK.test(character)) {
        if (accents.length) accents[accents.length - 1] += character;
      } else if (IGNORED.test(character) && !SPACE.test(character)) {
        continue;
      } else if (DIGIT.test(character)) {
        if (!numeric) { put(unit(0x200 + digitOf(character)), false); continue; }
        let digits = String(digitOf(character));
        for (; at < text.length && /[0-9]/.test(text[at]); at++) digits += text[at];
        digits = digits.replace(/^0+(?=.)/, "");
        put("\u0200" + unit(0x100 + digits.length) + digits, false);
      } else if (!LETTER.test(character)) {
        if (ignorePunctuation && !CURRENCY.test(character)) continue;
        const index = PUNCTUATION.indexOf(character);
        if (SPACE.test(character)) put("\u0003", false);
        else if (CURRENCY.test(character)) put("\u0101" + character, false);
        else if (index >= 0) put(unit(0x10 + index), false);
        else put((SYMBOL.test(character) ? "\u0100" : "\u000f") + character, false);
      } else {
        const letters = expanded(character);
        if (letters !== undefined) for (const each of letters) MARK.test(each) ? accents[accents.length - 1] += each : one(each, "\u0002");
        else if (STROKES[character] !== undefined) one(STROKES[character], "\u0338");
        else if (KEPT.test(character)) one(character);
        else {
          const [base, ...marks] = character.normalize("NFD");
          one(base);
          for (const mark of marks) {
            if (MARK.test(mark)) accents[accents.length - 1] += mark;
            else one(mark);
          }
        }
      }
    }
    let key = primary.join("");
    if (sensitivity === "accent" || sensitivity === "variant") key += "\u0000" + accents.join("");
    if (sensitivity === "case" || sensitivity === "variant") key += "\u0000" + cases.join("");
    return key;
  };
  const keyOf = (text) => {
    let key = keys.get(text);
    if (key === undefined) {
      if (keys.size >= 20000) keys.clear();
      keys.set(text, key = weigh(text.normalize("NFC")));
    }
    return key;
  };
  return (left, right) => {
    if (left === right) return 0;
    const one = keyOf(left), other = keyOf(right);
    return one < other ? -1 : one > other ? 1 : 0;
  };
};

const digitOf = (character) => {
  const code = character.codePointAt(0);
  let zero = code;
  while (code - zero < 9 && DIGIT.test(String.fromCodePoint(zero - 1))) zero--;
  return code < 0x80 ? code - 48 : code - zero;
};
