// @ts-check
// The farm: its cores now and over time, its lanes, its hosts.

import { Cost } from './cost.js';
import { amount, fill, make, say } from './dom.js';
import { History, SERIES } from './history.js';
import { Hosts } from './hosts.js';
import { Polls } from './polls.js';
import { RedButton } from './stop.js';
import { Times } from './times.js';

export class Farm {
  /** @param {import('./app.js').App} app */
  constructor(app) {
    this.live = app.live;
    this.figures = make('dl', { class: 'figures' });
    this.bar = make('div', { class: 'bar', 'aria-hidden': 'true' });
    this.lanesKey = '';
    this.red = new RedButton(app);
    this.lanes = make('tbody');
    this.hosts = new Hosts(this.live, {
      title: 'Hosts', empty: 'No host is known yet: start an agent with `gleaner agent`.',
    });
    this.history = new History(app);
    this.times = new Times();
    this.cost = new Cost();
    this.polls = new Polls();
    this.element = make('div', {},
      make('h1', {}, 'Farm'),
      make('div', { class: 'beside' },
        make('div', {},
          make('section', { 'aria-labelledby': 'now' }, make('h2', { id: 'now' }, 'Cores now'),
            this.figures, this.bar, this.red.element),
          make('section', { 'aria-labelledby': 'lanes' }, make('h2', { id: 'lanes' }, 'Lanes'),
            make('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': 'Lanes' },
              make('table', {}, make('caption', { class: 'hidden' }, 'Lanes and what they hold'),
                make('thead', {}, make('tr', {}, ...['lane', 'jobs', 'cores held', 'parked', 'room', 'policy'].map((title) =>
                  make('th', { scope: 'col' }, title)))), this.lanes))),
          this.times.element),
        this.history.element),
      this.polls.element, this.cost.element, this.hosts.element);
    this.history.load();
  }

  close() {
    this.history.close();
    this.times.close();
    this.cost.close();
    this.polls.close();
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
    this.hosts.change();
    this.red.change(this.hosts.stopped);
  }
}
