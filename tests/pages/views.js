// Drives a real browser through views of a volume: what is drawn is read back from the canvas.
//
//   node tests/pages/views.js
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const { ask, drives, given, isAccessible, isLive, isReached, looks, open, say, visitor } = require('./browser.js');

/** Of the number that the synthetic kernel paints: see SYNTHETIC_BITS of broker/protocol/src/view.rs. */
const [BITS, SQUARES] = [16, 32];
const TURNS = 40;
/** What is drawn is drawn by work that waits for everybody else's. */
const PATIENCE_MS = 120_000;
/** Small pictures: what is looked at here is not how fast they come. */
const VIEWPORT = { width: 700, height: 560 };

/** Has a page read its canvases, and remember what it has seen of the first one. */
async function reads(page) {
  await page.evaluate(([bits, squares]) => {
    const copy = document.createElement('canvas');
    const context = copy.getContext('2d', { willReadFrequently: true });
    window.pixels = (index = 0) => {
      const canvas = document.querySelectorAll('.screen canvas')[index];
      [copy.width, copy.height] = [canvas.width, canvas.height];
      context.drawImage(canvas, 0, 0);
      return context.getImageData(0, 0, copy.width, copy.height);
    };
    window.number = () => {
      const { data, width } = window.pixels();
      // As the kernel has it: whole pixels.
      const side = Math.max(1, Math.floor(width / squares));
      let number = 0;
      for (let bit = 0; bit < bits; bit += 1) {
        const at = 4 * (Math.floor(side / 2) * width + Math.floor((bit + 0.5) * side));
        if (data[at] + data[at + 1] + data[at + 2] > 384) number += 2 ** bit;
      }
      return number;
    };
    /** How many pixels are another colour than the corner. */
    window.shown = (index = 0) => {
      const { data } = window.pixels(index);
      let other = 0;
      for (let at = 0; at < data.length; at += 4) {
        if ([0, 1, 2].some((part) => Math.abs(data[at + part] - data[part]) > 24)) other += 1;
      }
      return other;
    };
    window.seen = [];
    const look = () => {
      const canvas = document.querySelector('.screen canvas');
      if (canvas && canvas.width >= squares) window.seen.push(window.number());
      requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  }, [BITS, SQUARES]);
}

/** Waits until what was wanted last is drawn, still and not coarse. */
async function isDrawn(page, index = 0) {
  await page.waitForFunction((at) => {
    const { sent, drawn, coarse, moving } = document.querySelectorAll('.screen')[at]?.dataset ?? {};
    return sent && sent === drawn && coarse === 'false' && moving === 'false';
  }, index);
}

/** Does something, and waits until what came of it is drawn. */
async function draws(page, act, index = 0) {
  const last = () => page.evaluate((at) => Number(document.querySelectorAll('.screen')[at].dataset.sent), index);
  const before = await last();
  await act();
  await page.waitForFunction(([at, sent]) => Number(document.querySelectorAll('.screen')[at].dataset.sent) > sent, [index, before]);
  await isDrawn(page, index);
  return before;
}

/** What was wanted last is in the pixels, and nothing older came after something newer. */
async function isNewest(page) {
  await isDrawn(page);
  await page.waitForFunction(() => window.number() === Number(document.querySelector('.screen').dataset.sent));
  const seen = await page.evaluate(() => window.seen);
  for (let at = 1; at < seen.length; at += 1) assert.ok(seen[at] >= seen[at - 1], `${seen[at]} after ${seen[at - 1]}`);
  return new Set(seen).size;
}

async function opens(page, kernel) {
  await open(page, 'views');
  await page.getByLabel('Open with').selectOption(kernel);
  await page.getByRole('button', { name: `Open ${given.dataset}` }).click();
  await page.locator('h1', { hasText: given.dataset }).waitFor();
  await reads(page);
  await isDrawn(page);
}

/** Turns the picture by the mouse. */
async function drags(page, turns) {
  const box = await page.locator('.picture').first().boundingBox();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  await page.mouse.move(x, y);
  await page.mouse.down();
  for (let turn = 1; turn <= turns; turn += 1) {
    await page.mouse.move(x + 3 * turn, y + turn);
    await page.evaluate(() => new Promise((done) => { requestAnimationFrame(done); }));
  }
  await page.mouse.up();
}

/** Strips that come in one frame are one picture, and one that lacks a strip, or comes late, is none. */
async function isPainted(page) {
  const told = await page.evaluate(async () => {
    const { Painter } = await import('/pages/painter.js');
    /** A strip of one colour, as a file. */
    const file = async (colour, rows) => {
      const canvas = new OffscreenCanvas(8, rows);
      const context = canvas.getContext('2d');
      context.fillStyle = colour;
      context.fillRect(0, 0, 8, rows);
      return new Uint8Array(await (await canvas.convertToBlob({ type: 'image/png' })).arrayBuffer());
    };
    const [above, below] = [await file('#ff0000', 16), await file('#0000ff', 4)];
    const frame = (number, files) => {
      const buffer = new Uint8Array(3 + above.length + below.length);
      buffer.set(above, 3);
      buffer.set(below, 3 + above.length);
      const strips = [{ row: 0, offset: 3, bytes: above.length }, { row: 16, offset: 3 + above.length, bytes: files }];
      return { number, kind: 'image/png', size: [8, 20], buffer: buffer.buffer, strips };
    };
    const canvas = document.createElement('canvas');
    const told = [];
    const painter = new Painter(canvas, ({ number, came }) => told.push(`${number} ${came}`));
    const pixel = (y) => [...canvas.getContext('2d').getImageData(4, y, 1, 1).data].join();
    await painter.paint(frame(1, 9));
    await painter.paint(frame(3, below.length));
    await painter.paint(frame(2, below.length));
    return [...told, canvas.width, canvas.height, pixel(0), pixel(15), pixel(16), pixel(19)];
  });
  const [red, blue] = ['255,0,0,255', '0,0,255,255'];
  assert.deepEqual(told, ['1 broken', '3 drawn', '2 late', 8, 20, red, red, blue, blue]);
}

async function numbers(page) {
  await opens(page, 'synthetic');
  await isNewest(page);
  await isPainted(page);
  const before = await draws(page, () => drags(page, TURNS));
  const seen = await isNewest(page);
  const after = Number(await page.locator('.screen').getAttribute('data-sent'));
  assert.ok(after > before + 2, `${after} after ${before}: it was told as it moved`);
  // The figures are there, whatever they are.
  const figures = await page.evaluate(() => ({ ...document.querySelector('.screen .figures').dataset }));
  for (const key of ['fps', 'p50', 'p95', 'drops', 'hits', 'parts', 'hosts', 'rate']) assert.ok(key in figures, key);
  say(`the newest state is drawn in the end, and none before it after it: ${seen} numbers seen of ${after}; ${JSON.stringify(figures)}`);

  await page.locator('.picture').focus();
  for (const key of ['ArrowLeft', 'Shift+ArrowUp', '+', '-', 'Home']) {
    await draws(page, () => page.keyboard.press(key));
    await isNewest(page);
  }
  await page.locator('[role=status]', { hasText: 'degrees around' }).waitFor({ state: 'attached' });
  await isReached(page, 'a view');
  say('keys turn, move and zoom it, and it is told where the camera is');

  await page.evaluate(() => { window.here = true; });
  await ask('stop');
  await page.locator('.over', { hasText: 'away' }).waitFor();
  await page.keyboard.press('ArrowRight');
  await draws(page, () => ask('start'));
  await isNewest(page);
  await draws(page, () => page.keyboard.press('ArrowRight'));
  await isNewest(page);
  assert.equal(await page.evaluate(() => window.here), true, 'it was not loaded anew');
  say('a view goes on after the broker has been away');
}

async function volume(page) {
  await opens(page, 'volume');
  const usual = await page.evaluate(() => window.shown());
  assert.ok(usual > 100, `${usual} pixels of the volume`);
  await looks(page, 'view-first');
  await draws(page, () => page.getByRole('button', { name: 'Full range' }).click());
  const full = await page.evaluate(() => window.shown());
  assert.notEqual(full, usual, 'another look is another picture');
  await draws(page, () => page.getByLabel('x to').fill('0.5'));
  const half = await page.evaluate(() => window.shown());
  assert.ok(half < full, `${half} pixels of a half, ${full} of the whole`);
  await draws(page, () => page.getByRole('button', { name: 'Show all' }).click());
  await draws(page, () => page.getByLabel('Slice').selectOption({ label: 'across z' }));
  assert.ok(await page.evaluate(() => window.shown()) > 100, 'a slice is seen');
  await looks(page, 'view-slice');
  await draws(page, () => page.getByLabel('Slice').selectOption({ label: 'none' }));
  await page.getByRole('button', { name: 'Add a point' }).click();
  await page.locator('td input[type=number]').nth(3).fill('0.7');
  await draws(page, () => page.getByRole('button', { name: 'Remove point 2' }).click());
  say('looks, cuts and slices change what is seen');

  await page.getByRole('button', { name: 'Add key' }).click();
  await page.locator('.picture').focus();
  await page.keyboard.press('ArrowRight');
  await page.getByRole('button', { name: 'Add key' }).click();
  const waits = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Save as animation' }).click();
  fs.copyFileSync(await (await waits).path(), given.animation);
  await page.locator('code', { hasText: `gleaner submit volume turn.toml --dataset ${given.dataset}` }).waitFor();
  say('a path of the camera is saved as an animation');

  for (const scheme of ['light', 'dark']) {
    const change = () => page.emulateMedia({ colorScheme: scheme });
    await (scheme === 'dark' ? draws(page, change) : change());
    await isAccessible(page, `a view, ${scheme}`);
    await looks(page, `view-${scheme}`);
  }
  await page.getByLabel('Compare with').selectOption(given.dataset);
  await page.getByRole('button', { name: 'Side by side' }).click();
  await isDrawn(page, 1);
  await page.locator('.picture').first().focus();
  await draws(page, () => page.keyboard.press('ArrowRight'), 1);
  await isDrawn(page, 0);
  await isAccessible(page, 'two views');
  await looks(page, 'view-two');
  await page.getByRole('button', { name: 'One picture only' }).click();
  await draws(page, () => page.setViewportSize({ width: 400, height: 800 }));
  await looks(page, 'view-narrow');
  const wider = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wider <= 0, `it is ${wider} pixels wider than a narrow screen`);
  await draws(page, () => page.setViewportSize(VIEWPORT));
  say('a view passes axe, dark and light, alone and beside another, and fits a narrow screen');
}

