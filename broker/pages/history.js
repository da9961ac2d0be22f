// @ts-check
// What the farm did over time: a chart, and the same as a table.

import { get } from './ask.js';
import { areas, legend } from './chart.js';
import { amount, fill, make, time } from './dom.js';
import { LongTable } from './rows.js';

/** From the bottom to the top. */
export const SERIES = [
  { key: 'rendered', title: 'rendered' },
  { key: 'harvested', title: 'harvested' },
  { key: 'idle', title: 'idle' },
  { key: 'closed', title: 'closed' },
];

const LENGTHS = {
  minute: { ms: 60_000, shown: 180, title: 'the last three hours, by minute' },
  hour: { ms: 3_600_000, shown: 168, title: 'the last week, by hour' },
  day: { ms: 86_400_000, shown: 366, title: 'the last year, by day' },
};

const REFRESH_MS = 30_000;

export class History {
  /** @param {import('./live.js').Live} live */
  constructor(live) {
    this.live = live;
    this.by = /** @type {keyof typeof LENGTHS} */ ('minute');
    this.chart = make('div');
    this.note = make('p', { class: 'soft', role: 'status' });
    const choice = make('select', {
      onchange: (/** @type {any} */ event) => {
        this.by = event.target.value;
        this.load();
      },
    }, ...Object.entries(LENGTHS).map(([by, { title }]) => make('option', { value: by }, title)));
    const cores = (/** @type {string} */ key, /** @type {string} */ title) => (
      { title, class: 'number', cell: (/** @type {any} */ row) => amount(row[key]) });
    this.table = new LongTable({
      label: 'Cores over time',
      short: true,
      key: (row) => row.start_ms,
      columns: [
        { title: 'from', cell: (row) => time(row.start_ms) },
        cores('rendered', 'rendered'), cores('harvested', 'harvested'), cores('idle', 'idle'),
        cores('closed', 'closed'), cores('counted', 'outputs'), cores('failed', 'failed'),
        cores('released', 'given back'),
      ],
    });
    this.element = make('section', { 'aria-labelledby': 'history' },
      make('h2', { id: 'history' }, 'Cores over time'),
      make('div', { class: 'tools' }, make('label', {}, 'Show', choice)),
      this.chart, legend(SERIES), this.note, this.table.element);
    this.timer = setInterval(() => this.load(), REFRESH_MS);
  }

  close() {
    clearInterval(this.timer);
  }

  async load() {
    const { ms, shown, title } = LENGTHS[this.by];
    const from = Math.floor(this.live.now() - shown * ms);
    try {
      const rows = await get(`/v1/farm/history?by=${this.by}&from_ms=${from}`);
      const label = `Cores that were rendered, harvested, idle and closed: ${title}. The table has the numbers.`;
      fill(this.chart, areas({ label, rows, lengthMs: ms, series: SERIES }));
      fill(this.note, rows.length === 0 ? 'The broker has seen nothing of the farm then.' : null);
      this.table.show([...rows].reverse());
    } catch (error) {
      fill(this.note, error instanceof Error ? error.message : String(error));
    }
  }
}
