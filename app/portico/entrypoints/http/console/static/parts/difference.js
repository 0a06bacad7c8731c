// @ts-check
/** Differences between two texts, two JSON values and two executions. Pure functions. */

const MOST_WORDS = 1200;

/** @typedef {{text: string, changed: boolean}} Piece */

/**
 * Return both texts in pieces; a changed piece is not in the other one.
 * @param {string} a
 * @param {string} b
 * @returns {[Piece[], Piece[]]}
 */
export function wordDifference(a, b) {
  if (a === b) return [[{ text: a, changed: false }], [{ text: b, changed: false }]];
  const [left, right] = [split(a), split(b)];
  let head = 0;
  while (head < left.length && head < right.length && left[head] === right[head]) head++;
  let tail = 0;
  while (
    tail < left.length - head &&
    tail < right.length - head &&
    left.at(-1 - tail) === right.at(-1 - tail)
  )
    tail++;
  const [middleLeft, middleRight] = [
    left.slice(head, left.length - tail),
    right.slice(head, right.length - tail),
  ];
  const tooLong = middleLeft.length * middleRight.length > MOST_WORDS ** 2;
  const [keptLeft, keptRight] = tooLong ? [new Set(), new Set()] : common(middleLeft, middleRight);
  const pieces = (/** @type {string[]} */ all, /** @type {Set<number>} */ kept) =>
    grouped(
      all.map((text, at) => ({
        text,
        changed: at >= head && at < all.length - tail && !kept.has(at - head),
      })),
    );
  return [pieces(left, keptLeft), pieces(right, keptRight)];
}

/** @param {string} text */
const split = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];

/**
 * Return the places of the longest common subsequence.
 * @param {string[]} a
 * @param {string[]} b
 * @returns {[Set<number>, Set<number>]}
 */
function common(a, b) {
  const lengths = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      lengths[i][j] =
        a[i] === b[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
  const [left, right] = [new Set(), new Set()];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) {
      left.add(i++);
      right.add(j++);
    } else if (lengths[i + 1][j] >= lengths[i][j + 1]) i++;
    else j++;
  }
  return [left, right];
}

/** Join neighbours of one kind; white space between two changes changes with them. @param {Piece[]} pieces */
function grouped(pieces) {
  /** @type {Piece[]} */
  const found = [];
  pieces.forEach((piece, at) => {
    const between = !piece.text.trim() && pieces[at - 1]?.changed && pieces[at + 1]?.changed;
    const changed = piece.changed || Boolean(between);
    const last = found.at(-1);
    if (last && last.changed === changed) last.text += piece.text;
    else found.push({ text: piece.text, changed });
  });
  return found;
}

/**
 * Return the paths at which two JSON values differ.
 * @param {unknown} a
 * @param {unknown} b
 * @param {string} [path]
 * @returns {{path: string, a: unknown, b: unknown}[]}
 */
export function jsonDifference(a, b, path = "") {
  if (a === b) return [];
  if (isObject(a) && isObject(b)) {
    const names = [...new Set([...Object.keys(a), ...Object.keys(b)])].sort();
    return names.flatMap((name) =>
      jsonDifference(a[name], b[name], path ? `${path}.${name}` : name),
    );
  }
  if (Array.isArray(a) && Array.isArray(b)) {
    const size = Math.max(a.length, b.length);
    return Array.from({ length: size }, (_, at) => at).flatMap((at) =>
      jsonDifference(a[at], b[at], `${path}[${at}]`),
    );
  }
  return [{ path: path || "(whole)", a, b }];
}

/** @param {unknown} value @returns {value is Record<string, unknown>} */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * @typedef {{key: string, kind: string, fingerprint?: string | null, digest?: string | null, request?:
 * unknown, outcome?: unknown}} Step
 */
/** @typedef {{key: string, a: Step | null, b: Step | null, same: boolean, cause: string}} Aligned */

/**
 * Align the steps of two executions by their keys, in the order of A; steps of B alone follow their
 * predecessor.
 * @param {Step[]} a @param {Step[]} b @returns {Aligned[]}
 */
export function alignedSteps(a, b) {
  const other = new Map(b.map((step) => [`${step.kind} ${step.key}`, step]));
  const own = new Set(a.map((step) => `${step.kind} ${step.key}`));
  /** @type {Aligned[]} */
  const found = [];
  let next = 0;
  const alone = (/** @type {number} */ until) => {
    for (; next < until; next++)
      if (!own.has(`${b[next].kind} ${b[next].key}`)) found.push(aligned(null, b[next]));
  };
  for (const step of a) {
    const match = other.get(`${step.kind} ${step.key}`) ?? null;
    if (match) alone(b.indexOf(match));
    found.push(aligned(step, match));
    if (match) next = Math.max(next, b.indexOf(match) + 1);
  }
  alone(b.length);
  return found;
}

/** @param {Step | null} a @param {Step | null} b @returns {Aligned} */
function aligned(a, b) {
  const key = (a ?? b)?.key ?? "";
  const cause = differenceOf(a, b);
  return { key, a, b, same: !cause, cause };
}

/**
 * Return in words how two steps differ, empty if they do not.
 * @param {Step | null} a
 * @param {Step | null} b
 */
function differenceOf(a, b) {
  if (!a || !b) return a ? "only in A" : "only in B";
  const proves = a.fingerprint && b.fingerprint;
  if (proves ? a.fingerprint !== b.fingerprint : changed(a.request, b.request))
    return "was asked something else";
  const answered = a.digest && b.digest;
  if (answered ? a.digest !== b.digest : changed(a.outcome, b.outcome))
    return "answered differently";
  return "";
}

/** @param {unknown} a @param {unknown} b */
const changed = (a, b) => jsonDifference(a ?? null, b ?? null).length > 0;
