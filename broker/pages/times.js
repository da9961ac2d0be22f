// @ts-check
// How long things took since the broker's start, out of its metrics.

import { raw } from './ask.js';
import { amount, fill, make } from './dom.js';

const REFRESH_MS = 30_000;

/**
 * What is told: a histogram, and which of its series.
 * @type {{title: string, of: string, labels: Record<string, string>}[]}
 */
const TIMES = [
  { title: 'hooks: until the agent answered', of: 'gleaner_agents_hook_seconds', labels: { origin: 'farm' } },
  { title: 'releases: until all in the way stood still', of: 'gleaner_agents_release_seconds', labels: { origin: 'farm', until: 'still' } },
  { title: 'releases: until all in the way had ended', of: 'gleaner_agents_release_seconds', labels: { origin: 'farm', until: 'gone' } },
  { title: 'requests: until a replica was given', of: 'gleaner_request_lease_seconds', labels: {} },
  { title: 'submissions: until they were on disk', of: 'gleaner_submission_durable_seconds', labels: {} },
  { title: 'reports: until their verdict was sent', of: 'gleaner_report_verdict_seconds', labels: {} },
];

/**
 * The buckets of a histogram, each with how many took no longer.
 * @param {string} text
 * @param {string} of
 * @param {Record<string, string>} labels
 */
export function bucketsOf(text, of, labels) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const line of text.split('\n')) {
    if (!line.startsWith(`${of}_bucket{`)) continue;
    const [, inside, count] = /\{(.*)\} (\d+)/.exec(line) ?? [];
    if (inside === undefined) continue;
    const has = Object.fromEntries([...inside.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => [name, value]));
    if (Object.entries(labels).some(([name, value]) => has[name] !== value)) continue;
    const bound = has.le === '+Inf' ? Infinity : Number(has.le);
    counts.set(bound, (counts.get(bound) ?? 0) + Number(count));
  }
  return [...counts].map(([bound, count]) => ({ bound, count })).sort((one, other) => one.bound - other.bound);
}

/**
 * The time that such a share took no longer than: within a bucket as if they were spread evenly.
 * @param {{bound: number, count: number}[]} buckets
 * @param {number} share
 */
export function quantileOf(buckets, share) {
  const wanted = share * (buckets[buckets.length - 1]?.count ?? 0);
  let before = { bound: 0, count: 0 };
  for (const bucket of buckets) {
    if (bucket.count >= wanted && bucket.count > before.count) {
      if (bucket.bound === Infinity) return { s: before.bound, isMore: true };
      const part = (wanted - before.count) / (bucket.count - before.count);
      return { s: before.bound + part * (bucket.bound - before.bound), isMore: false };
    }
    before = bucket;
  }
  return { s: before.bound, isMore: false };
}

/** @param {{s: number, isMore: boolean}} of */
function told({ s, isMore }) {
  const words = s < 0.001 ? `${amount(s * 1e6)} µs` : s < 1 ? `${amount(s * 1e3)} ms` : `${amount(s)} s`;
  return isMore ? `over ${words}` : words;
}

export class Times {
  constructor() {
    this.rows = make('tbody');
    this.note = make('p', { class: 'soft', role: 'status' });
    const titles = ['since the broker\'s start', 'count', 'half within', '99 % within'];
    this.element = make('section', { 'aria-labelledby': 'times' }, make('h2', { id: 'times' }, 'How long it took'),
      make('div', { class: 'scroll short times', tabindex: 0, role: 'group', 'aria-label': 'How long it took' },
        make('table', {}, make('thead', {}, make('tr', {}, ...titles.map((title, at) =>
          make('th', { scope: 'col', class: at > 0 ? 'number' : undefined }, title)))), this.rows)), this.note);
    this.timer = setInterval(() => this.load(), REFRESH_MS);
    this.load();
  }

  close() {
    clearInterval(this.timer);
  }

  async load() {
    try {
      const text = await (await raw('GET', '/metrics')).text();
      fill(this.rows, ...TIMES.map(({ title, of, labels }) => {
        const buckets = bucketsOf(text, of, labels);
        const count = buckets[buckets.length - 1]?.count ?? 0;
        const cells = count === 0 ? ['0', '', ''] : [amount(count), told(quantileOf(buckets, 0.5)), told(quantileOf(buckets, 0.99))];
        return make('tr', {}, make('th', { scope: 'row' }, title), ...cells.map((cell) => make('td', { class: 'number' }, cell)));
      }));
      fill(this.note);
    } catch (error) {
      fill(this.note, error instanceof Error ? error.message : String(error));
    }
  }
}
