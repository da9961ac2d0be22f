// What all scripts at the browser share: visitors, what they look for in every page, and words with
// whoever started them.
//
// GLEANER_PAGES is JSON: where the pages are, the links and the token to log in with, the folder of the
// modules (tests/pages/install) and that of the pictures. What only whoever started it can do is asked
// for by a line, `ask: WORD`, and answered by a line.
'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');
const { createRequire } = require('node:module');

const given = JSON.parse(process.env.GLEANER_PAGES);
const modules = createRequire(path.join(given.modules, 'node_modules', 'x.js'));
const { chromium } = modules('playwright-core');
const AXE = fs.readFileSync(modules.resolve('axe-core/axe.min.js'), 'utf8');
/** How long a page may take to show what is waited for. */
const PATIENCE_MS = 30_000;

const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** Has whoever started this do something; what came of it. */
async function ask(word) {
  process.stdout.write(`ask: ${word}\n`);
  const { value } = await answers.next();
  return value;
}

function say(text) {
  process.stdout.write(`${text}\n`);
}

/** What went wrong in pages so far. */
const faults = [];

/** A browser's user of their own, with nothing kept. */
async function visitor(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  page.on('pageerror', (error) => faults.push(`${page.url()}: ${error}`));
  page.on('dialog', (dialog) => {
    faults.push(`a script of somebody else ran: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on('console', (message) => {
    if (message.type() === 'error' && /Content Security Policy|Trusted/i.test(message.text())) {
      faults.push(`${page.url()}: ${message.text()}`);
    }
  });
  return page;
}

async function isLive(page) {
  await page.locator('#link', { hasText: /^live$/ }).waitFor();
}

async function open(page, place) {
  await page.evaluate((to) => { location.hash = to; }, place);
  await page.locator('#nav a[aria-current]').waitFor();
}

/** No violation of axe's rules, whatever a page shows. */
async function isAccessible(page, name) {
  await page.evaluate(AXE);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  for (const { id, help, nodes } of found.violations) {
    faults.push(`${name}: ${id}: ${help}: ${nodes.slice(0, 3).map((node) => node.html).join(' | ')}`);
  }
}

async function looks(page, name) {
  await page.screenshot({ path: path.join(given.pictures, `${name}.png`), fullPage: true });
}

/** Goes through the pages in a browser, and fails where a page did. */
async function drives(visit) {
  const browser = await chromium.launch({ executablePath: given.chromium, args: ['--no-sandbox'] });
  try {
    await visit(browser);
    assert.deepEqual(faults, []);
    say('all is well');
  } catch (error) {
    process.stderr.write(`${error.stack}\n${faults.join('\n')}\n`);
    process.exit(1);
  } finally {
    await browser.close();
  }
  process.exit(0);
}

/** All that can be pressed or filled in is reached by Tab, and shows that it is. */
async function isReached(page, place) {
  const count = await page.evaluate(() => {
    const all = [...document.querySelectorAll('a[href], button:not(:disabled), input:not(:disabled), select:not(:disabled), [tabindex="0"]')];
    const shown = all.filter((element) => element.offsetParent !== null || element instanceof SVGElement);
    shown.forEach((element, at) => { element.dataset.at = String(at); });
    document.activeElement.blur();
    return shown.length;
  });
  const reached = new Set();
  // More may come to the page meanwhile, and Tab begins where the last one was: it goes around.
  for (let key = 0; key < 3 * count + 40 && reached.size < count; key += 1) {
    await page.keyboard.press('Tab');
    const { at, isSeen, html } = await page.evaluate(() => {
      const element = document.activeElement;
      return { at: element.dataset.at, isSeen: getComputedStyle(element).outlineStyle !== 'none', html: element.outerHTML.slice(0, 200) };
    });
    if (at === undefined) continue;
    assert.ok(isSeen, `${place}: it is not seen that this has the focus: ${html}`);
    reached.add(Number(at));
  }
  const missed = await page.evaluate((known) => [...document.querySelectorAll('[data-at]')]
    .filter((element) => !known.includes(Number(element.dataset.at))).map((element) => element.outerHTML.slice(0, 200)), [...reached]);
  assert.deepEqual(missed, [], `${place}: of ${count} these are not reached by Tab`);
}

module.exports = { ask, drives, faults, given, isAccessible, isLive, isReached, looks, modules, open, say, visitor };
