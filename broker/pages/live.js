// @ts-check
// What the broker pushes: hosts, jobs, lanes and the farm, as they are now.

import { get, Refused } from './ask.js';

const WAIT_MS_FIRST = 250;
const WAIT_MS_MAX = 2_000;

export class Live extends EventTarget {
  constructor() {
    super();
    /** @type {Map<string, any>} */
    this.hosts = new Map();
    /** @type {Map<number, any>} */
    this.jobs = new Map();
    /** @type {any[]} */
    this.lanes = [];
    /** @type {any} */
    this.farm = null;
    /** Who has stopped all hosts, if anybody has. @type {{by: string, at_ms: number, reason: string} | null} */
    this.stop = null;
    this.isOnline = false;
    /** How far the broker's clock is ahead of this one, in milliseconds. */
    this.aheadMs = 0;
    this.number = 0;
    this.waitMs = WAIT_MS_FIRST;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.isWanted = false;
  }

  begin() {
    if (this.isWanted) return;
    this.isWanted = true;
    this.connect();
  }

  end() {
    this.isWanted = false;
    this.socket?.close();
  }

  connect() {
    const scheme = location.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(`${scheme}//${location.host}/v1/watch`);
    socket.binaryType = 'arraybuffer';
    this.socket = socket;
    const decoder = new TextDecoder();
    socket.addEventListener('message', (event) => {
      this.take(JSON.parse(decoder.decode(event.data)));
    });
    socket.addEventListener('close', () => this.lost());
  }

  /** @param {any} told */
  take(told) {
    if (told.since === null) {
      this.hosts = new Map();
      this.jobs = new Map();
    }
    for (const host of told.hosts) this.hosts.set(host.host, host);
    for (const job of told.jobs) this.jobs.set(job.job, job);
    for (const host of told.gone_hosts) this.hosts.delete(host);
    for (const job of told.gone_jobs) this.jobs.delete(job);
    this.lanes = told.lanes;
    this.farm = told.farm;
    this.stop = told.stop ?? null;
    this.aheadMs = told.now_ms - Date.now();
    this.number = told.number;
    this.isOnline = true;
    this.waitMs = WAIT_MS_FIRST;
    this.dispatchEvent(new Event('change'));
  }

  async lost() {
    const was = this.isOnline;
    this.isOnline = false;
    if (was) this.dispatchEvent(new Event('change'));
    if (!this.isWanted) return;
    await new Promise((done) => setTimeout(done, this.waitMs));
    this.waitMs = Math.min(2 * this.waitMs, WAIT_MS_MAX);
    // A socket does not say why it was refused.
    try {
      await get('/v1/me');
    } catch (error) {
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        this.isWanted = false;
        this.dispatchEvent(new CustomEvent('refused', { detail: error.message }));
        return;
      }
    }
    if (this.isWanted) this.connect();
  }

  /** Milliseconds of UTC by the broker's clock. */
  now() {
    return Date.now() + this.aheadMs;
  }
}
