// Runs once, when the template is made, behind the TypeScript compiler: what it leaves is called once per instance.
// It gets one JSON text, checks all files of a process in one program, and answers findings in positions of the author's text.
(() => {
  "use strict";
  const host = globalThis.__host;
  delete globalThis.__host;
  const ts = globalThis.ts;
  const LIBRARY = "/lib/", API = "/api.d.ts", CONTRACT = "/contract.ts", EXPRESSIONS = "/expressions.ts", ROOT = "/process/";
  const OPTIONS = {
    target: ts.ScriptTarget.ESNext,
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
    moduleDetection: ts.ModuleDetectionKind.Force,
    lib: ["lib.esnext.d.ts"],
    types: [],
    strict: true,
    useUnknownInCatchVariables: false,
    noEmit: true,
    allowJs: true,
    resolveJsonModule: true,
    allowImportingTsExtensions: true,
    allowSyntheticDefaultImports: true,
    skipLibCheck: true,
    skipDefaultLibCheck: true,
  };
  const library = new Map();

  // ---- text with insertions: what the checker reads, and the way back to what the author wrote
  const rewrite = (text, insertions) => {
    insertions.sort((a, b) => a.at - b.at);
    let out = "", from = 0;
    for (const each of insertions) {
      out += text.slice(from, each.at) + each.text;
      from = each.at;
    }
    return out + text.slice(from);
  };
  const original = (insertions, position) => {
    let before = 0;
    for (const each of insertions) {
      const start = each.at + before;
      if (position < start) break;
      if (position < start + each.text.length) return each.at;
      before += each.text.length;
    }
    return position - before;
  };

  // ---- the function that a step exports
  const unwrapped = (node) => {
    while (node && (ts.isParenthesizedExpression(node) || ts.isSatisfiesExpression(node))) node = node.expression;
    return node;
  };
  const named = (file, name) => {
    for (const each of file.statements) {
      if (ts.isFunctionDeclaration(each) && each.name?.text === name) return each;
      if (!ts.isVariableStatement(each)) continue;
      for (const one of each.declarationList.declarations) {
        if (ts.isIdentifier(one.name) && one.name.text === name && !one.type) return unwrapped(one.initializer);
      }
    }
  };
  // ---- JavaScript: its types are looked at only where it asks for that, since libraries are written for no checker
  const isJavaScript = (path) => /\.m?js$/.test(path);
  const directive = (text) => /^(?:\s|\/\/(?!\s*@ts-(?:no)?check\b).*|\/\*[^]*?\*\/|#!.*)*\/\/\s*@ts-(check|nocheck)\b/.exec(text.slice(0, 20000))?.[1];
  // A step in JavaScript has types for its grants alone; what is longer than this is a bundle, whose types would take seconds.
  const LONGEST_STEP = 100000, LONGEST_READ = 1000000;
  const CALLS = /\b(?:integrations|datapool|secrets|processes|human|documents)\s*\??\.\s*[a-z]/;
  const IMPORTS = /\b(?:from|import)\s*\(?\s*["'](\.{1,2}\/[^"']+)["']/g;

  const isDefault = (node) => node.modifiers?.some((each) => each.kind === ts.SyntaxKind.DefaultKeyword);
  const exported = (file) => {
    for (const each of file.statements) {
      if (ts.isFunctionDeclaration(each) && isDefault(each)) return each;
      if (ts.isExportAssignment(each) && !each.isExportEquals) {
        const value = unwrapped(each.expression);
        return ts.isIdentifier(value) ? named(file, value.text) : value;
      }
      if (ts.isExportDeclaration(each) && each.exportClause && ts.isNamedExports(each.exportClause)) {
        const found = each.exportClause.elements.find((one) => one.name.text === "default");
        if (found) return named(file, (found.propertyName ?? found.name).text);
      }
    }
  };
  const declares = (file, name) => file.statements.some((each) => {
    if (ts.isInterfaceDeclaration(each) || ts.isTypeAliasDeclaration(each) || ts.isClassDeclaration(each)) return each.name?.text === name;
    if (!ts.isImportDeclaration(each) || !each.importClause) return false;
    const bindings = each.importClause.namedBindings;
    return each.importClause.name?.text === name
      || (bindings && ts.isNamedImports(bindings) && bindings.elements.some((one) => one.name.text === name));
  });

  /** The insertions that give a step its types: nothing in the file moves to another line. */
  const typed = (file, step) => {
    const insertions = [];
    const types = { StepInput: `Steps[${JSON.stringify(step)}]["input"]`, Api: `Steps[${JSON.stringify(step)}]["api"]` };
    const own = `Step extends keyof Steps = ${JSON.stringify(step)}`;
    const inJavaScript = isJavaScript(file.fileName) && directive(file.text) === "check";
    for (const [name, member] of inJavaScript ? [] : [["StepInput", "input"], ["Api", "api"]]) {
      // At the end, so that a `// @ts-nocheck` stays at the beginning.
      if (!declares(file, name)) insertions.push({ at: file.text.length, text: `\ntype ${name}<${own}> = Steps[Step]["${member}"];` });
    }
    const entry = exported(file);
    if (!entry || !ts.isFunctionLike(entry)) return insertions;
    ["StepInput", "Api"].forEach((name, index) => {
      const parameter = entry.parameters[index];
      if (!parameter || parameter.type || parameter.dotDotDotToken) return;
      if (ts.getJSDocType(parameter)) return;
      if (inJavaScript) {
        insertions.push({ at: parameter.getStart(file), text: `/** @type {${types[name]}} */ ` });
        return;
      }
      const end = (parameter.questionToken ?? parameter.name).end;
      const bare = ts.isArrowFunction(entry) && entry.parameters.length === 1 && file.text[entry.parameters.pos] !== "("
        && !/\(\s*$/.test(file.text.slice(0, parameter.getStart(file)));
      if (bare) insertions.push({ at: parameter.getStart(file), text: "(" });
      insertions.push({ at: end, text: `: ${types[name]}${bare ? ")" : ""}` });
    });
    return insertions;
  };

  // ---- the program
  const parse = (path, text) => {
    const isChecked = isJavaScript(path) && directive(text) === "check";
    const kind = path.endsWith(".json") ? ts.ScriptKind.JSON : isChecked ? ts.ScriptKind.JS : ts.ScriptKind.TS;
    return ts.createSourceFile(path, text, { languageVersion: OPTIONS.target, impliedNodeFormat: undefined }, true, kind);
  };
  const EXTENSIONS = [".ts", ".d.ts", ".js", ".mts", ".d.mts", ".mjs", ".json"];
  const resolve = (known, importer, specifier) => {
    if (!/^\.{1,2}\//.test(specifier)) return undefined;
    const parts = importer.split("/").slice(0, -1);
    for (const each of specifier.split("/")) {
      if (each === "..") parts.pop();
      else if (each !== "." && each !== "") parts.push(each);
    }
    const path = parts.join("/");
    const javascript = /^(.*)\.(m?)js$/.exec(path);
    // Declarations beside a file say what its types are.
    const declared = javascript ? [`${javascript[1]}.d.${javascript[2]}ts`] : [];
    const candidates = [...declared, path, ...EXTENSIONS.map((each) => path + each)];
    if (javascript) candidates.push(`${javascript[1]}.${javascript[2]}ts`);
    return candidates.find((each) => known.has(each));
  };
  const makeProgram = (files, roots) => {
    const parsed = new Map();
    const program = {
      getSourceFile: (path) => {
        if (path.startsWith(LIBRARY)) return library.get(path);
        if (!parsed.has(path) && files.has(path)) parsed.set(path, parse(path, files.get(path)));
        return parsed.get(path);
      },
      resolveModuleNameLiterals: (literals, importer) => literals.map(({ text }) => {
        const found = resolve(files, importer, text);
        return { resolvedModule: found && { resolvedFileName: found, extension: /(?:\.d)?\.\w+$/.exec(found)[0] } };
      }),
      fileExists: (path) => files.has(path) || library.has(path),
      readFile: (path) => files.get(path) ?? library.get(path)?.text,
      getDefaultLibFileName: () => LIBRARY + "lib.esnext.d.ts",
      getDefaultLibLocation: () => LIBRARY.slice(0, -1),
      getCurrentDirectory: () => "/",
      getCanonicalFileName: (path) => path,
      useCaseSensitiveFileNames: () => true,
      getNewLine: () => "\n",
      directoryExists: () => true,
      getDirectories: () => [],
      writeFile() {},
    };
    return ts.createProgram(roots, OPTIONS, program);
  };

  // ---- what is no error here: an implied any, and what the compilers of a step have said already
  const ignored = (code) => (code >= 7005 && code <= 7057 && code !== 7027 && code !== 7030) || code === 2307 || code === 5097;
  const isTyped = (path) => /\.m?ts$/.test(path);

  // ---- grants: calls of api whose literal names show what they reach
  const NEEDED = {
    "datapool.find": "read", "datapool.query": "read",
    "datapool.create": "write", "datapool.update": "write", "datapool.upsert": "write", "datapool.delete": "write",
  };
  const OF_DOCUMENTS = { "documents.get": "read", "documents.read": "read", "documents.create": "write" };
  const METHODS = [
    "integrations.execute", "datapool.batch", "secrets.get", "processes.execute", "human.request", ...Object.keys(OF_DOCUMENTS),
    ...Object.keys(NEEDED),
  ];
  const INTERFACES = {
    IntegrationsApi: "integrations", DataPoolApi: "datapool", SecretsApi: "secrets", ProcessesApi: "processes", HumanApi: "human",
    DocumentsApi: "documents",
  };
  const texts = (checker, node) => {
    if (!node) return [];
    if (ts.isStringLiteralLike(node)) return [node.text];
    if (!checker) return [];
    const type = checker.getTypeAtLocation(node);
    const parts = type.isUnion() ? type.types : [type];
    return parts.every((each) => each.isStringLiteral()) ? parts.map((each) => each.value) : [];
  };
  const property = (node, name) => ts.isObjectLiteralExpression(node)
    ? node.properties.find((each) => ts.isPropertyAssignment(each) && each.name.getText() === name)?.initializer
    : undefined;
  const methodOf = (checker, callee) => {
    if (!ts.isPropertyAccessExpression(callee) && !ts.isIdentifier(callee)) return undefined;
    const name = ts.isIdentifier(callee) ? callee : callee.name;
    for (const each of checker?.getSymbolAtLocation(name)?.declarations ?? []) {
      const owner = each.parent && ts.isInterfaceDeclaration(each.parent) ? INTERFACES[each.parent.name.text] : undefined;
      if (owner && each.getSourceFile().fileName === API) return { method: `${owner}.${name.text}`, sure: true };
    }
    if (ts.isIdentifier(callee) || !ts.isPropertyAccessExpression(callee.expression)) return undefined;
    const written = `${callee.expression.name.text}.${name.text}`;
    return METHODS.includes(written) ? { method: written, sure: false } : undefined;
  };
  const reached = (checker, method, given) => {
    if (method === "human.request") return [["human", "", ""]];
    if (method in OF_DOCUMENTS) return [["documents", "", OF_DOCUMENTS[method]]];
    if (method === "integrations.execute") {
      return texts(checker, given[0]).flatMap((slug) => {
        const actions = texts(checker, given[1]);
        return actions.length ? actions.map((action) => ["integrations", slug, action]) : [["integrations", slug, ""]];
      });
    }
    if (method === "datapool.batch") {
      const list = given[0] && (property(given[0], "operations") ?? given[0]);
      if (!list || !ts.isArrayLiteralExpression(list)) return [];
      return list.elements.flatMap((each) => texts(checker, property(each, "collection")).map((name) => ["datapool", name, "write"]));
    }
    const kind = method.slice(0, method.indexOf("."));
    return texts(checker, given[0]).map((name) => [kind, name, NEEDED[method] ?? ""]);
  };
  const isGranted = (grants, [kind, name, detail]) => {
    if (kind === "human") return grants.human;
    if (kind === "documents") return (grants.documents ?? []).includes(detail);
    if (kind === "secrets" || kind === "processes") return grants[kind].includes(name);
    const given = grants[kind][name];
    return given !== undefined && (detail === "" || given.includes("*") || given.includes(detail));
  };

  class Check {
    constructor(request) {
      this.request = request;
      this.findings = [];
      this.seen = new Set();
      this.edits = new Map();
      this.entries = new Map();
      this.files = new Map(Object.entries(request.files).map(([path, text]) => [ROOT + path, text]));
      this.author = new Map([...this.files.keys()].map((path) => [path, path]));
      const steps = new Set(request.steps.map((step) => ROOT + step.file));
      this.untyped = new Map([...this.files].filter(([path, text]) => isJavaScript(path) && directive(text) !== "check"
        && !(steps.has(path) && text.length <= LONGEST_STEP)));
      for (const path of this.untyped.keys()) this.files.delete(path);
      this.files.set(API, request.declarations);
      request.steps.forEach((step, index) => this.enter(step, index));
      this.spans = [];
      const expressions = this.expressions();
      this.files.set(CONTRACT, this.contract());
      this.files.set(EXPRESSIONS, expressions);
      const roots = [API, CONTRACT, EXPRESSIONS, ...[...this.entries.keys()]];
      this.program = makeProgram(this.files, roots);
      this.checker = this.program.getTypeChecker();
    }

    /** A file that is the entry of several steps is looked at once for each of them: their grants and inputs differ. */
    enter(step, index) {
      const path = ROOT + step.file, text = this.request.files[step.file];
      const dot = path.lastIndexOf(".");
      const virtual = this.entries.has(path) ? `${path.slice(0, dot)}.${index}${path.slice(dot)}` : path;
      if (this.untyped.has(path)) return;
      const insertions = typed(parse(path, text), step.id);
      this.entries.set(virtual, step);
      this.author.set(virtual, path);
      this.edits.set(virtual, insertions);
      this.files.set(virtual, rewrite(text, insertions));
    }

    /** Steps whose function is held against what it is given. */
    contracted() {
      return [...this.entries].filter(([path]) => isTyped(path) && directive(this.files.get(path)) !== "nocheck");
    }

    contract() {
      return this.contracted().map(([path, step], index) => {
        const types = `Steps[${JSON.stringify(step.id)}]`;
        return `import entry${index} from ${JSON.stringify("." + path)};`
          + ` export const step${index}: (input: ${types}["input"], api: ${types}["api"]) => unknown = entry${index};`;
      }).join("\n");
    }

    expressions() {
      let out = "";
      for (const each of this.request.expressions) {
        const names = Object.entries(each.names).map(([name, type]) => `${name}: ${type}`).join(", ");
        out += `((${names}) => (\n`;
        this.spans.push({ key: each.key, start: out.length, end: out.length + each.text.length });
        out += `${each.text}\n));\n`;
      }
      return out;
    }

    add(file, position, code, message, severity) {
      const path = this.author.get(file);
      const text = this.request.files[path.slice(ROOT.length)] ?? "";
      const at = original(this.edits.get(file) ?? [], position);
      const lines = text.slice(0, at).split(/\r\n|\n|\r|\u2028|\u2029/);
      const missing = Array.isArray(message) ? message : undefined;
      const place = { file: path.slice(ROOT.length), line: lines.length, column: lines.at(-1).length + 1 };
      const finding = { ...place, code, message: missing ? "" : message, severity, missing };
      const key = JSON.stringify(finding);
      if (!this.seen.has(key)) this.findings.push(finding);
      this.seen.add(key);
    }

    run() {
      for (const file of this.program.getSourceFiles()) {
        if (!this.author.has(file.fileName) || file.fileName.endsWith(".json")) continue;
        const refused = this.grants(file);
        if (this.isTyped(file.fileName)) this.types(file, refused);
      }
      for (const [path, step] of this.reachUntyped()) this.grantsOfText(path, step);
      this.contracts();
      this.checkExpressions();
      return this.findings;
    }

    types(file, refused) {
      const found = [...this.program.getSyntacticDiagnostics(file), ...this.program.getSemanticDiagnostics(file)];
      for (const each of found) {
        if (ignored(each.code) || each.start === undefined) continue;
        if (refused.some((span) => each.start >= span.start && each.start < span.end)) continue;
        this.add(file.fileName, each.start, each.code, told(each), "error");
      }
    }

    isTyped(path) {
      return isTyped(path) || (isJavaScript(path) && directive(this.files.get(path)) === "check");
    }

    /** JavaScript without types that code of the program leads to, with the step that runs it. */
    reachUntyped() {
      const known = new Map([...this.files, ...this.untyped]), found = new Map();
      const follow = (importer, text) => {
        for (const [, specifier] of text.matchAll(IMPORTS)) {
          const path = resolve(known, importer, specifier)?.replace(/\.d\.(m?)ts$/, ".$1js");
          if (this.untyped.has(path) && !found.has(path)) {
            found.set(path, undefined);
            follow(path, this.untyped.get(path));
          }
        }
      };
      for (const step of this.request.steps) {
        const path = ROOT + step.file;
        if (!this.untyped.has(path)) continue;
        found.set(path, step);
        follow(path, this.untyped.get(path));
      }
      for (const file of this.program.getSourceFiles()) if (this.author.has(file.fileName)) follow(file.fileName, file.text);
      return found;
    }

    /** What a text of JavaScript asks for by literals. */
    grantsOfText(path, step) {
      const text = this.untyped.get(path);
      if (text.length <= LONGEST_READ && CALLS.test(text)) this.grants(parse(path, text), step);
    }

    grants(file, untyped) {
      const refused = [];
      const isUntyped = this.untyped.has(file.fileName), checker = isUntyped ? undefined : this.checker;
      const step = isUntyped ? untyped : this.entries.get(file.fileName);
      const grants = step ? step.grants : this.request.grants;
      const visit = (node) => {
        if (ts.isCallExpression(node)) {
          const found = methodOf(checker, node.expression);
          const missing = found ? reached(checker, found.method, node.arguments).filter((each) => !isGranted(grants, each)) : [];
          for (const each of missing) {
            const at = each[0] === "human" || each[0] === "documents" ? node.expression : node.arguments[0];
            const severity = found.sure && this.isTyped(file.fileName) ? "error" : "warning";
            this.add(file.fileName, at.getStart(file), 0, each, severity);
            refused.push({ start: node.getStart(file), end: node.end });
          }
        }
        ts.forEachChild(node, visit);
      };
      visit(file);
      return refused;
    }

    contracts() {
      const file = this.program.getSourceFile(CONTRACT);
      const steps = this.contracted().map(([path]) => path);
      for (const each of this.program.getSemanticDiagnostics(file)) {
        if (ignored(each.code)) continue;
        const path = steps[file.getLineAndCharacterOfPosition(each.start).line];
        const source = this.program.getSourceFile(path);
        const entry = exported(source);
        const first = entry?.parameters?.[0];
        this.add(path, (first ?? entry ?? source.statements[0] ?? source).getStart(source), each.code, told(each), "error");
      }
    }

    checkExpressions() {
      const file = this.program.getSourceFile(EXPRESSIONS);
      if (this.program.getSyntacticDiagnostics(file).length) return;
      for (const each of this.program.getSemanticDiagnostics(file)) {
        const span = this.spans.find((one) => each.start >= one.start && each.start < one.end);
        if (!span || !this.isCertain(file, each)) continue;
        const lines = file.text.slice(span.start, each.start).split("\n");
        const place = { expression: span.key, line: lines.length, column: lines.at(-1).length + 1 };
        this.findings.push({ ...place, code: each.code, message: told(each), severity: "error" });
      }
    }

    /** Of expressions only what cannot be right: an unknown name, a member that no possible value has. */
    isCertain(file, { code, start }) {
      if (code === 2304 || code === 2552) return true;
      if (code !== 2339 && code !== 2551) return false;
      let found;
      const visit = (node) => {
        if (node.getStart(file) > start || node.end <= start) return;
        if (ts.isPropertyAccessExpression(node) && node.name.getStart(file) === start) found = node;
        ts.forEachChild(node, visit);
      };
      visit(file);
      if (!found) return false;
      const type = this.checker.getTypeAtLocation(found.expression);
      return !type.isUnion() || type.types.every((each) => !this.checker.getPropertyOfType(each, found.name.text));
    }
  }

  const told = (diagnostic) => ts.flattenDiagnosticMessageText(diagnostic.messageText, "\n");

  globalThis.__library = (text) => {
    const end = text.indexOf("\n"), path = LIBRARY + text.slice(0, end);
    library.set(path, parse(path, text.slice(end + 1)));
  };
  globalThis.__check = (text) => {
    try {
      host("r" + JSON.stringify(new Check(JSON.parse(text)).run()));
    } catch (fault) {
      host("f" + JSON.stringify({ name: String(fault?.name), message: String(fault?.message), stack: String(fault?.stack) }));
    }
  };
})();
