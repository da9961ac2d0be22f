// @ts-check
// Frames onto a canvas, by a worker where the browser lets it.

/**
 * @typedef {{row: number, offset: number, bytes: number}} Strip some rows of a picture: the first, and where its file is
 * @typedef {{number: number, kind: string, size: number[], buffer: ArrayBuffer, strips: Strip[]}} Frame the number is that of its arrival
 * @typedef {{number: number, came: 'drawn' | 'late' | 'broken'}} Told what came of a frame
 */

/** Draws what arrived after what it has drawn, and nothing else: decoding may take one longer than the next. */
export class Painter {
  /**
   * @param {HTMLCanvasElement | OffscreenCanvas} canvas
   * @param {(told: Told) => void} tell
   */
  constructor(canvas, tell) {
    this.canvas = canvas;
    this.tell = tell;
    this.context = /** @type {any} */ (canvas.getContext('2d', { alpha: false }));
    this.drawn = -1;
  }

  /** @param {Frame} frame */
  async paint({ number, kind, size: [width, height], buffer, strips }) {
    /** @param {Strip} strip */
    const decode = async ({ row, offset, bytes }) => {
      const picture = await createImageBitmap(new Blob([new Uint8Array(buffer, offset, bytes)], { type: kind }));
      return { row, picture };
    };
    const decoded = await Promise.allSettled(strips.map(decode));
    const pictures = decoded.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
    const isWhole = pictures.length === strips.length && pictures.length > 0;
    const isNewer = isWhole && number > this.drawn;
    if (isNewer) {
      this.drawn = number;
      // The canvas is as large as the picture; the page stretches it.
      if (this.canvas.width !== width) this.canvas.width = width;
      if (this.canvas.height !== height) this.canvas.height = height;
      for (const { row, picture } of pictures) this.context.drawImage(picture, 0, row);
    }
    for (const { picture } of pictures) picture.close();
    this.tell({ number, came: !isWhole ? 'broken' : isNewer ? 'drawn' : 'late' });
  }
}

/** The only script that a worker of these pages runs: a browser that asks for trusted types is told so. */
const SCRIPT = '/pages/frames.js';
const trusted = /** @type {any} */ (globalThis).trustedTypes?.createPolicy?.('frames', { createScriptURL: () => SCRIPT });

/**
 * Has a canvas painted, beside the page where that can be.
 * @param {HTMLCanvasElement} canvas
 * @param {(told: Told) => void} tell
 * @returns {Promise<{paint: (frame: Frame) => void, end: () => void}>}
 */
export async function painted(canvas, tell) {
  const worker = 'transferControlToOffscreen' in canvas ? await begun() : null;
  if (!worker) {
    const painter = new Painter(canvas, tell);
    return { paint: (frame) => painter.paint(frame), end: () => {} };
  }
  const offscreen = canvas.transferControlToOffscreen();
  worker.postMessage({ canvas: offscreen }, [offscreen]);
  worker.addEventListener('message', (event) => tell(event.data));
  return {
    paint: (frame) => worker.postMessage({ frame }, [frame.buffer]),
    end: () => worker.terminate(),
  };
}

/**
 * A worker that has said that it is there; none where it cannot be.
 * @returns {Promise<Worker | null>}
 */
function begun() {
  return new Promise((done) => {
    let worker;
    try {
      worker = new Worker(trusted?.createScriptURL('') ?? SCRIPT, { type: 'module' });
    } catch {
      done(null);
      return;
    }
    const found = worker;
    found.addEventListener('message', () => done(found), { once: true });
    found.addEventListener('error', () => done(null), { once: true });
  });
}
