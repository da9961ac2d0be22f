// @ts-check
// What the replicas of a workunit have printed, as far as it is kept.

import { get } from './ask.js';
import { fill, make, name, plain, size } from './dom.js';

/** Longest text that is shown, in characters: what the broker tells of one has no more. */
const TEXT_CHARS_MAX = 65_536;

export class Log {
  /** @param {number} job */
  constructor(job) {
    this.job = job;
    this.place = make('div', { role: 'status' });
    const index = make('input', { type: 'number', min: 0, size: 8, value: 0 });
    const form = make('form', {
      class: 'tools',
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        this.show(Number(/** @type {HTMLInputElement} */ (index).value));
      },
    }, make('label', {}, 'Log of workunit', index), make('button', { type: 'submit' }, 'Show log'));
    this.element = make('section', { 'aria-labelledby': 'log' }, make('h2', { id: 'log' }, 'Logs'), form, this.place);
  }

  /** @param {number} index */
  async show(index) {
    try {
      const { reason, failed, outputs } = await get(`/v1/jobs/${this.job}/log/${index}`);
      const parts = [
        reason && part(`${this.job}/${index} was given up`, [textOf(reason, `Why ${index} was given up`)]),
        ...failed.map((/** @type {any} */ of, /** @type {number} */ at) => part(make('span', {}, name(of.host), ` ${of.cause.replace('_', ' ')}`),
          [textOf(of.text, `Attempt ${at + 1} without an output`)])),
        ...outputs.map((/** @type {any} */ of, /** @type {number} */ at) => outputOf(of, at, outputs.length)),
      ].filter(Boolean);
      fill(this.place, ...(parts.length > 0 ? parts : [make('p', { class: 'soft' }, `Nothing of ${this.job}/${index} is kept, or none of its replicas has ended.`)]));
      // What was printed last is looked at first.
      for (const text of this.place.querySelectorAll('pre')) text.scrollTop = text.scrollHeight;
    } catch (error) {
      fill(this.place, make('p', { class: 'error' }, plain(error instanceof Error ? error.message : error, 1_000)));
    }
  }
}

/**
 * @param {any} output
 * @param {number} at
 * @param {number} count
 */
function outputOf({ hosts, printed }, at, count) {
  const which = count > 1 ? `Output ${at + 1}` : 'The output';
  const where = hosts.flatMap((/** @type {string} */ host, /** @type {number} */ number) => [number > 0 ? ', ' : ' of ', name(host)]);
  const texts = printed.flatMap((/** @type {any} */ of) => [
    make('p', { class: 'soft' }, `${plain(of.name)}, ${size(of.bytes)}${of.from > 0 ? `: the last ${size(of.bytes - of.from)}` : ''}`),
    textOf(of.text, `${plain(of.name)} of output ${at + 1}`),
  ]);
  return part(make('span', {}, which, ...where), texts.length > 0 ? texts : [make('p', { class: 'soft' }, 'It has printed nothing that is kept.')]);
}

/**
 * @param {Node | string} title
 * @param {Node[]} content
 */
function part(title, content) {
  return make('div', { class: 'result' }, make('h3', {}, title), ...content);
}

/**
 * @param {string} text
 * @param {string} label
 */
function textOf(text, label) {
  return make('pre', { tabindex: 0, role: 'region', 'aria-label': label }, text === '' ? '(empty)' : plain(text, TEXT_CHARS_MAX));
}
