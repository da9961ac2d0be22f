// @ts-check
// What harvest costs the farm's renders, as its monitor has measured it.

import { every } from './ask.js';
import { amount, fill, make, name, plain, time } from './dom.js';

const REFRESH_MS = 60_000;

/** @param {number} value */
const signed = (value) => `${value > 0 ? '+' : ''}${amount(value)}`;

/**
 * What an interval says, in words.
 * @param {{low: number, high: number}} difference
 * @param {boolean} moreIsBetter
 */
export function verdictOf({ low, high }, moreIsBetter) {
  if (low <= 0 && high >= 0) return 'no difference that shows';
  return low > 0 === moreIsBetter ? 'harvest helps' : 'harvest costs';
}

export class Cost {
  constructor() {
    this.note = make('p', { class: 'soft' });
    this.rows = make('tbody');
    this.table = make('div', { class: 'scroll short', tabindex: 0, role: 'group', 'aria-label': 'What harvest costs renders', hidden: true },
      make('table', { class: 'cost' }, make('thead', {}, make('tr', {}, make('th', { scope: 'col' }, 'measure'),
        ...['days', 'harvested', 'held out', 'difference', '95 % interval'].map((title) => make('th', { scope: 'col', class: 'number' }, title)),
        make('th', { scope: 'col' }, 'so'))), this.rows));
    this.element = make('section', { 'aria-labelledby': 'cost' }, make('h2', { id: 'cost' }, 'What harvest costs renders'), this.note, this.table);
    this.close = every('/v1/farm/comparison', REFRESH_MS, ({ at_ms: atMs, comparison }) => this.show(atMs, comparison));
  }

  /**
   * @param {number | null} atMs
   * @param {any} comparison
   */
  show(atMs, comparison) {
    this.table.hidden = !comparison;
    if (!comparison) {
      fill(this.note, 'No monitor has measured it: see [comparison] in the monitor\'s configuration.');
      return;
    }
    const { held_out: heldOut, harvested, day, metrics } = comparison;
    fill(this.note, `${heldOut.length} hosts are held out of harvest on ${plain(day)}, ${harvested} are not; as of ${time(Number(atMs))}`);
    fill(this.rows, ...metrics.map((/** @type {any} */ of) => make('tr', {}, make('th', { scope: 'row' }, name(of.name)),
      ...[of.days, of.harvested ? amount(of.harvested.mean) : '', of.held_out ? amount(of.held_out.mean) : '',
        of.difference ? signed(of.difference.estimate) : '', of.difference ? `${signed(of.difference.low)} to ${signed(of.difference.high)}` : '']
        .map((cell) => make('td', { class: 'number' }, cell)),
      make('td', {}, of.difference ? verdictOf(of.difference, of.more_is_better) : 'too few days'))));
  }
}
