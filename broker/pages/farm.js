// @ts-check
// The farm: what its hosts do, and why.

import { amount, duration, fill, make, name, plain, say } from './dom.js';
import { tell } from './dialog.js';
import { History, SERIES } from './history.js';
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
  const cores = host.state === 'lost' ? '' : `, ${host.running} of ${host.slots} slots, ${host.cores} cores`;
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
  add('slots now', `${host.running} of ${host.slots} taken`);
  add('outputs that counted', `${host.reported}, of these ${host.disagreed} disagreed`);
  add('replicas given back', String(host.released));
  if (host.gpu) add('GPU', name(host.gpu.name ?? JSON.stringify(host.gpu)));
  for (const of of host.backing_off ?? []) {
    add('gets none of', name(plain(`${of.what} for ${duration(of.for_s)}, after ${of.in_a_row} in a row: ${of.reason}`, 2_000)));
  }
  tell(plain(host.host), facts);
}

export class Farm {
  /** @param {import('./app.js').App} app */
  constructor(app) {
    this.live = app.live;
    this.me = app.me;
    this.wanted = new Set();
    this.words = '';
    this.figures = make('dl', { class: 'figures' });
    this.bar = make('div', { class: 'bar', 'aria-hidden': 'true' });
    this.stopNote = make('p', { class: 'soft' });
    this.lanes = make('tbody');
    this.chips = make('div', { class: 'tools', role: 'group', 'aria-label': 'Hosts by state' });
    this.count = make('p', { class: 'soft', role: 'status' });
    this.tiles = new Tiles({ label: 'Hosts', width: 210, height: 64, key: (host) => host.host, tile: tileOf });
    this.history = new History(this.live);
    const search = make('input', {
      type: 'search', size: 28, placeholder: 'name, owner, kind or reason',
      oninput: (/** @type {any} */ event) => {
        this.words = event.target.value.toLowerCase();
        this.show();
      },
    });
    this.element = make('div', {},
      make('h1', {}, 'Farm'),
      make('div', { class: 'beside' },
        make('div', {},
          make('section', { 'aria-labelledby': 'now' }, make('h2', { id: 'now' }, 'Cores now'),
            this.figures, this.bar, make('p', { class: 'tools' },
              make('button', { type: 'button', class: 'danger', onclick: () => this.red() }, 'Stop or resume harvest …')),
            this.stopNote),
          make('section', { 'aria-labelledby': 'lanes' }, make('h2', { id: 'lanes' }, 'Lanes'),
            make('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'Lanes' },
              make('table', {}, make('caption', { class: 'hidden' }, 'Lanes and what they hold'),
                make('thead', {}, make('tr', {}, ...['lane', 'jobs', 'cores held', 'parked', 'room', 'policy'].map((title) =>
                  make('th', { scope: 'col' }, title)))), this.lanes)))),
        this.history.element),
      make('section', { 'aria-labelledby': 'hosts' }, make('h2', { id: 'hosts' }, 'Hosts'),
        make('div', { class: 'tools' }, make('label', {}, 'Search', search)),
        this.chips, this.count, this.tiles.element));
    this.history.load();
  }

  close() {
    this.history.close();
  }

  change() {
    const { farm, lanes } = this.live;
    if (!farm) return;
    if (this.figures.childElementCount === 0) {
      for (const { key, title } of SERIES) {
        this.figures.append(make('div', {},
          make('dt', {}, make('span', { class: `key ${key}` }), title), make('dd', { 'data-of': key })));
        this.bar.append(make('span', { class: key }));
      }
      this.figures.append(make('div', {}, make('dt', {}, 'of cores'), make('dd', { 'data-of': 'cores' })),
        make('div', {}, make('dt', {}, 'hosts connected'), make('dd', { 'data-of': 'hosts' })));
    }
    for (const cell of this.figures.querySelectorAll('dd')) {
      const key = /** @type {HTMLElement} */ (cell).dataset.of ?? '';
      say(cell, key === 'hosts' ? `${farm.hosts} of ${farm.known}` : amount(farm[key]));
    }
    SERIES.forEach(({ key }, at) => {
      const part = /** @type {HTMLElement} */ (this.bar.children[at]);
      part.style.width = `${(100 * farm[key]) / Math.max(farm.cores, 1e-9)}%`;
    });
    const rows = lanes.map((lane) => [lane.lane, lane.jobs,
      `${amount(lane.held_permille / 1e3)} of ${amount(lane.given_permille / 1e3)}`, lane.parked, lane.room, lane.policy]);
    const key = JSON.stringify(rows);
    if (this.lanesKey !== key) {
      this.lanesKey = key;
      fill(this.lanes, ...rows.map(([lane, ...cells]) => make('tr', {}, make('th', { scope: 'row' }, lane),
        ...cells.map((cell) => make('td', {}, cell)))));
    }
    this.show();
  }

  show() {
    /** @type {Map<string, number>} */
    const counts = new Map();
    const shown = [];
    for (const host of this.live.hosts.values()) {
      counts.set(host.state, (counts.get(host.state) ?? 0) + 1);
      if ((this.wanted.size === 0 || this.wanted.has(host.state)) && this.fits(host)) shown.push(host);
    }
    const order = Object.keys(STATES);
    shown.sort((one, other) => order.indexOf(one.state) - order.indexOf(other.state)
      || (one.host < other.host ? -1 : 1));
    this.showChips(counts);
    const all = this.live.hosts.size;
    say(this.count, all === 0 ? 'No host is known yet: start an agent with `gleaner agent`.'
      : `${shown.length} of ${all} hosts`);
    this.tiles.show(shown);
    const stopped = [...this.live.hosts.values()].find((host) => host.state === 'stopped');
    say(this.stopNote, stopped ? plain(stopped.closed, 1_000) : '');
  }

  /** @param {any} host */
  fits(host) {
    return this.words === '' || [host.host, host.owner, host.kind, host.closed, host.alarm, host.origin]
      .some((text) => text && text.toLowerCase().includes(this.words));
  }

  /** @param {Map<string, number>} counts */
  showChips(counts) {
    if (this.chips.childElementCount === 0) {
      for (const [state, [sign, word, means]] of Object.entries(STATES)) {
        this.chips.append(make('button', {
          type: 'button', 'data-state': state, 'aria-pressed': 'false', title: means,
          onclick: (/** @type {any} */ event) => {
            if (!this.wanted.delete(state)) this.wanted.add(state);
            event.currentTarget.setAttribute('aria-pressed', String(this.wanted.has(state)));
            this.show();
          },
        }, `${sign} ${word} `, make('span', {}, '0')));
      }
    }
    for (const chip of this.chips.children) {
      const state = /** @type {HTMLElement} */ (chip).dataset.state ?? '';
      say(/** @type {Element} */ (chip.lastElementChild), String(counts.get(state) ?? 0));
    }
  }

  /** The monitor stops and resumes; the broker only hears of it. */
  red() {
    tell('Stop or resume harvest',
      make('p', {}, 'The farm\'s monitor stops and resumes harvest, not the broker. On a machine that reaches the monitor:'),
      make('p', {}, make('code', {}, 'gleaner farm stop --reason "WHY"')),
      make('p', {}, make('code', {}, 'gleaner farm resume')),
      make('p', {}, 'Who, when and why are shown here, as the reason of each host, and by ',
        make('code', {}, 'gleaner farm status'), '. On one host, ', make('code', {}, 'gleaner stop'), ' ends all harvest at once.'));
  }
}
