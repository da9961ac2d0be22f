// @ts-check
// Long lists, of which only what is seen is made.

import { fill, make } from './dom.js';

/** Rows above and below what is seen that are there as well. */
const BEYOND = 8;

/**
 * A table of which only the rows in sight are made.
 * @template T
 */
export class LongTable {
  /**
   * @param {{label: string, columns: {title: string, class?: string, cell: (row: T) => Node | string | number | null}[],
   *   key: (row: T) => string | number, height?: number, short?: boolean}} what
   */
  constructor(what) {
    this.what = what;
    this.height = what.height ?? 35;
    /** @type {T[]} */
    this.rows = [];
    /** @type {Map<string | number, {row: T, element: HTMLElement}>} */
    this.made = new Map();
    this.above = make('td', { class: 'spacer', colspan: what.columns.length });
    this.below = make('td', { class: 'spacer', colspan: what.columns.length });
    const head = what.columns.map((column) =>
      make('th', { scope: 'col', class: column.class }, column.title));
    this.body = make('tbody');
    this.caption = make('caption', { class: 'hidden' }, what.label);
    this.table = make('table', {}, this.caption, make('thead', {}, make('tr', {}, ...head)), this.body);
    const kind = what.short ? 'scroll short' : 'scroll';
    this.element = make('div', { class: kind, tabindex: 0, role: 'group', 'aria-label': what.label },
      this.table);
    this.element.style.setProperty('--row', `${this.height}px`);
    this.element.addEventListener('scroll', () => this.later(), { passive: true });
    this.isAwaited = false;
  }

  /** @param {T[]} rows */
  show(rows) {
    this.rows = rows;
    this.table.setAttribute('aria-rowcount', String(rows.length + 1));
    this.draw();
  }

  later() {
    if (this.isAwaited) return;
    this.isAwaited = true;
    requestAnimationFrame(() => {
      this.isAwaited = false;
      this.draw();
    });
  }

  draw() {
    const seen = Math.ceil((this.element.clientHeight || 600) / this.height);
    const last = Math.max(0, this.rows.length - seen);
    const first = Math.min(last, Math.floor(this.element.scrollTop / this.height));
    const begin = Math.max(0, first - BEYOND);
    const end = Math.min(this.rows.length, first + seen + BEYOND);
    /** @type {Map<string | number, {row: T, element: HTMLElement}>} */
    const made = new Map();
    const elements = [];
    for (let at = begin; at < end; at += 1) {
      const row = this.rows[at];
      const key = this.what.key(row);
      let known = this.made.get(key);
      if (known?.row !== row) {
        const element = known?.element ?? make('tr');
        this.fillRow(element, row);
        known = { row, element };
      }
      known.element.setAttribute('aria-rowindex', String(at + 2));
      made.set(key, known);
      elements.push(known.element);
    }
    this.made = made;
    this.above.style.height = `${begin * this.height}px`;
    this.below.style.height = `${(this.rows.length - end) * this.height}px`;
    const wanted = [spacer(this.above, begin > 0), ...elements, spacer(this.below, end < this.rows.length)];
    arrange(this.body, wanted.filter((element) => element !== null));
  }

  /**
   * @param {HTMLElement} element
   * @param {T} row
   */
  fillRow(element, row) {
    const focused = element.contains(document.activeElement)
      ? [...element.querySelectorAll('a, button')].indexOf(/** @type {Element} */ (document.activeElement))
      : -1;
    const cells = this.what.columns.map((column, at) =>
      make(at === 0 ? 'th' : 'td', { class: column.class, scope: at === 0 ? 'row' : undefined },
        column.cell(row)));
    fill(element, ...cells);
    if (focused >= 0) {
      /** @type {HTMLElement | undefined} */ ([...element.querySelectorAll('a, button')][focused])?.focus();
    }
  }
}

/**
 * @param {HTMLElement} cell
 * @param {boolean} isThere
 */
function spacer(cell, isThere) {
  if (!isThere) return null;
  return cell.parentElement ?? make('tr', { 'aria-hidden': 'true' }, cell);
}

/**
 * Has an element these children in this order, and moves none that is in its place.
 * @param {Element} parent
 * @param {Element[]} wanted
 */
export function arrange(parent, wanted) {
  const keep = new Set(wanted);
  for (const child of [...parent.children]) {
    if (!keep.has(child)) child.remove();
  }
  wanted.forEach((element, at) => {
    const there = parent.children[at];
    if (there !== element) parent.insertBefore(element, there ?? null);
  });
}

/**
 * Tiles side by side, of which only those in sight are made.
 * @template T
 */
export class Tiles {
  /**
   * @param {{label: string, width: number, height: number, key: (item: T) => string,
   *   tile: (item: T) => HTMLElement}} what
   */
  constructor(what) {
    this.what = what;
    /** @type {T[]} */
    this.items = [];
    /** @type {Map<string, {item: T, element: HTMLElement}>} */
    this.made = new Map();
    this.list = make('ul', { class: 'tiles', 'aria-label': what.label });
    this.element = make('div', { class: 'scroll', tabindex: 0, role: 'group', 'aria-label': what.label },
      this.list);
    this.isAwaited = false;
    this.element.addEventListener('scroll', () => this.later(), { passive: true });
    new ResizeObserver(() => this.later()).observe(this.element);
  }

  /** @param {T[]} items */
  show(items) {
    this.items = items;
    this.draw();
  }

  later() {
    if (this.isAwaited) return;
    this.isAwaited = true;
    requestAnimationFrame(() => {
      this.isAwaited = false;
      this.draw();
    });
  }

  draw() {
    const gap = 6;
    const { width, height, key, tile } = this.what;
    const columns = Math.max(1, Math.floor((this.element.clientWidth + gap) / (width + gap)));
    const pitch = height + gap;
    const lines = Math.ceil(this.items.length / columns);
    const seen = Math.ceil((this.element.clientHeight || 500) / pitch);
    const first = Math.min(Math.max(0, lines - seen), Math.floor(this.element.scrollTop / pitch));
    const begin = Math.max(0, first - 2);
    const end = Math.min(lines, first + seen + 2);
    this.list.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    this.list.style.paddingTop = `${begin * pitch}px`;
    this.list.style.paddingBottom = `${Math.max(0, lines - end) * pitch}px`;
    /** @type {Map<string, {item: T, element: HTMLElement}>} */
    const made = new Map();
    const elements = [];
    for (let at = begin * columns; at < Math.min(this.items.length, end * columns); at += 1) {
      const item = this.items[at];
      const of = key(item);
      let known = this.made.get(of);
      if (known?.item !== item) {
        const element = known?.element ?? make('li');
        const had = element.contains(document.activeElement);
        const inner = tile(item);
        fill(element, inner);
        if (had) inner.focus();
        known = { item, element };
      }
      known.element.setAttribute('aria-posinset', String(at + 1));
      known.element.setAttribute('aria-setsize', String(this.items.length));
      made.set(of, known);
      elements.push(known.element);
    }
    this.made = made;
    arrange(this.list, elements);
  }
}
