// The editor of drafts: CodeMirror in the place of the page's textarea, which stays the form's field and works without it.

import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { php } from "@codemirror/lang-php";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, foldGutter, foldKeymap, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, lintKeymap, setDiagnostics } from "@codemirror/lint";
import { highlightSelectionMatches, searchKeymap } from "@codemirror/search";
import { EditorState } from "@codemirror/state";
import {
  drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, highlightSpecialChars, keymap, lineNumbers,
} from "@codemirror/view";
import { tags } from "@lezer/highlight";

import { completeBySchema } from "./schema.js";

const LANGUAGES = {
  yaml: () => yaml(),
  json: () => json(),
  javascript: () => javascript(),
  typescript: () => javascript({ typescript: true }),
  php: () => php({ plain: false }),
};
const CHECK_AFTER = 700;

const look = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "transparent", fontSize: "var(--text-s)", height: "100%" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", fontVariantLigatures: "none", lineHeight: "1.55", overflow: "auto" },
  ".cm-content": { caretColor: "var(--text)", padding: "var(--s2) 0" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--faint)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": { backgroundColor: "var(--accent-soft)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-selectionMatch, .cm-searchMatch": { backgroundColor: "var(--wait-soft)" },
  ".cm-searchMatch-selected": { outline: "1px solid var(--wait-solid)" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--calm-soft)", outline: "1px solid var(--line-strong)" },
  ".cm-panels, .cm-tooltip": { backgroundColor: "var(--surface)", color: "var(--text)", border: "1px solid var(--line-strong)", borderRadius: "var(--radius-s)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent-soft)", color: "var(--text)" },
  ".cm-completionInfo": { maxWidth: "32em", padding: "var(--s2)" },
  ".cm-button, .cm-textfield": { backgroundImage: "none", backgroundColor: "var(--surface)", border: "1px solid var(--line-strong)", color: "var(--text)" },
  ".cm-foldPlaceholder": { backgroundColor: "var(--calm-soft)", border: "none", color: "var(--muted)" },
});

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--accent-text)" },
  { tag: [tags.propertyName, tags.attributeName, tags.definition(tags.propertyName)], color: "var(--busy)" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--wait)" },
  { tag: [tags.comment, tags.meta], color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.typeName, tags.className], color: "var(--busy)" },
  { tag: tags.invalid, color: "var(--bad)" },
]);

// Chromium gives what is typed over a selection the looks of what was there, as an inline style, which the page's policy refuses
// and reports: the editor puts the text in by itself, past the same handlers as any other.
function typeOver(event, view) {
  const { from, to, empty } = view.state.selection.main;
  if (event.inputType !== "insertText" || event.data === null || empty || view.composing) return false;
  const insert = () => view.state.update(view.state.replaceSelection(event.data), { userEvent: "input.type", scrollIntoView: true });
  if (!view.state.facet(EditorView.inputHandler).some((handle) => handle(view, from, to, event.data, insert))) view.dispatch(insert());
  return true; // the browser leaves it alone
}

