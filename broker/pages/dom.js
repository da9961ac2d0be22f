// @ts-check
// Elements, and text of others as text.

/** Control characters, and marks that turn the direction of text around. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** How much of a name stands in a cell. */
const CELL_CHARS_MAX = 200;

/**
 * Text of somebody else, as it may be shown: what cannot be seen is told by its number.
 * @param {unknown} value
 * @param {number} [most]
 */
export function plain(value, most = CELL_CHARS_MAX) {
  const text = String(value ?? '');
  const cut = text.length > most ? text.slice(0, most) + '…' : text;
  return cut.replace(HIDDEN, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 */

/**
 * An element. Properties that begin with `on` are listened to; text is text, never markup.
 * @param {string} tag
 * @param {Record<string, any>} [properties]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) {
      continue;
    }
    if (name.startsWith('on')) {
      element.addEventListener(name.slice(2), value);
    } else if (name === 'class') {
      element.className = value;
    } else {
      element.setAttribute(name, value === true ? '' : String(value));
    }
  }
  fill(element, ...children);
  return element;
}

/**
 * Gives an element these children and no others.
 * @param {Element} element
 * @param {...Child} children
 */
export function fill(element, ...children) {
  const shown = children.filter((child) => child !== null && child !== undefined && child !== false);
  element.replaceChildren(...shown.map((child) => (child instanceof Node ? child : String(child))));
}

/**
 * A name of somebody else's, kept apart from the direction of the text around it.
 * @param {unknown} value
 */
export function name(value) {
  return make('bdi', {}, plain(value));
}

/**
 * Sets text where it is another one, so that nobody is told of what has not changed.
 * @param {Element} element
 * @param {string} text
 */
export function say(element, text) {
  if (element.textContent !== text) {
    element.textContent = text;
  }
}

/** @param {number} value */
export function amount(value) {
  return value.toLocaleString('en', { maximumFractionDigits: value < 100 ? 2 : 0 });
}

/** @param {number} ms */
export function time(ms) {
  const at = new Date(ms);
  const two = (/** @type {number} */ part) => String(part).padStart(2, '0');
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
}

/** @param {number} seconds */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return '';
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5_400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${(seconds / 3_600).toFixed(1)} h`;
  return `${(seconds / 86_400).toFixed(1)} days`;
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1_024) return `${bytes} bytes`;
  if (bytes < 1 << 20) return `${(bytes / 1_024).toFixed(1)} KiB`;
  return `${(bytes / (1 << 20)).toFixed(1)} MiB`;
}
