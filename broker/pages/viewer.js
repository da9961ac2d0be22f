// @ts-check
// A view: its picture, and all that changes what is seen.

import { get, raw, Refused } from './ask.js';
import { ball, Camera } from './camera.js';
import { clipOf, Cuts, uncut } from './cuts.js';
import { fill, make, name, plain, say } from './dom.js';
import { Editor } from './editor.js';
import { Flight } from './flight.js';
import { HELP, moves } from './pointer.js';
import { decode, encode, known } from './saved.js';
import { Screen } from './screen.js';
import { flat, opacityUnit, preset, SHADING, wide } from './transfer.js';
import { canBeSeen, openView } from './views.js';

/** @typedef {import('./transfer.js').Look} Look */
/** @typedef {{status: any, look: Look, counts: number[], longest: number, screen: Screen}} Side */

/** What a picture of a dark page and of a light one has behind the volume. */
const BACKGROUNDS = { dark: [0.05, 0.06, 0.055], light: [0.95, 0.955, 0.95] };
/** How fast it turns by itself, in degrees a second. */
const SPIN = 30;
/** After so long without a key it is told where the camera is. */
const SAY_MS = 500;

/** What was seen of a view last is kept in this tab, for when the page is loaded anew. */
const keyOf = (/** @type {string} */ id) => `view ${id}`;

/** Opens another view of a dataset, to be seen as a link says. */
export class NewView {
  /**
   * @param {string} dataset
   * @param {string} link
   */
  constructor(dataset, link) {
    const note = make('p', { role: 'status' }, 'Opening a view …');
    this.element = make('div', {}, make('h1', {}, 'View of ', name(dataset)), make('section', {}, note));
    this.isOpen = true;
    openView(dataset).then((id) => {
      // It is not opened again when one comes back to this page.
      if (this.isOpen) location.replace(`#views/${encodeURIComponent(id)}${link ? `?s=${link}` : ''}`);
    }, (error) => say(note, error.message));
  }

  change() {}

  close() {
    this.isOpen = false;
  }
}

export class Viewer {
  /**
   * @param {import('./app.js').App} app
   * @param {string} id
   * @param {string} link the state that the address carries
   */
  constructor(app, id, link) {
    this.id = id;
    this.link = link;
    this.saved = link ? decode(link) : null;
    this.isOpen = true;
    /** @type {Side[]} */
    this.sides = [];
    this.cut = uncut();
    this.chosen = 0;
    this.spun = 0;
    this.theme = matchMedia('(prefers-color-scheme: dark)');
    this.onTheme = () => this.changed();
    this.theme.addEventListener('change', this.onTheme);
    this.title = make('h1', {}, 'View');
    this.note = make('div', { role: 'status' });
    this.body = make('div');
    this.element = make('div', { class: 'viewer' }, this.title, this.note, this.body);
    if (link && !this.saved) fill(this.note, make('p', { class: 'error' }, 'The link says nothing that can be shown: this is the view as it was.'));
    this.begin();
  }

  change() {}

  close() {
    this.isOpen = false;
    this.theme.removeEventListener('change', this.onTheme);
    this.cuts?.close();
    cancelAnimationFrame(this.spun);
    clearTimeout(this.saying);
    for (const { screen } of this.sides) screen.close();
    // The other one was opened by this page, for this page.
    if (this.sides.length > 1) this.dropSecond();
  }

  async begin() {
    try {
      const status = await get(`/v1/views/${encodeURIComponent(this.id)}`);
      if (this.isOpen) this.build(status);
    } catch (error) {
      const isGone = error instanceof Refused && error.status === 404;
      if (isGone) this.ended(this.saved?.dataset, error.message);
      else fill(this.note, make('p', { class: 'error' }, error instanceof Error ? error.message : String(error)));
    }
  }

  /**
   * @param {string | undefined} dataset
   * @param {string} why
   */
  async ended(dataset, why) {
    const link = this.sides.length > 0 ? this.saves() : this.saved && this.link;
    const to = dataset && `#view/${encodeURIComponent(dataset)}${link ? `?s=${link}` : ''}`;
    fill(this.note, make('p', {}, `This view has ended: ${plain(why, 500)}. `,
      to && make('a', { href: to }, 'Open the dataset anew'), to && ', or see ', make('a', { href: '#views' }, to ? 'all views' : 'See all views')));
    if (this.sides.length === 0) return;
    // It may only be looked at elsewhere: then it can be looked at here again.
    const isThere = await get(`/v1/views/${encodeURIComponent(this.id)}`).then(() => true, () => false);
    if (!isThere || !this.isOpen) return;
    fill(this.note, make('p', {}, `${plain(why, 500)}. `,
      make('button', { type: 'button', onclick: () => window.dispatchEvent(new Event('hashchange')) }, 'Look at it here')));
  }

