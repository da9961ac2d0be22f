// @ts-check
// Letting a browser in: by a link that is good once, or by a token.

import { raw, Refused } from './ask.js';
import { fill, make } from './dom.js';

/** Trades the link that this page was opened with, if any; what is wrong with it. */
export async function followLink() {
  const [, secret, to] = /^#login=([0-9a-f]+)(?:&to=([\w/]+))?$/.exec(location.hash) ?? [];
  if (!secret) return null;
  // It stands in no history and no bookmark.
  history.replaceState(null, '', to ? `/#${to}` : '/');
  try {
    await raw('POST', '/v1/login', { body: { secret } });
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/**
 * Asks for a token.
 * @param {string} why
 * @param {() => void} done
 */
export function ask(why, done) {
  const error = make('p', { class: 'error', role: 'alert' });
  const token = /** @type {HTMLInputElement} */ (make('input', {
    type: 'password', autocomplete: 'off', required: true, id: 'token', spellcheck: 'false',
  }));
  const form = make('form', {
    class: 'login',
    onsubmit: async (/** @type {Event} */ event) => {
      event.preventDefault();
      try {
        await raw('POST', '/v1/logins/page', { token: token.value.trim() });
        token.value = '';
        done();
      } catch (failure) {
        fill(error, failure instanceof Refused ? failure.message : String(failure));
      }
    },
  }, make('label', { for: 'token' }, 'Token'), token, make('button', { type: 'submit' }, 'Log in'), error);
  return make('div', {},
    make('h1', {}, 'Log in'),
    make('section', {},
      make('p', { role: 'status' }, why),
      make('p', {}, 'With your key, a terminal gives you a link to this page:'),
      make('p', {}, make('code', {}, 'gleaner login')),
      make('p', {}, 'Or paste a token of this broker:'), form));
}
