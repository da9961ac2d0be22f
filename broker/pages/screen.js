// @ts-check
// A view on the screen: what is wanted goes to the broker, frames come back and are drawn.

import { get, Refused } from './ask.js';
import { fill, make, name, plain, say } from './dom.js';
import { Figures } from './figures.js';
import { painted } from './painter.js';

const WAIT_MS_FIRST = 250;
const WAIT_MS_MAX = 2_000;
/** So long after the last change nothing moves any more. */
const STILL_MS = 150;
/** Pixels that are asked for, unless all are wanted. */
const [USUAL_WIDTH, USUAL_HEIGHT] = [1_024, 768];
const [SIDE_MIN, SIDE_MAX, PIXELS_MAX] = [16, 4_096, 4 << 20];
/** So many bytes wait for a slow line at most: what is newer then comes in their place. */
const BEHIND_BYTES_MAX = 32_768;

/**
 * @typedef {object} Wanted
 * @property {any} status as the broker tells of the view
 * @property {string} label
 * @property {string} help the element that says how the camera is moved
 * @property {() => any} state what is to be seen, but for its number and size
 * @property {(why: string) => void} ended
 */

export class Screen {
  /** @param {Wanted} what */
  constructor(what) {
    this.what = what;
    this.id = what.status.view;
    this.seq = what.status.state?.seq ?? 0;
    this.isFull = false;
    this.isOpen = true;
    this.isStale = false;
    this.awaited = 0;
    this.waitMs = WAIT_MS_FIRST;
    /** @type {WebSocket | null} */
    this.socket = null;
    /** Frames that have arrived so far. */
    this.arrived = 0;
    /** Those on their way to the canvas. @type {Map<number, {header: any, bytes: number, socket: WebSocket}>} */
    this.frames = new Map();
    this.figures = new Figures();
    this.canvas = /** @type {HTMLCanvasElement} */ (make('canvas', { width: 4, height: 3, 'aria-hidden': 'true' }));
    this.coarse = make('p', { class: 'badge', hidden: true }, 'coarse: bricks are being loaded');
    this.note = make('p', { class: 'over', role: 'status' }, 'connecting …');
    this.box = make('div', {
      class: 'picture', tabindex: 0, role: 'application', 'aria-roledescription': 'picture that can be turned',
      'aria-label': what.label, 'aria-describedby': what.help,
    }, this.canvas);
    this.hosts = make('p', { class: 'soft hosts' });
    this.element = make('figure', { class: 'screen', 'data-view': this.id }, make('div', { class: 'stage' }, this.box, this.coarse, this.note),
      make('figcaption', {}, name(what.status.dataset)), this.figures.element, this.hosts);
    this.decoder = new TextDecoder();
    this.resized = new ResizeObserver(() => this.changed());
    /** @type {{paint: (frame: any) => void, end: () => void} | null} */
    this.painter = null;
  }

  async begin() {
    const painter = await painted(this.canvas, (told) => this.took(told));
    if (!this.isOpen) {
      painter.end();
      return;
    }
    this.painter = painter;
    this.resized.observe(this.box);
    this.connect();
  }

  close() {
    this.isOpen = false;
    this.resized.disconnect();
    this.figures.close();
    this.painter?.end();
    this.socket?.close();
    clearTimeout(this.still);
    cancelAnimationFrame(this.awaited);
  }

  connect() {
    const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(`${scheme}//${location.host}/v1/views/${encodeURIComponent(this.id)}/live`);
    socket.binaryType = 'arraybuffer';
    this.socket = socket;
    socket.addEventListener('open', () => {
      this.waitMs = WAIT_MS_FIRST;
      this.tell('');
      this.send(false);
    });
    socket.addEventListener('message', ({ data }) => {
      try {
        if (typeof data === 'string') this.hear(JSON.parse(data));
        else this.receive(data, socket);
      } catch {
        this.tell('The broker sent something that this page does not know: load the page anew.');
      }
    });
    socket.addEventListener('close', () => this.lost());
  }

  async lost() {
    this.frames.clear();
    if (!this.isOpen) return;
    this.tell('broker away, trying again …');
    await new Promise((done) => setTimeout(done, this.waitMs));
    this.waitMs = Math.min(2 * this.waitMs, WAIT_MS_MAX);
    if (!this.isOpen) return;
    // A socket does not say why it was refused.
    try {
      const status = await get(`/v1/views/${encodeURIComponent(this.id)}`);
      this.seq = Math.max(this.seq, status.state?.seq ?? 0);
    } catch (error) {
      if (error instanceof Refused && [401, 403, 404, 410].includes(error.status)) {
        this.end(error.message);
        return;
      }
    }
    if (this.isOpen) this.connect();
  }

