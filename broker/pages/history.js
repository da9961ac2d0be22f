// @ts-check
// What the farm did over time: a chart, and the same as a table.

import { get } from './ask.js';
import { areas, legend } from './chart.js';
import { amount, duration, fill, make, name, plain, time } from './dom.js';
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
/** Of these, how many have a colour of their own. */
const COLOURS = 5;

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
    this.overTime = make('div');
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
      this.hasUsage && make('h3', {}, 'What replicas took that ended then, by project'), this.overTime,
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
    const { ms, title } = LENGTHS[this.by];
    /** @type {any[]} */
    const parts = await get(`/v1/usage?by=project&each=${this.by}&from_ms=${from}`);
    const all = sums(parts);
    const series = all.slice(0, COLOURS).map(({ project }, at) => ({ key: `part-${at}`, title: project ? plain(project) : 'of none' }));
    if (all.length > COLOURS) series.push({ key: 'part-rest', title: 'all others' });
    const label = `Core time of replicas by project and by when they ended: ${title}. The table has the sums.`;
    const rows = overTime(parts, all, ms);
    fill(this.overTime, rows.length > 0 && areas({ label, rows, lengthMs: ms, series }), rows.length > 0 && legend(series));
    const more = all.length - PROJECTS_MAX;
    fill(this.projects, ...all.slice(0, PROJECTS_MAX).map((row) => make('tr', {},
      make('th', { scope: 'row' }, named(row.project)),
      ...[duration(row.slot_s), duration(row.charged_s), amount(row.replicas)].map((cell) => make('td', { class: 'number' }, cell)))),
    more > 0 && make('tr', {}, make('td', { colspan: 4 }, `and ${more} more: \`gleaner usage --by project\``)));
    if (all.length === 0) fill(this.projects, make('tr', {}, make('td', { colspan: 4 }, 'No replica has ended then.')));
  }
}

/** @param {string | null} project */
function named(project) {
  return project ? name(project) : 'of none';
}

/** Each project's sums over all time, the largest first. @param {any[]} parts */
function sums(parts) {
  /** @type {Map<string | null, {project: string | null, slot_s: number, charged_s: number, replicas: number}>} */
  const of = new Map();
  for (const { project, slot_s, charged_s, replicas } of parts) {
    const sum = of.get(project) ?? { project, slot_s: 0, charged_s: 0, replicas: 0 };
    of.set(project, {
      project, slot_s: sum.slot_s + slot_s, charged_s: sum.charged_s + charged_s, replicas: sum.replicas + replicas,
    });
  }
  return [...of.values()].sort((a, b) => b.slot_s - a.slot_s);
}

/**
 * Cores by the names of their series, from the first to the last time at which something ended.
 * @param {any[]} parts
 * @param {{project: string | null}[]} all the largest first
 * @param {number} lengthMs
 */
function overTime(parts, all, lengthMs) {
  const keys = new Map(all.map(({ project }, at) => [project, at < COLOURS ? `part-${at}` : 'part-rest']));
  const none = Object.fromEntries([...keys.values()].map((key) => [key, 0]));
  /** @type {any[]} */
  const rows = [];
  // They come in the order of time.
  for (const { start_ms, project, slot_s } of parts) {
    let last = rows[rows.length - 1];
    while (!last || last.start_ms < start_ms) {
      last = { start_ms: last ? last.start_ms + lengthMs : start_ms, ...none };
      rows.push(last);
    }
    last[keys.get(project) ?? 'part-rest'] += (slot_s * 1_000) / lengthMs;
  }
  return rows;
}
