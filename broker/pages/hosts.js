// @ts-check
// Hosts: what each does, and why.

import { get } from './ask.js';
import { tell } from './dialog.js';
import { amount, duration, fill, make, name, plain, say } from './dom.js';
import { Tiles } from './rows.js';

/** A sign and words for each state, so that none is told by its colour alone. */
export const STATES = {
  alarm: ['▲', 'alarm', 'something on it needs a person'],
  rendering: ['▣', 'rendering', 'renders have all of it that could be harvested'],
  harvested: ['●', 'harvested', 'replicas run on it'],
  idle: ['○', 'idle', 'it waits for work'],
  quiet: ['◔', 'quiet', 'a render has just ended, and another may follow'],
  'given-way': ['◇', 'given way', 'its owner, or other programs, need it'],
  'held-out': ['⊘', 'held out', 'it is held out of harvest, to compare'],
  withheld: ['◌', 'withheld', 'it is given to nobody now'],
  stopped: ['■', 'stopped', 'somebody has stopped the harvest'],
  lost: ['✕', 'lost', 'its agent is not connected'],
};

/** @param {any} host */
export function whyOf(host) {
  return host.alarm ?? host.closed ?? STATES[/** @type {keyof typeof STATES} */ (host.state)]?.[2] ?? '';
}

/** @param {any} host */
function tileOf(host) {
  const [sign, word] = STATES[/** @type {keyof typeof STATES} */ (host.state)] ?? ['?', host.state];
  const cores = host.state === 'lost' ? '' : `, ${host.running} on ${host.cores_given} cores`;
  return make('button', {
    type: 'button', class: 'tile', 'data-state': host.state, title: plain(whyOf(host), 1_000),
    onclick: () => showHost(host),
  }, make('b', {}, name(host.host)), make('span', {}, `${sign} ${word}${cores}`),
  make('span', {}, name(whyOf(host))));
}

/** @param {any} host */
function showHost(host) {
  const [sign, word, usual] = STATES[/** @type {keyof typeof STATES} */ (host.state)] ?? ['?', host.state, ''];
  const facts = make('dl', { class: 'facts' });
  const add = (/** @type {string} */ title, /** @type {Node | string} */ value) => {
    facts.append(make('dt', {}, title), make('dd', {}, value));
  };
  add('state', `${sign} ${word}: ${usual}`);
  if (host.alarm ?? host.closed) add('reason', name(plain(host.alarm ?? host.closed, 4_000)));
  add('side', host.origin);
  if (host.owner) add('owner', name(host.owner));
  if (host.kind) add('kind', name(host.kind));
  add('cores', String(host.cores));
  add('cores now', `${host.cores_given}, ${host.running} replicas`);
  add('outputs that counted', `${host.reported}, of these ${host.disagreed} disagreed`);
  add('replicas given back', String(host.released));
  if (host.gpu) add('GPU', name(host.gpu.name ?? JSON.stringify(host.gpu)));
  for (const of of host.backing_off ?? []) {
    add('gets none of', name(plain(`${of.what} for ${duration(of.for_s)}, after ${of.in_a_row} in a row: ${of.reason}`, 2_000)));
  }
  tell(plain(host.host), facts);
}

/** Where each state stands among others. */
const RANKS = new Map(Object.keys(STATES).map((state, rank) => [state, rank]));

/** Hosts as tiles, by state, to be searched. */
export class Hosts {
  /**
   * @param {import('./live.js').Live} live
   * @param {{title: string, empty: string, isWanted?: (host: any) => boolean}} what
   */
  constructor(live, what) {
    this.live = live;
    this.what = what;
    this.wanted = new Set();
    this.words = '';
    /** The reason of one that was stopped, if any was. */
    this.stopped = '';
    this.count = make('p', { class: 'soft', role: 'status' });
    this.tiles = new Tiles({ label: what.title, width: 210, height: 64, key: (host) => host.host, tile: tileOf });
    const search = make('input', {
      type: 'search', size: 28, placeholder: 'name, owner, kind or reason',
      oninput: (/** @type {any} */ event) => {
        this.words = event.target.value.toLowerCase();
        this.change();
      },
    });
    /** @type {Map<string, Element>} */
    this.counts = new Map();
    const chips = Object.entries(STATES).map(([state, [sign, word, means]]) => this.chip(state, `${sign} ${word} `, means));
    this.element = make('section', { 'aria-labelledby': 'hosts' }, make('h2', { id: 'hosts' }, what.title),
      make('div', { class: 'tools' }, make('label', {}, 'Search', search)),
      make('div', { class: 'tools', role: 'group', 'aria-label': 'By state' }, ...chips), this.count, this.tiles.element);
  }

  /**
   * @param {string} state
   * @param {string} word
   * @param {string} means
   */
  chip(state, word, means) {
    const count = make('span', {}, '0');
    this.counts.set(state, count);
    return make('button', {
      type: 'button', 'aria-pressed': 'false', title: means,
      onclick: (/** @type {any} */ event) => {
        if (!this.wanted.delete(state)) this.wanted.add(state);
        event.currentTarget.setAttribute('aria-pressed', String(this.wanted.has(state)));
        this.change();
      },
    }, word, count);
  }

