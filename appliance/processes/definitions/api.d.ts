/** What the appliance offers to step code. A part of every generated api.d.ts, behind the names of its process. */

interface GrantSet { integrations: object; read: string; write: string; secrets: string; processes: string; llm: string }

interface GosApi<G extends GrantSet> {
  readonly integrations: IntegrationsApi<G["integrations"]>;
  readonly datapool: DataPoolApi<G["read"], G["write"]>;
  readonly documents: DocumentsApi;
  readonly secrets: SecretsApi<G["secrets"]>;
  readonly processes: ProcessesApi<G["processes"]>;
  readonly human: HumanApi;
  readonly llm: LlmApi<G["llm"]>;
  readonly wait: WaitApi;
  readonly events: EventsApi;
  readonly log: LogApi;
  readonly execution: ExecutionFacts;
  /** The time as RFC 3339; journalled, so that it is the same when the step runs again. */
  now(): string;
}

/** What a failed call throws. */
interface ApiError extends Error { code: string; retryable: boolean; details?: any }

type ActionInput<T> = T extends { input: infer I } ? ({} extends I ? [input?: I] : [input: I]) : [input?: any];
type ActionOutput<T> = T extends { output: infer O } ? O : any;

interface IntegrationsApi<G extends object> {
  /** Performs one action of an integration. */
  execute<I extends keyof G & string, A extends keyof G[I] & string>(
    integration: I, action: A, ...input: ActionInput<G[I][A]>
  ): Promise<ActionOutput<G[I][A]>>;
}

/** A record of a collection, and the values that one can give. */
type Entity<C extends string> = C extends keyof Collections ? Collections[C]["entity"] : any;
type Values<C extends string> = C extends keyof Collections ? Collections[C]["values"] : any;
type Field<C extends string> = C extends string ? keyof Entity<C> & string : never;

type Comparable = string | number | boolean | null;
interface Comparison {
  _eq?: Comparable; _neq?: Comparable; _lt?: Comparable; _lte?: Comparable; _gt?: Comparable; _gte?: Comparable;
  _in?: readonly Comparable[]; _nin?: readonly Comparable[]; _null?: boolean; _between?: readonly Comparable[];
  _contains?: string; _icontains?: string; _starts_with?: string; _some?: object; _none?: object;
  _and?: readonly object[]; _or?: readonly object[];
}
type Relation<C extends string> = C extends keyof Collections ? Collections[C]["relations"] : string;
/** Conditions on fields; on a relation also those on the record it leads to. */
type Filter<C extends string> = { [F in Field<C>]?: 0 extends 1 & Entity<C>[F] ? any : F extends Relation<C> ? any : Comparable | Comparison }
  & { _and?: readonly Filter<C>[]; _or?: readonly Filter<C>[] };

interface QueryOf<C extends string> {
  filter?: Filter<C> | null;
  /** Field names; `-` in front sorts downwards. */
  sort?: string | readonly string[] | null;
  fields?: string | readonly Field<C>[] | null;
  search?: string | null;
  having?: object | null;
  limit?: number | null;
  cursor?: string | null;
  count?: boolean | "exact" | null;
}

type Operation<W extends string> = { [C in W]:
  | { op: "create"; collection: C; values: Values<C> }
  | { op: "update"; collection: C; id: string; values: Partial<Values<C>>; if_version?: number }
  | { op: "upsert"; collection: C; key: readonly string[]; values: Partial<Values<C>> }
  | { op: "delete"; collection: C; id: string; if_version?: number }
}[W];

interface DataPoolApi<R extends string, W extends string> {
  /** The record, or null. */
  find<C extends R>(collection: C, id: string): Promise<Entity<C> | null>;
  /** One page; with group, aggregate or expand the items have other members than the record. */
  query<C extends R, G = undefined, A = undefined, X = undefined>(
    collection: C, query?: QueryOf<C> & { group?: G; aggregate?: A; expand?: X }
  ): Promise<{ items: ([G, A, X] extends [undefined, undefined, undefined] ? Entity<C> : any)[]; next_cursor: string | null }>;
  create<C extends W>(collection: C, values: Values<C>): Promise<Entity<C>>;
  update<C extends W>(collection: C, id: string, values: Partial<Values<C>>): Promise<Entity<C>>;
  upsert<C extends W>(collection: C, document: { key: readonly string[]; values: Partial<Values<C>> }): Promise<Entity<C>>;
  delete<C extends W>(collection: C, id: string): Promise<null>;
  /** All or nothing. */
  batch(
    operations: readonly Operation<W>[] | { operations: readonly Operation<W>[]; dry_run?: boolean }
  ): Promise<{ event: string; collection: string; entity: any }[]>;
}

interface SecretsApi<S extends string> { get(name: S): Promise<string> }

interface ProcessesApi<P extends string> {
  /** Starts another process; with `wait` the step sleeps until that has ended. */
  execute(id: P, input?: object, options?: { wait?: boolean | number | string; [option: string]: any }): Promise<any>;
}

