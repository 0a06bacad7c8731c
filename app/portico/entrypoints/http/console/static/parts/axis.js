// @ts-check
/**
 * Time axis of a timeline: times become places in pixels, and waits are compressed. Pure functions.
 *
 * A time in which only a suspension is open, or a gap above 2 s and a fifth of the rest, is drawn 56 px wide.
 */

const WAIT_PX = 56;
const GAP_MS = 2000;

/** @typedef {{start: number, end: number}} Interval Milliseconds. */
/** @typedef {{start: number, end: number, x: number, width: number, wait: boolean}} Stretch */
/**
 * @typedef {{stretches: Stretch[], width: number, place: (time: number) => number, ticks: {x: number, ms:
 * number}[]}} Axis
 */

/** Join intervals that touch. @param {Interval[]} intervals @returns {Interval[]} Sorted, without overlap. */
function joined(intervals) {
  /** @type {Interval[]} */
  const found = [];
  for (const { start, end } of [...intervals].sort((a, b) => a.start - b.start)) {
    const last = found.at(-1);
    if (last && start <= last.end) last.end = Math.max(last.end, end);
    else found.push({ start, end });
  }
  return found;
}

/**
 * Return the waits between `start` and `end`.
 * @param {Interval} whole
 * @param {Interval[]} busy
 * @param {Interval[]} open
 */
export function waits(whole, busy, open) {
  const gaps = [];
  let at = whole.start;
  for (const each of [...joined(busy), { start: whole.end, end: whole.end }]) {
    if (each.start > at) gaps.push({ start: at, end: Math.min(each.start, whole.end) });
    at = Math.max(at, each.end);
  }
  const found = [];
  for (const gap of gaps) {
    const asked = open.find((each) => each.start < gap.end && each.end > gap.start);
    const rest = whole.end - whole.start - (gap.end - gap.start);
    if (asked) found.push({ start: Math.max(gap.start, asked.start), end: gap.end });
    else if (gap.end - gap.start > GAP_MS && gap.end - gap.start > rest / 5) found.push(gap);
  }
  return found.filter((each) => each.end > each.start);
}

/**
 * Return the axis.
 * @param {Interval} whole
 * @param {Interval[]} compressed
 * @param {number} width
 * @returns {Axis}
 */
export function timeAxis(whole, compressed, width) {
  const end = Math.max(whole.end, whole.start + 1);
  const waiting = compressed.reduce((sum, each) => sum + each.end - each.start, 0);
  const wait_px = Math.min(WAIT_PX, width / (2 * Math.max(compressed.length, 1)));
  const scale =
    Math.max(width - wait_px * compressed.length, 1) / Math.max(end - whole.start - waiting, 1e-6);
  /** @type {Stretch[]} */
  const stretches = [];
  let [at, x] = [whole.start, 0];
  const add = (/** @type {number} */ until, /** @type {boolean} */ wait) => {
    if (until <= at) return;
    const px = wait ? wait_px : (until - at) * scale;
    stretches.push({ start: at, end: until, x, width: px, wait });
    [at, x] = [until, x + px];
  };
  for (const each of compressed) {
    add(each.start, false);
    add(each.end, true);
  }
  add(end, false);
  const place = (/** @type {number} */ time) => {
    const found = stretches.find((each) => time <= each.end) ?? stretches.at(-1);
    if (!found) return 0;
    const share = (time - found.start) / (found.end - found.start);
    return found.x + Math.min(Math.max(share, 0), 1) * found.width;
  };
  return { stretches, width, place, ticks: ticks(stretches, scale) };
}

/**
 * Return marks of worked time, at least 64 px apart and never inside a wait.
 * @param {Stretch[]} stretches
 * @param {number} scale
 */
function ticks(stretches, scale) {
  const step = niceStep(64 / scale);
  /** @type {{x: number, ms: number}[]} */
  const found = [];
  let worked = 0;
  for (const each of stretches.filter((one) => !one.wait)) {
    const long = each.end - each.start;
    for (let n = Math.ceil(worked / step - 1e-9); n * step <= worked + long + 1e-9; n++) {
      const x = each.x + (n * step - worked) * scale;
      const last = found.at(-1);
      if ((!last || x - last.x > 40) && !nearWait(stretches, x)) found.push({ x, ms: n * step });
    }
    worked += long;
  }
  return found;
}

/** @param {Stretch[]} stretches @param {number} x */
const nearWait = (stretches, x) =>
  stretches.some((each) => each.wait && x > each.x - 44 && x < each.x + each.width + 8);

/** Return 1, 2 or 5 times a power of ten, at least as large as `least`. @param {number} least */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1e-6)));
  return (
    [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= least - 1e-12) ??
    10 * power
  );
}
