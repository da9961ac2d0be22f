// @ts-check
// How the farm's polls go and where its sources disagree, as its monitor has told.

import { every } from './ask.js';
import { duration, fill, make, name, plain, say } from './dom.js';

const REFRESH_MS = 5_000;
/** After so long without a word of it the monitor is as good as silent. */
const SILENT_MS = 30_000;
const NOTES_MAX = 8;
const TEXT_CHARS_MAX = 1_000;

export class Polls {
  constructor() {
    this.state = make('div');
    this.rows = make('tbody');
    this.table = make('div', { class: 'scroll short', tabindex: 0, role: 'group', 'aria-label': 'Contradictions', hidden: true },
      make('table', {}, make('caption', { class: 'hidden' }, 'Where sources disagreed'),
        make('thead', {}, make('tr', {}, ...['host', 'contradiction', 'times', 'last'].map((title) => make('th', { scope: 'col' }, title)))), this.rows));
    this.count = make('p', { class: 'soft' });
    this.element = make('section', { 'aria-labelledby': 'polls' }, make('h2', { id: 'polls' }, 'Polls and contradictions'), this.state, this.count, this.table);
    this.key = '';
    this.close = every('/v1/farm/report', REFRESH_MS, ({ age_ms: ageMs, report }) => this.show(ageMs, report));
  }

  /**
   * @param {number | null} ageMs
   * @param {any} report
   */
  show(ageMs, report) {
    if (!report) {
      this.key = '';
      this.table.hidden = true;
      say(this.count, '');
      fill(this.state, make('p', { class: 'soft' }, 'No monitor has told of its sources.'));
      return;
    }
    const age = Number(ageMs);
    const heard = age > SILENT_MS ? [make('p', { class: 'warn' }, `The monitor has not been heard for ${duration(age / 1e3)}; this is what it said last.`)] : [];
    const lines = [...heard, ...pollLines(report.poll, age), ...eventLines(report.farm_events)];
    const key = lines.map((line) => line.textContent).join('\n');
    if (this.key !== key) {
      this.key = key;
      fill(this.state, ...lines);
    }
    const { contradictions, contradictions_total: total } = report;
    say(this.count, total === 0 ? 'No source has contradicted another.'
      : `Sources have contradicted each other ${total} ${total === 1 ? 'time' : 'times'}: what either books stays booked.`);
    this.table.hidden = contradictions.length === 0;
    fill(this.rows, ...contradictions.map((/** @type {any} */ of) => make('tr', {}, make('th', { scope: 'row' }, name(of.host)),
      make('td', {}, plain(of.text, TEXT_CHARS_MAX)), make('td', { class: 'number' }, of.times),
      make('td', {}, `${duration((of.age_ms + age) / 1e3)} ago`))));
  }
}

/**
 * How polls go.
 * @param {any} poll
 * @param {number} age
 */
function pollLines(poll, age) {
  if (!poll) return [make('p', { class: 'soft' }, 'The farm is not polled: its hooks tell of its renders.')];
  const { source, answered_age_ms: answeredMs, hosts, not_understood: odd, notes, failing } = poll;
  const ago = (/** @type {number} */ ms) => duration((ms + age) / 1e3);
  const answered = answeredMs === null ? 'it has not answered since the monitor started' : `its newest answer, of ${hosts} hosts, is ${ago(answeredMs)} old`;
  const lines = failing
    ? [make('p', { class: 'bad' }, make('b', {}, 'Polls fail: '), name(source), `, for ${ago(failing.since_ms)} now (${failing.polls} polls); ${answered}.`),
      make('p', {}, plain(failing.error, TEXT_CHARS_MAX)), make('p', {}, 'To mend it: ', plain(failing.cure, TEXT_CHARS_MAX))]
    : [make('p', {}, name(source), ` is polled; ${answered}.`)];
  if (odd > 0) lines.push(make('p', { class: 'warn' }, odd === 1 ? 'A part of its answer is not understood: its host is not harvested.' : `${odd} parts of its answer are not understood: their hosts are not harvested.`));
  if (notes.length > 0) {
    const more = notes.length - NOTES_MAX;
    lines.push(make('ul', {}, ...notes.slice(0, NOTES_MAX).map((/** @type {string} */ note) => make('li', {}, plain(note, TEXT_CHARS_MAX))),
      more > 0 && make('li', { class: 'soft' }, `and ${more} more: gleaner farm status`)));
  }
  return lines;
}

/**
 * What becomes of the farm's messages that something changed.
 * @param {any} events
 */
function eventLines(events) {
  if (!events) return [];
  const { url, is_connected: isConnected, trouble, heard } = events;
  return [isConnected ? make('p', {}, 'Polled at once when ', name(url), ` tells of something: ${heard} times so far.`)
    : make('p', { class: 'warn' }, 'Polled in turn only: ', name(url), ` is not heard (${plain(trouble ?? 'not connected yet', TEXT_CHARS_MAX)}).`)];
}
