// @ts-check
// Asking the broker.

/** What the broker said where it did not do what it was asked. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {string} code
   * @param {string} error
   */
  constructor(status, code, error) {
    super(error);
    this.status = status;
    this.code = code;
  }
}

/**
 * @param {string} method
 * @param {string} path
 * @param {{body?: unknown, token?: string}} [more]
 * @returns {Promise<Response>}
 */
export async function raw(method, path, more = {}) {
  /** @type {Record<string, string>} */
  const headers = {};
  if (more.body !== undefined) headers['Content-Type'] = 'application/json';
  if (more.token) headers.Authorization = `Bearer ${more.token}`;
  const body = more.body === undefined ? undefined : JSON.stringify(more.body);
  let answer;
  try {
    answer = await fetch(path, { method, headers, body, cache: 'no-store' });
  } catch {
    throw new Refused(0, 'unreachable', 'the broker cannot be reached');
  }
  if (answer.ok) return answer;
  let told;
  try {
    told = await answer.json();
  } catch {
    told = { code: 'unknown', error: `the broker answered with ${answer.status}` };
  }
  throw new Refused(answer.status, String(told.code), String(told.error));
}

/**
 * @param {string} path
 * @returns {Promise<any>}
 */
export async function get(path) {
  return (await raw('GET', path)).json();
}

/**
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<any>}
 */
export async function post(path, body) {
  return (await raw('POST', path, { body })).json();
}

/**
 * @param {string} path
 * @returns {Promise<any>}
 */
export async function remove(path) {
  return (await raw('DELETE', path)).json();
}

/**
 * Asks for something now, and again and again. Where that fails, what was shown stays.
 * @param {string} path
 * @param {number} ms
 * @param {(answer: any) => void} show
 * @returns {() => void} ends it
 */
export function every(path, ms, show) {
  const ask = () => get(path).then(show).catch(() => {});
  ask();
  const timer = setInterval(ask, ms);
  return () => clearInterval(timer);
}
