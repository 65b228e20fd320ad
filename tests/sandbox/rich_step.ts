// What a step may hold while it sleeps: one of everything.
import { tag, later } from './lib';

class Sum {
  #total = 0n;
  add(value: number) { this.#total += BigInt(value); return this; }
  get total() { return this.#total.toString(); }
}

async function* pages(api: any) {
  for (let page = 0; page < 4; page++) yield (await api.datapool.query('orders', { page })).items;
}

function* count() { let n = 10; while (true) yield n++; }

const memo = new Map<string, any>([['k', { deep: [1, 2, { x: 3 }] }]]);
const weak = new WeakMap(), expression = /a(\d)/g;

export default async function (input: any, api: any) {
  const sum = new Sum(), numbers = count(), key = {}, floats = new Float64Array([1.5, 2.5]);
  numbers.next(); numbers.next();
  weak.set(key, 'weak');
  expression.exec('a1a2');
  later.set('x', 7);
  const closure = ((n) => () => ++n)(41), date = new Date('2020-02-02'), set = new Set(['a', 'b']);
  const bytes = new Uint8Array([1, 2, 3, 4]).buffer, view = new DataView(bytes);
  view.setUint8(2, 255);
  const proxy = new Proxy({}, { get: (_, name) => `seen ${String(name)}` }) as any;
  const symbol = Symbol('described');
  let release: (value: string) => void = () => {};
  const lateFault = new Promise<string>((_, reject) => { release = (text) => reject(new Error(text)); });
  const caught = lateFault.catch((fault) => fault.message);
  const random = [Math.random()], began = Date.now();
  const other = api.integrations.execute('slow', 'ask', { q: 1 }); // a second call in flight across the sleep
  let n = 0;
  for await (const items of pages(api)) {
    for (const item of items) { sum.add(item); n++; }
    if (n !== 4) continue;
    try {
      memo.set('answer', await api.human.request({ question: `ship ${n}?`, total: sum.total }));
    } finally {
      memo.set('finally', true);
    }
  }
  release('late');
  random.push(Math.random());
  return {
    tag: tag(n), total: sum.total, next: numbers.next().value, weak: weak.get(key), floats: [...floats],
    expression: expression.exec('a1a2')?.[0], closure: closure(), memo: [...memo], other: await other,
    date: date.toISOString(), set: [...set], view: [...new Uint8Array(bytes)], proxy: proxy.x, symbol: symbol.description,
    later: later.get('x'), caught: await caught, input, execution: api.execution.id, random, slept: Date.now() - began,
  };
}