  /** @param {any} status */
  build(status) {
    const { dataset, range } = status;
    fill(this.title, 'View of ', name(dataset));
    document.title = `View of ${plain(dataset)} · Gleaner`;
    const { longest } = ball(status);
    const kept = sessionStorage.getItem(keyOf(this.id));
    const saved = this.saved ?? (kept ? decode(kept) : null) ?? known(status, longest);
    this.camera = new Camera(status);
    this.cut = saved?.cut ?? uncut();
    this.cut.step = Math.min(this.cut.step, status.steps - 1);
    if (saved) this.camera.take(saved.camera);
    this.isFresh = !saved;
    this.help = make('p', { class: 'soft', id: 'view-help' }, HELP);
    this.spoken = make('p', { class: 'hidden', role: 'status' });
    this.stage = make('div', { class: 'screens' });
    this.editor = new Editor({ changed: () => this.changed() });
    this.cuts = new Cuts(status, this.cut, () => this.changed());
    this.flight = new Flight({
      dataset, camera: this.camera, moved: () => this.changed(),
      looks: () => {
        const { transfer, opacity_unit, shading } = this.stateOf(this.sides[0]);
        return { transfer, opacity_unit, shading, size: this.sides[0].screen.pixels() };
      },
    });
    const section = (/** @type {string} */ id, /** @type {string} */ title, /** @type {HTMLElement} */ content) =>
      make('section', { 'aria-labelledby': id }, make('h2', { id }, title), content);
    this.edited = make('div', { class: 'tools', hidden: true });
    fill(this.body, this.bar(), this.stage, this.help, this.spoken,
      make('div', { class: 'beside' },
        section('look', 'What values look like', make('div', {}, this.edited, this.editor.element)),
        make('div', {},
          section('cut', status.steps > 1 ? 'What part, and when' : 'What part', this.cuts.element),
          section('flight', 'Path of the camera', this.flight.element))));
    this.put(status, saved?.look ?? preset('usual', range));
    this.choose(0);
  }

  /** What stands over the picture. */
  bar() {
    const camera = /** @type {Camera} */ (this.camera);
    const button = (/** @type {string} */ title, /** @type {() => void} */ act, more = {}) =>
      make('button', {
        type: 'button', ...more,
        onclick: () => {
          act();
          showUp();
          this.changed();
        },
      }, title);
    const full = /** @type {HTMLInputElement} */ (make('input', {
      type: 'checkbox',
      onchange: () => {
        for (const { screen } of this.sides) screen.isFull = full.checked;
        this.changed();
      },
    }));
    const ups = [['y', 0, 1, 0], ['z', 0, 0, 1], ['x', 1, 0, 0], ['−y', 0, -1, 0], ['−z', 0, 0, -1], ['−x', -1, 0, 0]];
    const up = /** @type {HTMLSelectElement} */ (make('select', {
      onchange: () => {
        camera.setUp(/** @type {import('./camera.js').Vector} */ (up.value.split(' ').map(Number)));
        this.changed();
      },
    }, ...ups.map(([title, ...axis]) => make('option', { value: axis.join(' ') }, String(title)))));
    const showUp = () => { up.value = camera.up.map((part) => part + 0).join(' '); };
    showUp();
    const isCalm = matchMedia('(prefers-reduced-motion: reduce)').matches;
    this.spinner = isCalm ? null : make('button', { type: 'button', 'aria-pressed': 'false', onclick: () => this.spin() }, 'Spin');
    this.second = make('span', { class: 'tools' });
    this.offerSecond();
    return make('div', { class: 'tools' },
      button('Reset', () => camera.reset()),
      make('span', { role: 'group', 'aria-label': 'Look along an axis' }, 'Look along',
        ...['x', 'y', 'z'].map((axis, of) => button(axis, () => camera.along(of), { 'aria-label': `Look along ${axis}` }))),
      make('label', {}, 'Upwards', up), make('label', {}, full, 'Full size'), this.spinner,
      make('button', { type: 'button', onclick: () => this.copies() }, 'Copy link'), this.second);
  }

  /**
   * Another picture on the page.
   * @param {any} status
   * @param {Look} look
   */
  put(status, look) {
    const camera = /** @type {Camera} */ (this.camera);
    const screen = new Screen({
      status,
      label: `View of ${plain(status.dataset)}`,
      help: 'view-help',
      state: () => this.stateOf(side),
      ended: (why) => (status.view === this.id ? this.ended(status.dataset, why) : this.secondEnded(why)),
    });
    /** @type {Side} */
    const side = { status, look, counts: [], longest: ball(status).longest, screen };
    moves(screen.box, camera, { moved: () => this.changed(), byKey: () => this.speaks() });
    this.sides.push(side);
    this.stage?.append(screen.element);
    this.stage?.classList.toggle('two', this.sides.length > 1);
    if (this.isFresh && this.sides.length === 1) {
      camera.aspect = screen.box.clientWidth / Math.max(screen.box.clientHeight, 1) || camera.aspect;
      camera.reset();
    }
    screen.begin();
    get(`/v1/views/${encodeURIComponent(status.view)}/histogram`).then(({ counts }) => {
      side.counts = counts;
      if (this.sides[this.chosen] === side) this.choose(this.chosen);
    }, () => {}); // It is not known yet: the editor shows none.
  }