/** A document; size, sha256 and media_type are of its newest revision. */
interface DocumentFacts {
  readonly id: string; readonly name: string; readonly folder: string; readonly tags: readonly string[];
  readonly media_type: string; readonly size: number; readonly sha256: string; readonly revision: number;
  readonly created_at: string; readonly updated_at: string;
}
interface DocumentContent {
  readonly id: string; readonly name: string; readonly media_type: string; readonly size: number; readonly sha256: string;
  readonly revision: number; readonly encoding: "text" | "base64"; readonly content: string;
}
interface DocumentsApi {
  get(id: string): Promise<DocumentFacts>;
  /** The newest content, unless `revision` says otherwise: as text where it is UTF-8, else as base64. */
  read(id: string, options?: { encoding?: "text" | "base64"; revision?: number }): Promise<DocumentContent>;
  /** Stores a new document; it is there once, also when the step runs again after a crash. */
  create(document: {
    name: string; content: string; encoding?: "text" | "base64"; media_type?: string; folder?: string; tags?: readonly string[];
  }): Promise<DocumentFacts>;
}

interface HumanApi {
  /** Asks a person; the step sleeps until somebody has decided. */
  request(what: {
    kind: "approval" | "input" | "choice"; title: string; reason?: string; details?: any; schema?: object;
    choices?: readonly string[]; approvers?: readonly string[]; expires?: string; [member: string]: any;
  }): Promise<any>;
}

interface Question<P extends string> {
  profile: P; prompt?: string; messages?: readonly { role: "user" | "assistant" | "system"; content: string }[];
  system?: string | null;
  /** Data for the model, appended to the prompt as JSON. */
  input?: unknown;
  /** Ids of documents; of pictures also data URLs. */
  documents?: readonly string[] | null; images?: readonly string[] | null;
  max_tokens?: number | null; temperature?: number | null;
  /** How often an answer that does not fit `output` is sent back. */
  repair?: number | null;
  /** Whether what was redacted is put back into the answer. */
  restore?: boolean | null;
}

interface LlmApi<P extends string> {
  /** Asks a model; the answer fits `output`, a JSON Schema. */
  generate(question: Question<P> & { output: object }): Promise<any>;
  /** Asks a model for text. */
  generate(question: Question<P> & { output?: null }): Promise<string>;
}

interface WaitApi { for(duration: string): Promise<any>; until(time: string): Promise<any> }
interface EventsApi { wait(name: string, options?: object): Promise<any> }

interface LogApi {
  info(message: unknown, fields?: unknown): void;
  warn(message: unknown, fields?: unknown): void;
  error(message: unknown, fields?: unknown): void;
}

interface ExecutionFacts {
  readonly id: string; readonly process_id: string; readonly version: number; readonly label: string | null;
  readonly created_at: string; readonly started_at: string;
  readonly tenant: string; readonly step: string; readonly attempt: number;
}

declare const console: { [level in "log" | "info" | "debug" | "warn" | "error"]: (...values: unknown[]) => void };
declare const performance: { now(): number };
declare function atob(text: string): string;
declare function btoa(text: string): string;
declare function queueMicrotask(work: () => void): void;
declare function structuredClone<T>(value: T): T;
declare const crypto: { randomUUID(): `${string}-${string}-${string}-${string}-${string}`; getRandomValues<T extends ArrayBufferView>(view: T): T };
declare class TextEncoder {
  readonly encoding: "utf-8"; encode(text?: string): Uint8Array<ArrayBuffer>;
  encodeInto(text: string, target: Uint8Array): { read: number; written: number };
}
declare class TextDecoder {
  constructor(encoding?: string, options?: { fatal?: boolean; ignoreBOM?: boolean });
  readonly encoding: string; decode(bytes?: ArrayBufferLike | ArrayBufferView, options?: { stream?: boolean }): string;
}
declare class URLSearchParams implements Iterable<[string, string]> {
  constructor(init?: string | Record<string, string> | Iterable<[string, string]>);
  readonly size: number; append(name: string, value: string): void; delete(name: string, value?: string): void; get(name: string): string | null;
  getAll(name: string): string[]; has(name: string, value?: string): boolean; set(name: string, value: string): void; sort(): void;
  forEach(visit: (value: string, name: string, all: URLSearchParams) => void): void; entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>; values(): IterableIterator<string>; [Symbol.iterator](): IterableIterator<[string, string]>;
}
declare class URL {
  constructor(url: string | URL, base?: string | URL);
  static canParse(url: string, base?: string): boolean; static parse(url: string, base?: string): URL | null;
  href: string; protocol: string; username: string; password: string; host: string; hostname: string; port: string; pathname: string;
  search: string; hash: string; readonly origin: string; readonly searchParams: URLSearchParams; toJSON(): string;
}
declare class DOMException extends Error { constructor(message?: string, name?: string) }
declare class Event { constructor(type: string, options?: { cancelable?: boolean }); readonly type: string; readonly target: EventTarget | null }
declare class EventTarget {
  addEventListener(type: string, listener: (event: Event) => void, options?: { once?: boolean }): void;
  removeEventListener(type: string, listener: (event: Event) => void): void; dispatchEvent(event: Event): boolean;
}
declare class AbortSignal extends EventTarget {
  readonly aborted: boolean; readonly reason: any; throwIfAborted(): void; static abort(reason?: any): AbortSignal;
  static any(signals: Iterable<AbortSignal>): AbortSignal;
}
declare class AbortController { readonly signal: AbortSignal; abort(reason?: any): void }
declare class Blob {
  constructor(parts?: Iterable<string | ArrayBufferLike | ArrayBufferView | Blob>, options?: { type?: string });
  readonly size: number; readonly type: string; text(): Promise<string>; arrayBuffer(): Promise<ArrayBuffer>; bytes(): Promise<Uint8Array>;
  slice(start?: number, end?: number, type?: string): Blob;
}
