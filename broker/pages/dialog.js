// @ts-check
// Questions that have to be answered before something is done.

import { fill, make } from './dom.js';

/**
 * Shows something in front of the page.
 * @param {string} title
 * @param {...(Node | string | null)} content
 */
export function tell(title, ...content) {
  const heading = make('h2', { id: 'dialog-title' }, title);
  const close = make('button', { type: 'button', onclick: () => dialog.close() }, 'Close');
  const dialog = /** @type {HTMLDialogElement} */ (make('dialog', { 'aria-labelledby': 'dialog-title' },
    heading, ...content, make('div', { class: 'tools' }, close)));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Asks whether something is to be done, and does it.
 * @param {{title: string, text: Node | string, act: string, run: () => Promise<void>}} what
 */
export function confirm(what) {
  const error = make('p', { class: 'error', role: 'alert' });
  const act = /** @type {HTMLButtonElement} */ (make('button', {
    type: 'button',
    class: 'danger',
    onclick: async () => {
      act.disabled = true;
      try {
        await what.run();
        dialog.close();
      } catch (failure) {
        fill(error, failure instanceof Error ? failure.message : String(failure));
        act.disabled = false;
      }
    },
  }, what.act));
  const dialog = tell(what.title, make('p', {}, what.text), error);
  dialog.querySelector('.tools')?.append(act);
}
