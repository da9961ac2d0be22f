// @ts-check
// The page of one host: what runs on it and why, and its owner's word. `gleaner agent page` serves it.

import { get, post, Refused } from './ask.js';
import { amount, duration, fill, make, name, plain, say } from './dom.js';
import { followLink } from './login.js';

/** How often the host is looked at. */
const LOOK_MS = 1_000;
/** An hour. */
const HOUR_MS = 3_600_000;
/** When tomorrow begins, for whoever pauses until then. */
const MORNING_H = 8;

/** @param {string} id */
const part = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** Milliseconds until tomorrow morning. @param {Date} [now] */
export function untilTomorrow(now = new Date()) {
  const morning = new Date(now.getFullYear(), now.getMonth(), now.getDate() + 1, MORNING_H);
  return morning.getTime() - now.getTime();
}

/**
 * What the host does, in a sign and words.
 * @param {any} standing
 */
function stateOf(standing) {
  const alarm = standing.reasons.some((/** @type {any} */ reason) => reason.kind === 'alarm');
  if (standing.stopped_by) return '■ stopped';
  if (alarm) return '▲ alarm';
  if (standing.paused) return '◇ paused';
  if (standing.finishing) return standing.running + standing.frozen > 0 ? '◔ finishing' : '◇ finished';
  if (standing.running > 0) return '● harvested';
  if (!standing.connected) return '✕ without a broker';
  if (standing.bookings.length > 0 && standing.slots === 0) return '▣ rendering';
  return standing.slots > 0 ? '○ idle' : '◇ given way';
}

class OneHost {
  constructor() {
    this.title = make('h1', {}, 'This host');
    this.facts = make('dl', { class: 'facts' });
    this.reasons = make('ul', { class: 'reasons' });
    this.because = make('div', {}, make('h3', {}, 'Why not more'), this.reasons);
    this.said = make('p', { role: 'status' });
    this.error = make('p', { class: 'error', role: 'alert' });
    this.buttons = {
      hour: this.button('Pause for an hour', '/v1/host/pause', () => ({ for_ms: HOUR_MS })),
      tomorrow: this.button(`Pause until tomorrow, ${MORNING_H}:00`, '/v1/host/pause', () => ({ for_ms: untilTomorrow() })),
      finish: this.button('Finish, then stop', '/v1/host/finish', () => undefined),
      resume: this.button('Go on', '/v1/host/resume', () => undefined),
    };
    this.tasks = make('tbody');
    this.wishes = make('tbody');
    this.counted = make('dl', { class: 'figures' });
    /** What is shown, so that nothing is drawn anew that has not changed. @type {Map<Element, string>} */
    this.shown = new Map();
    this.element = make('div', {}, this.title,
      make('div', { class: 'beside' },
        make('section', { 'aria-labelledby': 'stands' }, make('h2', { id: 'stands' }, 'What it does'), this.facts, this.because),
        make('section', { 'aria-labelledby': 'say' }, make('h2', { id: 'say' }, 'Your say'),
          make('p', { class: 'soft' }, 'What runs is frozen within milliseconds. What is frozen for longer than you keep it is given back to the broker.'),
          make('div', { class: 'tools' }, ...Object.values(this.buttons)), this.said, this.error)),
      make('section', { 'aria-labelledby': 'runs' }, make('h2', { id: 'runs' }, 'What runs here'),
        make('div', { class: 'scroll short', tabindex: 0, role: 'group', 'aria-label': 'What runs here' },
          table(['slot', 'what', 'state', 'for', 'process group'], this.tasks))),
      make('section', { 'aria-labelledby': 'counted' }, make('h2', { id: 'counted' }, 'What was counted since the agent\'s start'), this.counted,
        make('p', { class: 'soft' }, 'What all your hosts have earned, the broker knows: ', make('code', {}, 'gleaner usage --mine'))),
      make('section', { 'aria-labelledby': 'wishes' }, make('h2', { id: 'wishes' }, 'What you have wished'),
        make('p', { class: 'soft' }, 'Change it in the file of ', make('code', {}, 'gleaner agent --config'), ', and start the agent anew.'),
        make('div', { class: 'scroll wishes', tabindex: 0, role: 'group', 'aria-label': 'What you have wished' },
          table(['wish', 'value', 'said by', 'what it means'], this.wishes))));
  }

  /**
   * @param {string} words
   * @param {string} path
   * @param {() => unknown} body
   */
  button(words, path, body) {
    return make('button', { type: 'button', onclick: () => this.tell(words, path, body()) }, words);
  }

  /**
   * @param {string} words
   * @param {string} path
   * @param {unknown} body
   */
  async tell(words, path, body) {
    say(this.error, '');
    say(this.said, '');
    try {
      this.show(await post(path, body));
      say(this.said, `${words}: done.`);
    } catch (failure) {
      say(this.error, failure instanceof Error ? plain(failure.message, 1_000) : String(failure));
    }
  }

  /**
   * Has an element these children, where they are others than it has.
   * @param {Element} element
   * @param {unknown} of
   * @param {() => (import('./dom.js').Child)[]} children
   */
  draw(element, of, children) {
    const key = JSON.stringify(of);
    if (this.shown.get(element) === key) return;
    this.shown.set(element, key);
    fill(element, ...children());
  }