  /** @param {string} why */
  end(why) {
    if (!this.isOpen) return;
    this.tell(`The view has ended: ${why}`);
    this.close();
    this.what.ended(why);
  }

  /** @param {string} text */
  tell(text) {
    say(this.note, plain(text, 500));
  }

  /** @param {any} news */
  hear(news) {
    if (news.refused !== undefined) this.tell(`The broker refused what was wanted: ${news.refused}`);
    else if (news.ended !== undefined) this.end(String(news.ended));
    else if (news.waits !== undefined) this.tell(news.waits ?? '');
  }

  /**
   * @param {ArrayBuffer} buffer
   * @param {WebSocket} socket
   */
  receive(buffer, socket) {
    const length = new DataView(buffer).getUint32(0, true);
    const header = JSON.parse(this.decoder.decode(new Uint8Array(buffer, 4, length)));
    // The broker sends none of an older state after one of a newer; of one state it sends better ones.
    this.arrived += 1;
    this.figures.came(header);
    this.frames.set(this.arrived, { header, bytes: buffer.byteLength, socket });
    const kind = header.codec === 'png' ? 'image/png' : 'image/jpeg';
    let offset = 4 + length;
    const strips = header.strips.map((/** @type {{row: number, bytes: number}} */ { row, bytes }) => {
      offset += bytes;
      return { row, offset: offset - bytes, bytes };
    });
    this.painter?.paint({ number: this.arrived, kind, size: header.size, buffer, strips });
  }

  /** @param {import('./painter.js').Told} told */
  took({ number, came }) {
    const frame = this.frames.get(number);
    this.frames.delete(number);
    if (came !== 'drawn') this.figures.missed();
    if (came === 'broken') this.tell('A frame could not be read as a picture.');
    if (!frame || came === 'late') return;
    const { header, bytes, socket } = frame;
    // Of a broken one, too, there is nothing more to wait for.
    if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ drawn: header.seq }));
    if (came === 'broken') return;
    this.figures.drew(header, bytes);
    this.coarse.hidden = !header.coarse;
    this.tell('');
    const hosts = header.hosts.join(', ');
    if (this.hosts.dataset.of !== hosts) {
      this.hosts.dataset.of = hosts;
      fill(this.hosts, 'drawn by ', name(hosts));
    }
    const { dataset } = this.element;
    dataset.drawn = String(header.seq);
    dataset.coarse = String(header.coarse);
    dataset.size = header.size.join('x');
    dataset.codec = header.codec === 'png' ? 'png' : `jpeg ${header.codec.jpeg}`;
  }

  /** Pixels that are asked for: those that the picture has on this screen, or fewer. */
  pixels() {
    const { clientWidth, clientHeight } = this.box;
    const density = window.devicePixelRatio || 1;
    const [width, height] = [Math.max(clientWidth * density, 1), Math.max(clientHeight * density, 1)];
    const times = this.isFull
      ? Math.min(1, SIDE_MAX / width, SIDE_MAX / height, Math.sqrt(PIXELS_MAX / (width * height)))
      : Math.min(1, USUAL_WIDTH / width, USUAL_HEIGHT / height);
    return [width, height].map((side) => Math.max(SIDE_MIN, Math.floor(side * times)));
  }

  /** Something else is wanted: it is told with the next picture of this screen, and again once it is still. */
  changed() {
    if (!this.isOpen) return;
    this.isStale = true;
    if (!this.awaited) {
      this.awaited = requestAnimationFrame(() => {
        this.awaited = 0;
        if (this.isStale) this.send(true);
      });
    }
    clearTimeout(this.still);
    this.still = setTimeout(() => this.send(false), STILL_MS);
  }

  /** @param {boolean} moving */
  send(moving) {
    const { socket } = this;
    if (socket?.readyState !== WebSocket.OPEN || this.box.clientWidth === 0) return;
    if (moving && socket.bufferedAmount > BEHIND_BYTES_MAX) return;
    this.isStale = false;
    this.seq += 1;
    const state = { ...this.what.state(), seq: this.seq, size: this.pixels(), moving };
    socket.send(JSON.stringify({ state }));
    this.figures.sent(this.seq);
    this.element.dataset.sent = String(this.seq);
    this.element.dataset.moving = String(moving);
  }
}
