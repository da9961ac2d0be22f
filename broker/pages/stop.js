// @ts-check
// The red button: stops the harvest of all hosts of this broker, and lets it go on.

import { post } from './ask.js';
import { confirm } from './dialog.js';
import { fill, make, name, plain, time } from './dom.js';

export class RedButton {
  /** @param {import('./app.js').App} app */
  constructor(app) {
    this.live = app.live;
    this.mayStop = app.me.stops;
    this.note = make('p', { role: 'status' });
    this.tools = make('div', { class: 'tools' });
    this.done = make('div', { class: 'tools', role: 'status' });
    this.element = make('div', {}, this.note, this.tools, this.done);
    this.shown = '';
  }

  /**
   * Shows who has stopped it.
   * @param {string} closed What a host that was stopped says.
   */
  change(closed) {
    const { stop } = this.live;
    const key = JSON.stringify([stop, stop ? '' : closed]);
    if (key === this.shown) return;
    this.shown = key;
    this.note.className = stop ? 'bad' : 'soft';
    if (stop) {
      fill(this.note, '■ Harvest is stopped on all hosts since ', time(stop.at_ms), ', by ', name(stop.by), ': ', name(plain(stop.reason, 300)));
    } else {
      fill(this.note, plain(closed, 1_000), closed && ' This was at the farm\'s monitor: `gleaner farm resume` lifts it.');
    }
    fill(this.tools, this.mayStop && (stop
      ? make('button', { type: 'button', onclick: () => this.askResume() }, 'Resume harvest …')
      : make('button', { type: 'button', class: 'danger', onclick: () => this.askStop() }, 'Stop all harvest …')));
  }

  /** @param {string} [before] The reason that it was stopped for before. */
  askStop(before = '') {
    const reason = /** @type {HTMLInputElement} */ (make('input', { type: 'text', size: 36, maxlength: 200, value: before, id: 'reason' }));
    confirm({
      title: 'Stop all harvest?',
      text: make('span', {}, 'What runs on any host of this broker ends at once and begins anew later; nothing new begins until somebody resumes it. ',
        make('label', { class: 'why' }, 'Why? Everybody who waits is shown this. ', reason)),
      act: 'Stop all harvest',
      run: async () => {
        const told = await post('/v1/farm/stop', { reason: reason.value });
        this.tell('Harvest was stopped.', told.trouble, () => this.askResume());
      },
    });
  }

  askResume() {
    confirm({
      title: 'Resume harvest?',
      text: 'All hosts give again what renders and their owners leave.',
      act: 'Resume harvest',
      run: async () => {
        const told = await post('/v1/farm/resume');
        this.tell('Harvest goes on.', told.trouble, () => this.askStop(told.lifted?.reason ?? ''));
      },
    });
  }

  /**
   * What was done, and how to take it back.
   * @param {string} words
   * @param {string | null} trouble
   * @param {() => void} undo
   */
  tell(words, trouble, undo) {
    fill(this.done, make('span', {}, words), trouble && make('span', { class: 'error' },
      plain(`It may be forgotten when the broker restarts: ${trouble}`, 500)), make('button', { type: 'button', onclick: undo }, 'Undo …'));
  }
}
