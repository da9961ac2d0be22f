// @ts-check
// Which page is shown, and to whom.

import { get, raw, Refused } from './ask.js';
import { fill, make, name, plain, say } from './dom.js';
import { Farm } from './farm.js';
import { MyHosts } from './hosts.js';
import { Job } from './job.js';
import { Jobs, Rates } from './jobs.js';
import { Live } from './live.js';
import { ask, followLink } from './login.js';
import { People } from './people.js';
import { NewView, Viewer } from './viewer.js';
import { Views } from './views.js';

/**
 * @typedef {{live: Live, me: any, rates: Rates}} App
 * @typedef {{element: HTMLElement, change: () => void, close: () => void}} Page
 */

/** How often a page asks whether the broker can keep what it is told. */
const HEALTH_MS = 15_000;

/** @param {string} id */
const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

const content = part('content');
const app = /** @type {App} */ ({ live: new Live(), me: null, rates: new Rates() });
/** @type {Page | null} */
let page = null;
let isAwaited = false;
/** What is wrong with the broker, as it says. */
let ill = '';
/** @type {ReturnType<typeof setInterval> | undefined} */
let renewal;

/** @returns {{path: string, title: string}[]} */
function pages() {
  const all = [{ path: 'farm', title: 'Farm' }, { path: 'jobs', title: 'Jobs' }, { path: 'views', title: 'Views' }];
  if (app.me.owner) all.push({ path: 'hosts', title: 'My hosts' });
  if (app.me.is_admin) all.push({ path: 'people', title: 'People' });
  return all;
}

/** A part of an address, as it was before it became one. @param {string} part */
function plainPart(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** @param {string} path */
function open(path) {
  const job = /^jobs\/(\d{1,15})$/.exec(path)?.[1];
  if (job) return new Job(app, Number(job));
  const [, place, what, link] = /^(views?)\/([^/?]+)(?:\?s=([\w-]*))?$/.exec(path) ?? [];
  if (place === 'views') return new Viewer(app, plainPart(what), link ?? '');
  if (place === 'view' && app.me.submits) return new NewView(plainPart(what), link ?? '');
  if (path === 'views' || place) return new Views(app);
  if (path === 'people' && app.me.is_admin) return new People();
  if (path === 'hosts' && app.me.owner) return new MyHosts(app);
  if (path === 'farm') return new Farm(app);
  return new Jobs(app);
}

function show() {
  const own = app.me.role === 'submitter' ? 'jobs' : 'farm';
  const path = location.hash.replace(/^#/, '') || own;
  const now = path.split('/')[0].replace(/^view$/, 'views');
  fill(part('nav'), ...pages().map(({ path: to, title }) =>
    make('a', { href: `#${to}`, 'aria-current': to === now ? 'page' : undefined }, title)));
  page?.close();
  page = open(path);
  document.title = `${page.element.querySelector('h1')?.textContent ?? ''} · Gleaner`;
  fill(content, page.element);
  page.change();
}

function showLink() {
  const { isOnline } = app.live;
  const link = part('link');
  const trouble = ill && plain(ill, 300);
  say(link, isOnline ? trouble || 'live' : 'broker away, trying again …');
  link.className = isOnline && !trouble ? '' : 'off';
}

/** A broker whose disk is full still shows what was, and takes nothing new. */
async function examine() {
  if (!app.live.isOnline) return;
  try {
    await raw('GET', '/healthz');
    ill = '';
  } catch (error) {
    ill = error instanceof Refused && error.status === 503 ? error.message : '';
  }
  showLink();
}

function told() {
  if (isAwaited) return;
  isAwaited = true;
  requestAnimationFrame(() => {
    isAwaited = false;
    const { live } = app;
    showLink();
    for (const job of live.jobs.values()) app.rates.note(job);
    page?.change();
  });
}

/** @param {string} why */
function wantLogin(why) {
  app.live.end();
  clearInterval(renewal);
  page?.close();
  page = null;
  fill(part('nav'));
  fill(part('who'));
  say(part('link'), 'not logged in');
  document.title = 'Log in · Gleaner';
  fill(content, ask(why, () => begin()));
}

function showWho() {
  const { me } = app;
  const leave = make('button', {
    type: 'button',
    onclick: async () => {
      await raw('DELETE', '/v1/logins/page');
      wantLogin('You have logged out.');
    },
  }, 'Log out');
  fill(part('who'), me.owner ? name(`${me.owner}, ${me.role}`) : me.role, me.renew_s && leave);
}

async function begin() {
  const wrong = await followLink();
  try {
    app.me = await get('/v1/me');
  } catch (error) {
    if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
      wantLogin(wrong ?? error.message);
      return;
    }
    say(part('link'), 'broker away, trying again …');
    setTimeout(begin, 1_000);
    return;
  }
  clearInterval(renewal);
  if (app.me.renew_s) {
    // Where that fails, whoever asks next finds out why.
    renewal = setInterval(() => raw('POST', '/v1/logins/page').catch(() => {}), 1_000 * app.me.renew_s);
  }
  showWho();
  show();
  app.live.begin();
}

setInterval(examine, HEALTH_MS);
app.live.addEventListener('change', told);
app.live.addEventListener('refused', (event) => wantLogin(/** @type {CustomEvent} */ (event).detail));
window.addEventListener('hashchange', () => {
  if (location.hash.startsWith('#login=')) {
    begin();
  } else if (app.me && page) {
    show();
    content.focus();
  }
});
begin();
