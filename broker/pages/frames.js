// @ts-check
// The worker that decodes frames and draws them.

import { Painter } from './painter.js';

/** @type {any} */
const page = globalThis;
/** @type {Painter | null} */
let painter = null;

page.addEventListener('message', (/** @type {MessageEvent} */ { data }) => {
  if (data.canvas) painter = new Painter(data.canvas, (told) => page.postMessage(told));
  else painter?.paint(data.frame);
});
page.postMessage('ready');