/** What stands in the table of points. */
const points = (page) => page.locator('td input').evaluateAll((inputs) => inputs.map((input) => input.value));

async function links(page) {
  const before = await points(page);
  await page.getByRole('button', { name: 'Copy link' }).click();
  await page.locator('[role=status]', { hasText: 'as you see it now' }).waitFor();
  const link = page.url();
  assert.match(link, /#views\/[^?]+\?s=[\w-]+$/);
  const id = /#views\/([^?]+)/.exec(link)[1];
  await open(page, 'views');
  await page.getByRole('button', { name: `Close ${id}`, exact: true }).waitFor();
  await page.goto(link);
  await page.reload();
  await reads(page);
  await isDrawn(page);
  assert.deepEqual(await points(page), before, 'the link carries the look');
  await open(page, 'views');
  await isAccessible(page, 'views');
  await looks(page, 'views');
  await page.getByRole('button', { name: `Close ${id}`, exact: true }).click();
  await page.getByRole('button', { name: `Close ${id}`, exact: true }).waitFor({ state: 'detached' });
  await page.goto(link);
  await page.locator('[role=status]', { hasText: 'has ended' }).waitFor();
  await page.getByRole('link', { name: 'Open the dataset anew' }).click();
  await page.locator('.screen').waitFor();
  assert.ok(!page.url().includes(id) && page.url().includes('?s='), page.url());
  await reads(page);
  await isDrawn(page);
  assert.deepEqual(await points(page), before, 'the new view looks as the one that has ended');
  await open(page, 'views/nobodys?s=e30');
  await page.locator('[role=status]', { hasText: 'has ended' }).waitFor();
  say('a link carries what is seen; one whose view has ended opens the dataset anew');
}

async function viewer(browser) {
  const guest = await visitor(browser);
  await guest.goto(given.viewer);
  await isLive(guest);
  await open(guest, 'views');
  await guest.locator('th', { hasText: given.dataset }).waitFor();
  assert.equal(await guest.getByRole('button', { name: /^Open/ }).count(), 0);
  await guest.locator('p', { hasText: 'looks at the farm only' }).waitFor();
  await isAccessible(guest, 'views of a viewer');
  await guest.context().close();
  say('who only looks at the farm opens no view');
}

/** Which hosts have copies of what was drawn. */
async function where(page) {
  await open(page, 'views');
  await page.getByRole('button', { name: `Where ${given.dataset} is` }).click();
  const dialog = page.locator('dialog');
  await dialog.locator('p', { hasText: 'Chunks by how many connected hosts have a copy' }).waitFor();
  await dialog.locator('th', { hasText: /^desk[12]$/ }).first().waitFor();
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    await isAccessible(page, `where copies are, ${scheme}`);
  }
  await looks(page, 'where');
  await page.keyboard.press('Escape');
  say('the page tells which hosts have copies');
}

drives(async (browser) => {
  const page = await visitor(browser, { viewport: VIEWPORT });
  page.setDefaultTimeout(PATIENCE_MS);
  await page.goto(given.admin);
  await isLive(page);
  // Links do not outlive a restart.
  await viewer(browser);
  await numbers(page);
  await volume(page);
  await links(page);
  await where(page);
});