  /** @param {any} told */
  show({ standing, tasks, more, wishes }) {
    this.draw(this.title, standing.host, () => [name(standing.host)]);
    document.title = `${plain(standing.host)} · Gleaner`;
    const booked = standing.bookings.map((/** @type {any} */ of) => `${of.booking}: ${of.resources.cores ? `${of.resources.cores} cores` : 'all of it'}`);
    const broker = wishes.find((/** @type {any} */ wish) => wish.key === 'broker')?.value.replaceAll('"', '');
    /** @type {[string, string][]} */
    const facts = [
      ['state', stateOf(standing)],
      ['replicas', `${standing.running} run, ${standing.frozen} stand still; ${standing.slots} cores are given`],
      ['cores', `${standing.allowed} of ${standing.cores} by your wishes now`],
      ['link', `${standing.connected ? 'linked to' : 'without'} its broker${broker ? `, ${broker}` : ''}`],
      ['isolated by', standing.isolation],
      ['commands', standing.commands ?? ''],
      ['GPU', standing.gpu?.device?.name ?? standing.gpu?.trouble ?? ''],
      ['booked by renders', booked.join(', ')],
      ...standing.watched.map((/** @type {[string, string]} */ [what, seen]) => [`sees ${what}`, seen]),
    ];
    const known = facts.filter(([, value]) => value !== '');
    this.draw(this.facts, known, () => known.flatMap(([title, value]) =>
      [make('dt', {}, plain(title)), make('dd', {}, name(plain(value, 2_000)))]));
    const reasons = [...standing.reasons.map((/** @type {any} */ reason) => reason.text), ...standing.missing_abilities];
    this.because.hidden = reasons.length === 0;
    this.draw(this.reasons, reasons, () => reasons.map((text) => make('li', {}, name(plain(text, 2_000)))));
    this.buttons.resume.toggleAttribute('disabled', !standing.paused && !standing.finishing);
    this.buttons.finish.toggleAttribute('disabled', standing.finishing);
    /** @type {any[][]} */
    const lines = tasks.map((/** @type {any} */ task) => [task.slot, task.what,
      task.frozen ? 'stands still' : task.share_percent ? `runs, ${task.share_percent} % of a core` : 'runs',
      duration(task.age_ms / 1e3), task.pgid]);
    this.draw(this.tasks, [lines, more], () => [
      ...lines.map(([slot, what, ...cells]) => make('tr', {}, make('th', { scope: 'row' }, slot), make('td', {}, name(what)),
        ...cells.map((cell) => make('td', {}, cell)))),
      lines.length === 0 && make('tr', {}, make('td', { colspan: 5 }, 'nothing')),
      more > 0 && make('tr', {}, make('td', { colspan: 5 }, `and ${more} more`))]);
    const { outputs, failed, given_back: givenBack, refused, cpu_ms: cpuMs } = standing.counted;
    /** @type {[string, string][]} */
    const counts = [['outputs', amount(outputs)], ['failed', amount(failed)], ['given back', amount(givenBack)],
      ['could not run here', amount(refused)], ['CPU time', cpuMs > 0 ? duration(cpuMs / 1e3) : '0 s']];
    this.draw(this.counted, counts, () => counts.map(([title, value]) => make('div', {}, make('dt', {}, title), make('dd', {}, value))));
    const said = [...wishes].sort((one, other) => Number(one.origin === 'default') - Number(other.origin === 'default'));
    this.draw(this.wishes, said, () => said.map((/** @type {any} */ wish) => make('tr', {},
      make('th', { scope: 'row' }, plain(wish.key)), make('td', {}, make('code', {}, plain(wish.value, 400))),
      make('td', {}, name(wish.origin)), make('td', { class: 'means' }, plain(wish.means, 1_000)))));
  }
}

/**
 * @param {string[]} titles
 * @param {HTMLElement} rows
 */
function table(titles, rows) {
  return make('table', {}, make('thead', {}, make('tr', {}, ...titles.map((title) => make('th', { scope: 'col' }, title)))), rows);
}

const host = new OneHost();

/** What is wrong, where somebody has to do something about it. @param {string} why */
function refuse(why) {
  say(part('link'), 'not let in');
  fill(part('content'), make('div', {}, make('h1', {}, 'This host'),
    make('section', {}, make('p', { role: 'status' }, plain(why, 1_000)),
      make('p', {}, 'A terminal on this host gives you a link that is good once: ', make('code', {}, 'gleaner agent page')))));
}

async function look() {
  const link = part('link');
  try {
    host.show(await get('/v1/host'));
    if (!host.element.isConnected) fill(part('content'), host.element);
    say(link, 'live');
    link.className = '';
  } catch (failure) {
    if (failure instanceof Refused && (failure.status === 401 || failure.status === 403)) {
      refuse(wrong ?? failure.message);
      return;
    }
    const isAway = failure instanceof Refused && failure.status === 0;
    say(link, isAway ? '`gleaner agent page` has ended: start it anew' : plain(failure instanceof Error ? failure.message : failure, 300));
    link.className = 'off';
  }
  setTimeout(look, LOOK_MS);
}

const wrong = await followLink();
look();
