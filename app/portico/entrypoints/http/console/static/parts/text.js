// @ts-check
/** Texts and figures for people. Pure functions. */

/** Control and bidirectional characters, and those without a width. */
const UNSAFE = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u061c\\u200b-\\u200f" +
    "\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\ufff9-\\ufffb]",
  "g",
);
const NUMBER = new Intl.NumberFormat("en");
const FULL_TIME = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const CLOCK_SECONDS = new Intl.DateTimeFormat("en-GB", {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** Show control and bidirectional characters as escapes; tabs and line ends stay. @param {unknown} text */
export const visible = (text) =>
  String(text).replace(
    UNSAFE,
    (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

/** @param {unknown} value Any JSON value; a text stays as it is. */
export const asText = (value) =>
  typeof value === "string" ? value : (JSON.stringify(value, null, 1) ?? "");

/** @param {number | null | undefined} value */
export const number = (value) =>
  value === null || value === undefined ? "—" : NUMBER.format(value);

/** @param {number} value */
export function bytes(value) {
  if (value < 1024) return `${Math.round(value)} B`;
  return value < 1048576
    ? `${(value / 1024).toFixed(1)} KiB`
    : `${(value / 1048576).toFixed(1)} MiB`;
}

/** @param {{amount: number, currency: string} | null | undefined} cost */
export function money(cost) {
  if (!cost) return "—";
  const sign = cost.currency === "USD" ? "$" : `${cost.currency} `;
  if (cost.amount === 0) return `${sign}0`;
  return cost.amount < 0.001
    ? `< ${sign}0.001`
    : `${sign}${cost.amount.toFixed(cost.amount < 1 ? 3 : 2)}`;
}

/** Return a length of time, such as "3 ms", "1.16 s", "2 h 14 min". @param {number | null | undefined} ms */
export function span(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "—";
  if (ms < 1) return "< 1 ms";
  if (ms < 100) return `${Math.round(ms)} ms`;
  if (ms < 10000) return `${(ms / 1000).toFixed(2)} s`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms % 60000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48
    ? `${hours} h ${minutes % 60} min`
    : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Return how long ago a time was. @param {string | number} time @param {number} now Milliseconds. */
export function age(time, now) {
  const seconds = Math.round((now - new Date(time).getTime()) / 1000);
  if (seconds < 5) return seconds < -4 ? `in ${length(-seconds)}` : "now";
  return `${length(seconds)} ago`;
}

/** @param {number} seconds */
function length(seconds) {
  if (seconds < 90) return `${seconds} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** @param {string | number} time */
export const fullTime = (time) => FULL_TIME.format(new Date(time));
/** @param {string | number} time */
export const clock = (time) => CLOCK.format(new Date(time));
/** @param {string | number} time */
export const clockSeconds = (time) => CLOCK_SECONDS.format(new Date(time));
/** @param {string | number} time */
export const day = (time) => DAY.format(new Date(time));

/** Return a code in words: "rate_limited" becomes "rate limited". @param {string} code */
export const words = (code) => code.replaceAll("_", " ").toLowerCase();

/** @param {string} text @param {number} size */
export const cut = (text, size) => (text.length > size ? `${text.slice(0, size - 1)}…` : text);

/**
 * Return the text of a message's content; parts that are no text become their type and size.
 * @param {any} content
 */
export function contentText(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return asText(content ?? "");
  return content
    .map((part) =>
      part.type === "text"
        ? part.text
        : `[${part.media_type}, ${bytes((part.data ?? "").length * 0.75)}]`,
    )
    .join("\n");
}
