// @ts-check
// One job: where it stands, why, and what came of it.

import { get, Refused } from './ask.js';
import { amount, duration, fill, make, name, plain, time } from './dom.js';
import { cancel, endOf, isFinal, progressOf, stateOf } from './jobs.js';
import { Log } from './log.js';
import { Results } from './results.js';
import { LongTable } from './rows.js';

/** How often an open page asks anew why a job waits, where something has changed. */
const EXPLAIN_MS = 2_000;
/** Workunits that are under way of which is told where. */
const OPEN_SHOWN = 100;

/** @param {any} row */
function hostsOf(row) {
  const parts = row.replicas.flatMap((/** @type {any} */ replica, /** @type {number} */ at) => [
    at > 0 && ', ', name(replica.host), replica.is_parked && ' (stands still)', replica.is_away && ' (away)',
  ]);
  return make('span', {}, ...parts);
}

export class Job {
  /**
   * @param {import('./app.js').App} app
   * @param {number} id
   */
  constructor(app, id) {
    this.app = app;
    this.live = app.live;
    this.id = id;
    this.title = make('h1', {}, `job-${id}`);
    this.facts = make('dl', { class: 'facts' });
    this.tools = make('div', { class: 'tools' });
    this.reasons = make('div', { role: 'status' });
    this.one = make('div', { role: 'status' });
    this.open = new LongTable({
      label: 'Workunits that are under way',
      short: true,
      key: (row) => row.index,
      columns: [
        { title: 'workunit', cell: (row) => row.index },
        { title: 'hosts', cell: hostsOf },
        { title: 'waiting', class: 'number', cell: (row) => row.waiting },
        { title: 'votes', class: 'number', cell: (row) => row.votes },
        { title: 'begun', class: 'number', cell: (row) => row.attempts },
      ],
    });
    this.openPart = make('section', { 'aria-labelledby': 'open', hidden: true },
      make('h2', { id: 'open' }, 'Under way'), this.open.element);
    this.results = new Results(id);
    this.log = new Log(id);
    const index = make('input', { type: 'number', min: 0, size: 8, value: 0, id: 'workunit' });
    const form = make('form', {
      class: 'tools',
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        this.explain(`/v1/explain/${id}/${/** @type {HTMLInputElement} */ (index).value}`, this.one);
      },
    }, make('label', {}, 'Workunit', index), make('button', { type: 'submit' }, 'Explain it'));
    this.element = make('div', {},
      make('p', {}, make('a', { href: '#jobs' }, '← all jobs')), this.title,
      make('div', { class: 'beside' },
        make('section', { 'aria-labelledby': 'stands' }, make('h2', { id: 'stands' }, 'Where it stands'),
          this.facts, this.tools),
        make('section', { 'aria-labelledby': 'why' }, make('h2', { id: 'why' }, 'Why'),
          this.reasons, form, this.one)),
      this.openPart, ...(app.me.submits ? [this.log.element, this.results.element] : []));
    this.askedMs = -EXPLAIN_MS;
    /** @type {any} */
    this.shown = null;
    /** @type {any} */
    this.explained = null;
    if (app.me.submits) this.results.load();
    this.timer = setInterval(() => this.change(), EXPLAIN_MS);
  }

  close() {
    clearInterval(this.timer);
    this.results.close();
  }

  change() {
    const job = this.live.jobs.get(this.id);
    if (!this.live.isOnline && !job) return;
    if (!job) {
      fill(this.facts, make('dt', {}, 'state'), make('dd', {}, 'There is no such job for you at this broker.'));
      fill(this.tools);
      return;
    }
    if (job !== this.shown) {
      this.shown = job;
      this.showFacts(job);
    }
    const now = performance.now();
    if (this.explained !== job && now - this.askedMs >= EXPLAIN_MS) {
      this.askedMs = now;
      this.explained = job;
      this.explain(`/v1/explain/${this.id}`, this.reasons);
      this.showOpen(job);
      if (this.app.me.submits && this.results.list.childElementCount === 0) this.results.load();
    }
  }

  /** @param {any} job */
  showFacts(job) {
    fill(this.title, `job-${job.job} `, name(job.name));
    const rate = this.app.rates.of(job);
    const { replicas } = job;
    /** @type {[string, Node | string][]} */
    const facts = [
      ['state', stateOf(job)],
      ['owner', name(job.owner)],
      ['project', job.project ? name(job.project) : ''],
      ['lane', job.lane],
      ['workunits', progressOf(job)],
      ['failed', String(job.failed)],
      ['begun, not ended', String(job.open)],
      ['replicas that run', String(job.pending)],
      ['rate', rate === null ? '' : `${amount(rate * 60)} a minute`],
      ['end', endOf(job, this.app.rates)],
      ['due', job.due_ms ? time(job.due_ms) : ''],
      ['replicas given out', String(replicas.leased)],
      ['votes', `${replicas.reported}, of these ${replicas.disagreed} disagreed`],
      ['attempts', `${replicas.failed} failed, ${replicas.expired} timed out or lost, ${replicas.released} given back, ${replicas.aborted} taken back`],
      ['CPU time accepted', replicas.accepted_cpu_us > 0 ? duration(replicas.accepted_cpu_us / 1e6) : ''],
    ];
    const told = facts.filter(([, value]) => value !== '');
    fill(this.facts, ...told.flatMap(([title, value]) => [make('dt', {}, title), make('dd', {}, value)]));
    const cancels = this.app.me.submits && !isFinal(job);
    if (cancels !== (this.tools.childElementCount > 0)) {
      fill(this.tools, cancels && make('button', { type: 'button', class: 'danger', onclick: () => cancel(this.shown) },
        'Cancel this job'));
    }
  }

  /**
   * The first workunits that are under way, and where.
   * @param {any} job
   */
  async showOpen(job) {
    this.openPart.hidden = isFinal(job);
    if (isFinal(job)) return;
    try {
      this.open.show(await get(`/v1/jobs/${this.id}/workunits?limit=${OPEN_SHOWN}`));
    } catch {
      // What is said of the job itself says why.
      this.openPart.hidden = true;
    }
  }

  /**
   * @param {string} path
   * @param {Element} place
   */
  async explain(path, place) {
    try {
      const told = await get(path);
      const reasons = told.reasons.map((/** @type {any} */ reason) => make('li', {}, name(plain(reason.text, 4_000))));
      fill(place, make('p', {}, plain(told.summary, 4_000)),
        reasons.length > 0 && make('ul', { class: 'reasons' }, ...reasons));
    } catch (error) {
      const why = error instanceof Refused ? error.message : String(error);
      fill(place, make('p', { class: 'error' }, plain(why, 1_000)));
    }
  }
}

