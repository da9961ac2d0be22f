// @ts-check
// All jobs that are there for whoever looks.

import { remove } from './ask.js';
import { confirm } from './dialog.js';
import { duration, make, name, say, time } from './dom.js';
import { LongTable } from './rows.js';

/** A sign for each state of a job. */
export const JOB_STATES = { queued: '○', running: '●', completed: '✓', failed: '✕', cancelled: '⊘' };

/** How far back the rate of a job is taken from. */
const RATE_MS = 60_000;

/** How fast jobs come on, as far as this page has seen. */
export class Rates {
  constructor() {
    /** @type {Map<number, {ms: number, done: number}[]>} */
    this.seen = new Map();
  }

  /** @param {any} job */
  note(job) {
    if (isFinal(job)) {
      this.seen.delete(job.job);
      return;
    }
    const now = performance.now();
    const seen = this.seen.get(job.job) ?? [];
    const done = job.decided + job.failed;
    if (seen.length === 0 || seen[seen.length - 1].done !== done) seen.push({ ms: now, done });
    while (seen.length > 2 && now - seen[1].ms > RATE_MS) seen.shift();
    this.seen.set(job.job, seen);
  }

  /**
   * Workunits a second.
   * @param {any} job
   */
  of(job) {
    const seen = this.seen.get(job.job) ?? [];
    if (seen.length < 2) return null;
    const lasted = (performance.now() - seen[0].ms) / 1e3;
    return lasted < 2 ? null : (seen[seen.length - 1].done - seen[0].done) / lasted;
  }
}

/** @param {any} job */
export function isFinal(job) {
  return job.state === 'completed' || job.state === 'failed' || job.state === 'cancelled';
}

/** @param {any} job */
export function stateOf(job) {
  return `${JOB_STATES[/** @type {keyof typeof JOB_STATES} */ (job.state)] ?? ''} ${job.state}`;
}

/** @param {any} job */
export function progressOf(job) {
  const done = job.decided + job.failed;
  return make('span', {},
    make('progress', { max: job.workunits, value: done, 'aria-label': `job-${job.job}` }),
    ` ${done} of ${job.workunits}`);
}

/**
 * When a job is expected to end.
 * @param {any} job
 * @param {Rates} rates
 */
export function endOf(job, rates) {
  if (isFinal(job)) return '';
  const parts = [];
  const rate = rates.of(job);
  if (job.expected_end_ms) parts.push(time(job.expected_end_ms));
  else if (rate) parts.push(`in ${duration((job.workunits - job.decided - job.failed) / rate)}`);
  if (job.chance_permille !== undefined && job.due_ms) {
    parts.push(`${(job.chance_permille / 10).toFixed(1)} % by ${time(job.due_ms)}`);
  }
  return parts.join(', ');
}

/**
 * Asks whether a job is to be cancelled.
 * @param {any} job
 */
export function cancel(job) {
  confirm({
    title: `Cancel job-${job.job}?`,
    text: make('span', {}, 'What was decided of ', name(job.name), ' stays; nothing more of it runs.'),
    act: `Cancel job-${job.job}`,
    run: async () => {
      await remove(`/v1/jobs/${job.job}`);
    },
  });
}

export class Jobs {
  /** @param {import('./app.js').App} app */
  constructor(app) {
    this.live = app.live;
    this.rates = app.rates;
    this.words = '';
    this.state = '';
    this.count = make('p', { class: 'soft', role: 'status' });
    const search = make('input', {
      type: 'search', size: 24, placeholder: 'name, owner, project or number',
      oninput: (/** @type {any} */ event) => {
        this.words = event.target.value.toLowerCase();
        this.change();
      },
    });
    const states = make('select', {
      onchange: (/** @type {any} */ event) => {
        this.state = event.target.value;
        this.change();
      },
    }, make('option', { value: '' }, 'all'), make('option', { value: 'open' }, 'not ended'),
    ...Object.keys(JOB_STATES).map((state) => make('option', { value: state }, state)));
    this.table = new LongTable({
      label: 'Jobs',
      key: (job) => job.job,
      columns: [
        { title: 'job', cell: (job) => make('a', { href: `#jobs/${job.job}` }, `job-${job.job}`) },
        { title: 'name', class: 'wide', cell: (job) => name(job.name) },
        { title: 'owner', class: 'wide', cell: (job) => name(job.owner) },
        { title: 'lane', cell: (job) => job.lane },
        { title: 'state', cell: stateOf },
        { title: 'workunits', cell: progressOf },
        { title: 'failed', class: 'number', cell: (job) => job.failed },
        { title: 'running', class: 'number', cell: (job) => job.pending },
        { title: 'votes', class: 'number', cell: (job) => job.replicas.reported },
        { title: 'end', cell: (job) => endOf(job, this.rates) },
        {
          title: 'do',
          cell: (job) => make('span', {},
            make('a', { href: `#jobs/${job.job}` }, isFinal(job) ? 'results' : 'why?'), ' ',
            app.me.submits && !isFinal(job) && make('button', {
              type: 'button', class: 'danger', 'aria-label': `Cancel job-${job.job}`, onclick: () => cancel(job),
            }, 'cancel')),
        },
      ],
      height: 43,
    });
    this.table.element.classList.add('jobs');
    this.element = make('div', {},
      make('h1', {}, app.me.owner && app.me.role === 'submitter' ? 'My jobs' : 'Jobs'),
      make('section', {},
        make('div', { class: 'tools' }, make('label', {}, 'Search', search), make('label', {}, 'State', states)),
        this.count, this.table.element));
  }

  close() {}

  change() {
    const rows = [];
    for (const job of this.live.jobs.values()) {
      if (this.fits(job)) rows.push(job);
    }
    rows.sort((one, other) => other.job - one.job);
    const all = this.live.jobs.size;
    say(this.count, all === 0 ? 'There is no job yet: `gleaner submit gametree --depth 4` makes one.'
      : `${rows.length} of ${all} jobs`);
    this.table.show(rows);
  }

  /** @param {any} job */
  fits(job) {
    const isOpen = !isFinal(job);
    if (this.state !== '' && !(this.state === 'open' ? isOpen : job.state === this.state)) return false;
    return this.words === '' || `job-${job.job} ${job.name} ${job.owner} ${job.project ?? ''}`.toLowerCase().includes(this.words);
  }
}

