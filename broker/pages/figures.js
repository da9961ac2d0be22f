// @ts-check
// Figures of a view: how fast frames come, and how late.

import { amount, make, say, size } from './dom.js';

/** Frames that the times until they are drawn are taken of. */
const LATEST = 200;
/** States that are remembered until a frame of them comes. */
const SENT_MAX = 1_000;
const SECOND_MS = 1_000;
const REFRESH_MS = 500;

const TITLES = {
  fps: 'frames a second', p50: 'input to drawn, ms (median)', p95: 'of 95 %, within ms', drops: 'drops',
  hits: 'cache hits', hosts: 'hosts', rate: 'data a second',
};

export class Figures {
  constructor() {
    /** @type {Map<number, number>} */
    this.sentMs = new Map();
    /** @type {number[]} */
    this.late = [];
    /** @type {{ms: number, bytes: number}[]} */
    this.seen = [];
    this.undrawn = 0;
    this.dropped = 0;
    this.hits = 0;
    this.parts = 0;
    this.hosts = 0;
    this.element = make('dl', { class: 'figures small' });
    /** @type {Map<string, Element>} */
    this.cells = new Map();
    for (const [key, title] of Object.entries(TITLES)) {
      const cell = make('dd', { 'data-of': key }, '–');
      this.cells.set(key, cell);
      this.element.append(make('div', {}, make('dt', {}, title), cell));
    }
    this.timer = setInterval(() => this.show(), REFRESH_MS);
  }

  close() {
    clearInterval(this.timer);
  }

  /** @param {number} seq */
  sent(seq) {
    this.sentMs.set(seq, performance.now());
    if (this.sentMs.size > SENT_MAX) this.sentMs.delete(/** @type {number} */ (this.sentMs.keys().next().value));
  }

  /** @param {any} header */
  came(header) {
    this.dropped = header.dropped;
  }

  /** A frame that came and was not drawn: a newer one was there, or it was none. */
  missed() {
    this.undrawn += 1;
  }

  /**
   * @param {any} header
   * @param {number} bytes
   */
  drew(header, bytes) {
    const ms = performance.now();
    const sent = this.sentMs.get(header.seq);
    if (sent !== undefined) {
      this.late.push(ms - sent);
      if (this.late.length > LATEST) this.late.shift();
    }
    for (const seq of this.sentMs.keys()) {
      if (seq > header.seq) break;
      this.sentMs.delete(seq);
    }
    this.seen.push({ ms, bytes });
    this.hits += header.hits;
    this.parts += header.parts;
    this.hosts = header.hosts.length;
    this.note();
  }

  /** @param {number} share */
  within(share) {
    if (this.late.length === 0) return null;
    const sorted = [...this.late].sort((one, other) => one - other);
    return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  }

  told() {
    const since = performance.now() - SECOND_MS;
    while (this.seen.length > 0 && this.seen[0].ms < since) this.seen.shift();
    return {
      fps: this.seen.length,
      p50: this.within(0.5),
      p95: this.within(0.95),
      drops: this.dropped + this.undrawn,
      hits: this.hits,
      parts: this.parts,
      hosts: this.hosts,
      rate: this.seen.reduce((sum, { bytes }) => sum + bytes, 0),
    };
  }

  /** As attributes, for programs that look. */
  note() {
    for (const [key, value] of Object.entries(this.told())) {
      if (value !== null) this.element.setAttribute(`data-${key}`, String(Math.round(value * 100) / 100));
    }
  }

  show() {
    this.note();
    const told = this.told();
    const ms = (/** @type {number | null} */ of) => (of === null ? '–' : amount(Math.round(of)));
    const texts = {
      fps: String(told.fps), p50: ms(told.p50), p95: ms(told.p95), drops: amount(told.drops),
      hits: told.parts === 0 ? '–' : `${amount(told.hits)} of ${amount(told.parts)}`,
      hosts: String(told.hosts), rate: size(told.rate),
    };
    for (const [key, text] of Object.entries(texts)) say(/** @type {Element} */ (this.cells.get(key)), text);
  }
}