  change() {
    /** @type {Map<string, number>} */
    const counts = new Map();
    const shown = [];
    let all = 0;
    this.stopped = '';
    for (const host of this.live.hosts.values()) {
      if (this.what.isWanted && !this.what.isWanted(host)) continue;
      all += 1;
      counts.set(host.state, (counts.get(host.state) ?? 0) + 1);
      if (host.state === 'stopped') this.stopped = host.closed ?? '';
      if ((this.wanted.size === 0 || this.wanted.has(host.state)) && this.fits(host)) shown.push(host);
    }
    const rank = (/** @type {any} */ host) => RANKS.get(host.state) ?? RANKS.size;
    shown.sort((one, other) => rank(one) - rank(other) || (one.host < other.host ? -1 : 1));
    for (const [state, count] of this.counts) say(count, String(counts.get(state) ?? 0));
    say(this.count, all === 0 ? this.what.empty : `${shown.length} of ${all} hosts`);
    this.tiles.show(shown);
  }

  /** @param {any} host */
  fits(host) {
    return this.words === '' || [host.host, host.owner, host.kind, host.closed, host.alarm, host.origin]
      .some((text) => text && text.toLowerCase().includes(this.words));
  }
}

/** @param {{cpu_s: number, credit_s: number} | undefined} row */
function timesOf(row) {
  return [row?.cpu_s, row?.credit_s].map((seconds) => make('td', { class: 'number' }, seconds ? duration(seconds) : ''));
}

/** How often what replicas took is asked for anew. */
const USAGE_MS = 300_000;
/** Hosts of one owner that are counted one by one. */
const COUNTED_MAX = 500;

/** The hosts of whoever looks. */
export class MyHosts {
  /** @param {import('./app.js').App} app */
  constructor(app) {
    const { owner } = app.me;
    this.hosts = new Hosts(app.live, {
      title: 'Hosts that are mine',
      empty: 'No host of yours has connected. `gleaner join` with an invitation for an agent brings one in.',
      isWanted: (host) => host.owner === owner,
    });
    this.live = app.live;
    this.owner = owner;
    this.counted = make('tbody');
    this.countedKey = '';
    /** @type {Map<string, any>} */
    this.usage = new Map();
    this.element = make('div', {}, make('h1', {}, 'My hosts'), this.hosts.element,
      make('section', { 'aria-labelledby': 'counted' }, make('h2', { id: 'counted' }, 'What was counted'),
        make('div', { class: 'scroll short', tabindex: 0, role: 'group', 'aria-label': 'What was counted' },
          make('table', {}, make('thead', {}, make('tr', {}, ...['host', 'outputs that counted', 'of these disagreed', 'given back', 'CPU time', 'credit'].map((title, at) =>
            make('th', { scope: 'col', class: at > 0 ? 'number' : undefined }, title)))), this.counted))),
      make('section', { 'aria-labelledby': 'say' }, make('h2', { id: 'say' }, 'Your say'),
        make('p', {}, 'A host obeys its own commands, not this page. On the host itself:'),
        make('ul', {},
          make('li', {}, make('code', {}, 'gleaner agent page'), ' opens a page of that host, with buttons'),
          make('li', {}, make('code', {}, 'gleaner agent status'), ' says what runs there, for whom, and what you have wished'),
          make('li', {}, make('code', {}, 'gleaner agent pause 1h'), ' lets nothing run for an hour'),
          make('li', {}, make('code', {}, 'gleaner agent finish'), ' lets what runs come to its end, and begins nothing new'),
          make('li', {}, make('code', {}, 'gleaner stop'), ' ends all harvest at once, until ', make('code', {}, 'gleaner stop --lift')))));
    this.load();
    this.timer = setInterval(() => this.load(), USAGE_MS);
  }

  close() {
    clearInterval(this.timer);
  }

  /** What ended replicas took on them, and what of it was done for others. */
  async load() {
    try {
      const rows = await get('/v1/usage?by=host&mine=true');
      this.usage = new Map(rows.map((/** @type {any} */ row) => [row.host, row]));
      this.change();
    } catch {
      // What the broker pushes is there all the same.
    }
  }

  change() {
    this.hosts.change();
    const own = [...this.live.hosts.values()].filter((host) => host.owner === this.owner);
    own.sort((one, other) => (one.host < other.host ? -1 : 1));
    const all = { host: 'all of them', reported: 0, disagreed: 0, released: 0 };
    const sums = { cpu_s: 0, credit_s: 0 };
    for (const { cpu_s: cpu, credit_s: credit } of this.usage.values()) {
      sums.cpu_s += cpu;
      sums.credit_s += credit;
    }
    for (const host of own) {
      all.reported += host.reported;
      all.disagreed += host.disagreed;
      all.released += host.released;
    }
    const rows = own.length > 1 ? [all, ...own.slice(0, COUNTED_MAX)] : own;
    const key = JSON.stringify(rows.map(({ host, reported, disagreed, released }) => [host, reported, disagreed, released]).concat([[sums]]));
    if (this.countedKey === key) return;
    this.countedKey = key;
    fill(this.counted, ...rows.map(({ host, reported, disagreed, released }) => make('tr', {},
      make('th', { scope: 'row' }, name(host)),
      ...[reported, disagreed, released].map((count) => make('td', { class: 'number' }, amount(count))),
      ...timesOf(host === all.host ? sums : this.usage.get(host)))));
  }
}