class DraftEditor {
  constructor(form) {
    this.form = form;
    this.phrases = JSON.parse(form.dataset.phrases); // what is said here, in the language of the page
    this.area = form.elements.text;
    this.file = form.elements.file.value;
    this.state = form.querySelector("[data-said]");
    this.problems = document.querySelector("[data-problems]");
    this.title = document.title;
    this.saved = "unsaved" in form.dataset ? null : this.area.value;
    this.asking = null; // a check under way, which another takes the place of
    this.saving = Promise.resolve(); // saves go one after the other and are never taken back
    const host = document.createElement("div");
    host.className = "code-host";
    this.area.after(host);
    // Inside a shadow root its styles are constructed sheets, which a policy without inline styles lets through.
    const root = host.attachShadow({ mode: "open" });
    this.view = new EditorView({ root, parent: root, state: EditorState.create({ doc: this.area.value, extensions: this.extensions() }) });
    this.area.hidden = true;
    form.querySelector("label").addEventListener("click", (event) => { event.preventDefault(); this.view.focus(); });
    form.addEventListener("submit", () => this.put(), { capture: true });
    form.addEventListener("formdata", (event) => event.formData.set("text", this.text));
    window.addEventListener("beforeunload", (event) => { if (this.isChanged && !this.isLeaving) event.preventDefault(); });
    this.problems.addEventListener("click", (event) => this.jump(event));
    document.querySelector("button[form=draft][value=save]").addEventListener("click", (event) => { event.preventDefault(); this.save(); });
    this.problems.querySelector("button[value=check]").addEventListener("click", (event) => { event.preventDefault(); this.check(); });
    document.addEventListener("keydown", (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key === "s") { event.preventDefault(); this.save(); }
    });
    this.show(this.given());
    if (this.isChanged) { this.say(this.phrases.unsaved); this.note(); }
    const place = new URLSearchParams(location.hash.slice(1));
    if (Number(place.get("line"))) this.go(Number(place.get("line")), Number(place.get("column")));
  }

  get text() { return this.view.state.doc.toString(); }
  get isChanged() { return this.text !== this.saved; }

  extensions() {
    const language = LANGUAGES[this.form.dataset.editor];
    const schema = this.form.dataset.schema;
    return [
      lineNumbers(), highlightActiveLineGutter(), highlightSpecialChars(), history(), foldGutter(), drawSelection(), indentOnInput(),
      bracketMatching(), closeBrackets(), highlightActiveLine(), highlightSelectionMatches(), lintGutter(), indentUnit.of("  "),
      EditorState.tabSize.of(2), look, syntaxHighlighting(colours), language ? language() : [],
      autocompletion(schema ? { override: [completeBySchema(schema)] } : {}),
      keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...completionKeymap, ...lintKeymap, indentWithTab]),
      EditorView.contentAttributes.of({ "aria-label": this.file, "aria-multiline": "true", spellcheck: "false", tabindex: "0" }),
      EditorView.domEventHandlers({ beforeinput: typeOver }),
      EditorView.updateListener.of((update) => { if (update.docChanged) this.changed(); }),
    ];
  }

  // The problems that the page came with.
  given() {
    return [...this.problems.querySelectorAll("li")].map((item) => {
      const link = item.querySelector("a");
      const { file, line, column } = link.dataset;
      return { file, line: Number(line), column: Number(column), message: item.querySelector("span").textContent, severity: item.className };
    });
  }

  put() {
    this.area.value = this.text;
    this.isLeaving = true;
  }

  changed() {
    this.say(this.isChanged ? this.phrases.unsaved : "");
    this.note();
    clearTimeout(this.due);
    this.due = setTimeout(() => this.check(), CHECK_AFTER);
  }

  // What is not saved is seen in the list of files and on the browser's tab, too.
  note() {
    document.title = `${this.isChanged ? "• " : ""}${this.title}`;
    document.querySelector(".files a[aria-current]")?.classList.toggle("unsaved", this.isChanged);
  }

  say(text) { this.state.textContent = text; }

  // What the appliance says to the text as it stands.
  async ask(act, signal) {
    const text = this.text;
    const body = new URLSearchParams({ file: this.file, text, stamp: this.form.elements.stamp.value, do: act, as: "data" });
    const answer = await fetch(this.form.action, { method: "POST", body, signal, redirect: "error" });
    if (!answer.headers.get("Content-Type")?.startsWith("application/json")) throw new Error(`status ${answer.status}`);
    return { text, ok: answer.ok, told: await answer.json() };
  }

  save() {
    clearTimeout(this.due);
    this.asking?.abort();
    this.saving = this.saving.then(() => this.store());
  }

  async store() {
    this.say(this.phrases.saving);
    try {
      const { text, ok, told } = await this.ask("save");
      if (told.stamp) this.stored(told);
      if (ok) this.saved = text;
      if (told.problems?.length) this.show(told.problems, told.title);
      this.say(told.refusal ?? (this.isChanged ? this.phrases.unsaved : this.phrases.saved));
      this.note();
      if (ok) this.check();
    } catch {
      this.say(this.phrases.unanswered);
    }
  }

  // What is stored is another draft now, which may be what runs, or be so no longer.
  stored({ stamp, is_published: isPublished }) {
    this.form.elements.stamp.value = stamp;
    document.querySelector("[data-published]").hidden = !isPublished;
    document.querySelector("[data-unpublished]").hidden = isPublished;
  }

  async check() {
    clearTimeout(this.due);
    this.asking?.abort();
    this.asking = new AbortController();
    this.problems.ariaBusy = "true";
    try {
      const { told } = await this.ask("check", this.asking.signal);
      if (told.problems) this.show(told.problems, told.title);
      else if (told.refusal) this.doubt(told.refusal);
      this.problems.ariaBusy = "false";
    } catch (error) {
      if (error.name !== "AbortError") this.doubt(this.phrases.silent);
    }
  }

  // Nothing was looked at: what is shown is of an earlier text.
  doubt(why) {
    this.problems.querySelector("h2").textContent = this.phrases.unchecked.replace("#", () => why);
  }

  // Those that the page came with have their heading already.
  show(problems, title = null) {
    if (title !== null) this.problems.querySelector("h2").textContent = title;
    this.problems.querySelector("ol").replaceChildren(...problems.map((each) => this.item(each)));
    const counts = Map.groupBy ? Map.groupBy(problems, (each) => each.file) : new Map();
    for (const link of document.querySelectorAll(".files a[data-file]")) {
      const count = link.querySelector(".count");
      const found = counts.get(link.dataset.file)?.length ?? 0;
      count.hidden = !found;
      count.textContent = found;
    }
    this.view.dispatch(setDiagnostics(this.view.state, problems.filter((each) => each.file === this.file).map((each) => this.mark(each))));
  }

  item(problem) {
    const item = document.createElement("li");
    item.className = problem.severity;
    const link = document.createElement("a");
    link.textContent = problem.line ? `${problem.file}:${problem.line}` : problem.file;
    link.dataset.file = problem.file;
    link.dataset.line = problem.line || 1;
    link.dataset.column = problem.column || "";
    link.href = `${this.form.action}?file=${encodeURIComponent(problem.file)}#line=${problem.line || 1}&column=${problem.column || 1}`;
    const text = document.createElement("span");
    text.textContent = problem.message;
    item.append(link, " ", text);
    return item;
  }

  mark(problem) {
    const doc = this.view.state.doc;
    const line = doc.line(Math.min(Math.max(problem.line || 1, 1), doc.lines));
    const start = line.from + (problem.column ? Math.min(problem.column - 1, line.length) : line.text.search(/\S|$/));
    const word = this.view.state.wordAt(Math.min(start, line.to));
    return { from: start, to: problem.column && word ? Math.max(word.to, start) : line.to, severity: problem.severity, message: problem.message };
  }

  jump(event) {
    const link = event.target.closest("a[data-line]");
    if (!link || link.dataset.file !== this.file) return;
    event.preventDefault();
    this.go(Number(link.dataset.line), Number(link.dataset.column));
  }

  // Line and column count from 1; without a column it is the first.
  go(number, column) {
    const line = this.view.state.doc.line(Math.min(Math.max(number, 1), this.view.state.doc.lines));
    const place = Math.min(line.from + Math.max(column || 1, 1) - 1, line.to);
    this.view.dispatch({ selection: { anchor: place }, effects: EditorView.scrollIntoView(place, { y: "center" }) });
    this.view.focus();
  }
}

const form = document.querySelector("form[data-editor]");
if (form) new DraftEditor(form);
