// @ts-check
// What the farm did over time: a chart, and the same as a table.

import { get } from './ask.js';
import { areas, legend } from './chart.js';
import { amount, duration, fill, make, name, time } from './dom.js';
import { LongTable } from './rows.js';

/** From the bottom to the top. */
export const SERIES = [
  { key: 'rendered', title: 'rendered' },
  { key: 'harvested', title: 'harvested' },
  { key: 'idle', title: 'idle' },
  { key: 'closed', title: 'closed' },
];

/** Lanes, from the bottom to the top: what is harvested, by whom it is for. */
export const LANES = [
  { key: 'background', title: 'background' },
  { key: 'batch', title: 'batch' },
  { key: 'dataset', title: 'dataset' },
  { key: 'deadline', title: 'deadline' },
  { key: 'rendering', title: 'frames of views' },
].map(({ key, title }) => ({ key: `lane-${key}`, title }));

const LENGTHS = {
  minute: { ms: 60_000, shown: 180, title: 'the last three hours, by minute' },
  hour: { ms: 3_600_000, shown: 168, title: 'the last week, by hour' },
  day: { ms: 86_400_000, shown: 366, title: 'the last year, by day' },
};

const REFRESH_MS = 30_000;
/** How often projects are summed anew, which takes the broker a look at all records. */
const USAGE_MS = 300_000;
/** Projects that are shown. */
const PROJECTS_MAX = 100;

/** Adds what each lane had to a row, by the names of their series. @param {any} row */
function withLanes(row) {
  const lanes = Object.entries(row.lanes ?? {}).map(([lane, cores]) => [`lane-${lane}`, cores]);
  return { ...Object.fromEntries(LANES.map(({ key }) => [key, 0])), ...Object.fromEntries(lanes), ...row };
}

export class History {
  /** @param {import('./app.js').App} app */
  constructor(app) {
    this.live = app.live;
    this.hasUsage = app.me.submits;
    /** When projects were summed, and for which choice. */
    this.summed = { at: -Infinity, by: '' };
    this.by = /** @type {keyof typeof LENGTHS} */ ('minute');
    this.chart = make('div');
    this.lanes = make('div');
    this.projects = make('tbody');
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
        ...[...LANES].reverse().map(({ key, title }) => cores(key, title)),
      ],
    });
    this.element = make('section', { 'aria-labelledby': 'history' },
      make('h2', { id: 'history' }, 'Cores over time'),
      make('div', { class: 'tools' }, make('label', {}, 'Show', choice)),
      this.chart, legend(SERIES),
      make('h3', {}, 'Harvested, by lane'), this.lanes, legend(LANES), this.note, this.table.element,
      this.hasUsage && make('h3', {}, 'What replicas took then, by project'),
      this.hasUsage && make('div', { class: 'scroll short', tabindex: 0, role: 'group', 'aria-label': 'What replicas took, by project' },
        make('table', {}, make('thead', {}, make('tr', {}, ...['project', 'core time', 'of this charged', 'replicas'].map((title, at) =>
          make('th', { scope: 'col', class: at > 0 ? 'number' : undefined }, title)))), this.projects)));
    this.timer = setInterval(() => this.load(), REFRESH_MS);
  }

  close() {
    clearInterval(this.timer);
  }

  async load() {
    const { ms, shown, title } = LENGTHS[this.by];
    const from = Math.floor(this.live.now() - shown * ms);
    try {
      const rows = (await get(`/v1/farm/history?by=${this.by}&from_ms=${from}`)).map(withLanes);
      const label = `Cores that were rendered, harvested, idle and closed: ${title}. The table has the numbers.`;
      fill(this.chart, areas({ label, rows, lengthMs: ms, series: SERIES }));
      fill(this.lanes, areas({ label: `Harvested cores by lane: ${title}. The table has the numbers.`, rows, lengthMs: ms, series: LANES }));
      fill(this.note, rows.length === 0 ? 'The broker has seen nothing of the farm then.' : null);
      this.table.show([...rows].reverse());
      if (this.hasUsage && (this.summed.by !== this.by || Date.now() - this.summed.at > USAGE_MS)) {
        this.summed = { at: Date.now(), by: this.by };
        await this.loadProjects(from);
      }
    } catch (error) {
      fill(this.note, error instanceof Error ? error.message : String(error));
    }
  }

  /** @param {number} from */
  async loadProjects(from) {
    const all = await get(`/v1/usage?by=project&from_ms=${from}`);
    const rows = all.slice(0, PROJECTS_MAX);
    const more = all.length - rows.length;
    fill(this.projects, ...rows.map((/** @type {any} */ row) => make('tr', {},
      make('th', { scope: 'row' }, row.project ? name(row.project) : 'of none'),
      ...[duration(row.slot_s), duration(row.charged_s), amount(row.replicas)].map((cell) => make('td', { class: 'number' }, cell)))),
    more > 0 && make('tr', {}, make('td', { colspan: 4 }, `and ${more} more: \`gleaner usage --by project\``)));
    if (rows.length === 0) fill(this.projects, make('tr', {}, make('td', { colspan: 4 }, 'No replica has ended then.')));
  }
}
