// How soon the pages of a large farm are there: 10,000 jobs at a real broker, and 1,000 hosts that are
// put into what it pushes; how long the page is busy at once while 10,000 hosts are scrolled and searched;
// and how soon a page goes on when its broker is back. Prints figures; asserts nothing, since it measures
// the machine as well.
//
//   GLEANER_PAGES="{\"modules\":\"$PWD/target/pages\",\"chromium\":\"/usr/bin/chromium\"}" node tests/pages/paint.js target/debug/gleaner
'use strict';

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');
const { drives, say } = require('./browser.js');

const [JOBS, HOSTS, OWNERS, ROUNDS] = [10_000, 1_000, 50, 5];
/** Hosts that are scrolled through, and in how many steps. */
const [MANY, STEPS] = [10_000, 100];
const STATES = ['rendering', 'harvested', 'idle', 'quiet', 'given-way', 'lost'];

function hostOf(number) {
  const state = STATES[number % STATES.length];
  return {
    host: `render${String(number).padStart(4, '0')}.farm`, origin: 'farm', owner: null, connected: state !== 'lost', cores: 64,
    cores_given: 60, running: 12, epoch: { incarnation: 1, count: number }, reported: 100, disagreed: 0, released: 3, state,
    closed: state === 'quiet' ? 'the quiet period is not over' : undefined,
  };
}

/** The broker's own pushes, with hosts: they are put into the text before the page reads it. */
async function withHosts(page, count = HOSTS) {
  const hosts = JSON.stringify(Array.from({ length: count }, (_, number) => hostOf(number)));
  await page.addInitScript((all) => {
    const { addEventListener } = WebSocket.prototype;
    WebSocket.prototype.addEventListener = function listen(type, listener) {
      const take = (event) => {
        const text = new TextDecoder().decode(event.data);
        const told = text.includes('"since":null') ? text.replace('"hosts":[]', `"hosts":${all}`) : text;
        listener({ data: new TextEncoder().encode(told) });
      };
      addEventListener.call(this, type, type === 'message' ? take : listener);
    };
  }, hosts);
}

/** How long the page was busy at once at most, in milliseconds, by Chromium's own trace of long tasks. */
async function scrolls(browser, url) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  await withHosts(page, MANY);
  await page.goto(`${url}/#farm`);
  await page.locator('.tile').first().waitFor();
  const search = page.getByLabel('Search');
  await page.evaluate(() => {
    window.tasks = [];
    window.frames = [];
    new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: 'longtask' });
    let last = performance.now();
    const look = (now) => {
      window.frames.push(now - last);
      last = now;
      requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  const shown = await page.evaluate(async (steps) => {
    const grid = document.querySelector('ul.tiles').closest('.scroll');
    const seen = new Set();
    for (let step = 0; step <= steps; step += 1) {
      grid.scrollTop = (step / steps) * grid.scrollHeight;
      await new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(done)); });
      seen.add(document.querySelector('.tile b').textContent);
    }
    return seen.size;
  }, STEPS);
  await search.pressSequentially('render01', { delay: 60 });
  await page.waitForFunction(() => [...document.querySelectorAll('.tile b')].every((of) => of.textContent.startsWith('render01')));
  const { tasks, frames } = await page.evaluate(() => ({ tasks: window.tasks, frames: window.frames }));
  await page.close();
  const longest = (values) => Math.max(0, ...values).toFixed(0);
  say(`${MANY} hosts scrolled (${shown} places) and searched: ${tasks.length} tasks above 50 ms (longest ${longest(tasks)}), longest time between two of ${frames.length} frames ${longest(frames)} ms`);
}

const middle = (values) => [...values].sort((one, other) => one - other)[values.length >> 1];

async function free() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await new Promise((done) => server.on('listening', done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

async function main() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'paint-'));
  const url = `http://127.0.0.1:${await free()}`;
  const start = () => spawn(process.argv[2], ['broker', '--listen', url.slice(7), '--data-dir', path.join(folder, 'data')], { stdio: 'ignore' });
  const isUp = async () => {
    while (!(await fetch(`${url}/healthz`).catch(() => null))?.ok) await new Promise((done) => setTimeout(done, 20));
  };
  let broker = start();
  process.on('exit', () => {
    broker.kill('SIGKILL');
    fs.rmSync(folder, { recursive: true, force: true });
  });
  await isUp();
  const submit = async (number) => {
    const body = { task: { kernel: 'gametree' }, workunits: { count: 100 }, owner: `owner${number % OWNERS}`, name: `job of scene ${number}` };
    const answer = await fetch(`${url}/v1/jobs`, { method: 'POST', body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(await answer.text());
  };
  for (let begin = 0; begin < JOBS; begin += 100) await Promise.all(Array.from({ length: 100 }, (_, at) => submit(begin + at)));
  say(`${JOBS} jobs are there`);
  await drives(async (browser) => {
    for (const [place, seen, hasHosts] of [['farm', '.tile', true], ['jobs', 'tbody th', true], ['jobs', 'tbody th', false]]) {
      const [paints, rows] = [[], []];
      for (let round = 0; round < ROUNDS; round += 1) {
        const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
        if (hasHosts) await withHosts(page);
        // Told by the page itself, so that this process' own time is not in it.
        await page.addInitScript((what) => {
          const look = () => {
            if (document.querySelector(what)) requestAnimationFrame(() => { window.rowsMs = performance.now(); });
            else requestAnimationFrame(look);
          };
          look();
        }, seen);
        await page.goto(`${url}/#${place}`);
        await page.waitForFunction(() => window.rowsMs);
        rows.push(await page.evaluate(() => window.rowsMs));
        paints.push(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime));
        await page.close();
      }
      say(`${place}${hasHosts ? ` with ${HOSTS} hosts` : ''}: first paint ${middle(paints).toFixed(0)} ms, rows ${middle(rows).toFixed(0)} ms (middle of ${ROUNDS})`);
    }
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    await page.goto(`${url}/#jobs`);
    await page.locator('tbody th').first().waitFor();
    const seen = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const job = JOBS - round;
      seen.push(await page.evaluate(async (number) => {
        const row = () => [...document.querySelectorAll('tr')].find((of) => of.textContent.includes(`job-${number}`));
        const begin = performance.now();
        await fetch(`/v1/jobs/${number}`, { method: 'DELETE' });
        while (!row()?.textContent.includes('cancelled')) await new Promise((done) => { requestAnimationFrame(done); });
        return performance.now() - begin;
      }, job));
    }
    say(`a cancelled job is seen after ${middle(seen).toFixed(0)} ms (middle of ${ROUNDS})`);
    await scrolls(browser, url);
    const back = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      broker.kill('SIGKILL');
      await page.locator('#link', { hasText: 'away' }).waitFor();
      broker = start();
      await isUp();
      const begin = performance.now();
      await page.locator('#link', { hasText: 'live' }).waitFor();
      back.push(performance.now() - begin);
    }
    say(`a page goes on ${middle(back).toFixed(0)} ms after its broker answers again, ${Math.max(...back).toFixed(0)} at most (of ${ROUNDS})`);
  });
}

main();