  /** @param {Side} side */
  stateOf({ status, look, longest }) {
    const camera = /** @type {Camera} */ (this.camera);
    const isFirst = status.view === this.id;
    const isSlice = this.cut.slice.axis >= 0;
    return {
      camera: isFirst ? camera.told() : camera.toldFor(status),
      transfer: isSlice ? flat(status.range) : look.points,
      opacity_unit: opacityUnit(longest, look.density),
      shading: look.isShaded && !isSlice ? SHADING : null,
      clip: clipOf(this.cut, status.size),
      background: BACKGROUNDS[this.theme.matches ? 'dark' : 'light'],
      step: Math.min(this.cut.step, status.steps - 1),
    };
  }

  changed() {
    for (const { screen } of this.sides) screen.changed();
    clearTimeout(this.keeping);
    this.keeping = setTimeout(() => {
      if (this.sides.length > 0) sessionStorage.setItem(keyOf(this.id), this.saves());
    }, SAY_MS);
  }

  saves() {
    const [{ status, look }] = this.sides;
    return encode({ dataset: status.dataset, camera: /** @type {Camera} */ (this.camera).told(), look, cut: this.cut });
  }

  speaks() {
    clearTimeout(this.saying);
    this.saying = setTimeout(() => {
      if (this.spoken && this.camera) say(this.spoken, this.camera.words());
    }, SAY_MS);
  }

  async copies() {
    const link = `#views/${encodeURIComponent(this.id)}?s=${this.saves()}`;
    history.replaceState(null, '', link);
    let done = 'The link is in the address bar.';
    try {
      await navigator.clipboard.writeText(location.href);
      done = 'The link is copied.';
    } catch {
      // Browsers let no page of a plain address at the clipboard.
    }
    fill(this.note, make('p', {}, `${done} It opens this view for you, as you see it now. `,
      make('a', { href: `#view/${encodeURIComponent(this.sides[0].status.dataset)}?s=${this.saves()}` }, 'Another view as this one')));
  }

  spin() {
    if (this.spun) {
      cancelAnimationFrame(this.spun);
      this.spun = 0;
    } else {
      let before = performance.now();
      const turn = (/** @type {number} */ now) => {
        this.camera?.turn(((now - before) / 1e3) * SPIN, 0);
        before = now;
        this.changed();
        this.spun = requestAnimationFrame(turn);
      };
      this.spun = requestAnimationFrame(turn);
    }
    this.spinner?.setAttribute('aria-pressed', String(this.spun !== 0));
  }

  /** @param {number} index */
  choose(index) {
    this.chosen = index;
    const { look, status, counts } = this.sides[index];
    this.editor?.show(look, wide(status.range), counts);
    if (!this.edited) return;
    this.edited.hidden = this.sides.length < 2;
    fill(this.edited, 'Of', ...this.sides.map((side, at) => make('button', {
      type: 'button', 'aria-pressed': String(at === index), onclick: () => this.choose(at),
    }, name(side.status.dataset), at === 0 ? ', the first' : ', the second')));
  }

  /** Another dataset beside this one, under the same camera. */
  async offerSecond() {
    const place = /** @type {HTMLElement} */ (this.second);
    if (this.sides.length > 1) {
      fill(place, make('button', {
        type: 'button',
        onclick: () => {
          this.dropSecond();
          this.offerSecond();
        },
      }, 'One picture only'));
      return;
    }
    let datasets;
    try {
      datasets = (await get('/v1/datasets')).filter(canBeSeen);
    } catch {
      return;
    }
    const choice = /** @type {HTMLSelectElement} */ (make('select', {},
      ...datasets.map((/** @type {any} */ of) => make('option', { value: of.name }, plain(of.name)))));
    fill(place, make('label', {}, 'Compare with', choice), make('button', {
      type: 'button', onclick: () => this.addSecond(choice.value),
    }, 'Side by side'));
  }

  /** @param {string} dataset */
  async addSecond(dataset) {
    try {
      const id = await openView(dataset, this.sides[0].status.kernel);
      const status = await get(`/v1/views/${encodeURIComponent(id)}`);
      if (!this.isOpen || this.sides.length > 1) {
        await raw('DELETE', `/v1/views/${encodeURIComponent(id)}`);
        return;
      }
      this.put(status, preset('usual', status.range));
      this.choose(1);
      this.offerSecond();
    } catch (error) {
      fill(this.note, make('p', { class: 'error' }, error instanceof Error ? error.message : String(error)));
    }
  }

  /** @param {string} why */
  secondEnded(why) {
    if (!this.isOpen || this.sides.length < 2) return;
    this.dropSecond();
    this.offerSecond();
    fill(this.note, make('p', {}, `The other view has ended: ${plain(why, 500)}.`));
  }

  dropSecond() {
    const [side] = this.sides.splice(1, 1);
    side.screen.close();
    side.screen.element.remove();
    this.stage?.classList.remove('two');
    if (this.isOpen) this.choose(0);
    // Where that fails it ends by itself, once nobody has looked for a while.
    raw('DELETE', `/v1/views/${encodeURIComponent(side.status.view)}`).catch(() => {});
  }
}
