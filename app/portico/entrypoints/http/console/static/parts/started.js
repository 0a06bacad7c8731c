// @ts-check
/** Quotes of the executions that this tab started, by their ids. */

/** @type {Map<string, any>} */
const quotes = new Map();
/** @param {string} id @param {any} quote */
export const remember = (id, quote) => void (quote && quotes.set(id, quote));
/** @param {string} id */
export const quoteOf = (id) => quotes.get(id) ?? null;

/** Say a quote in words: no execution exceeds it. @param {any} quote @param {(cost: any) => string} money */
export const quoteText = (quote, money) =>
  [
    `at most ${quote.inferences} ${quote.inferences === 1 ? "inference" : "inferences"}`,
    quote.tool_calls ? `${quote.tool_calls} ${quote.tool_calls === 1 ? "call" : "calls"}` : "",
    quote.cost ? money(quote.cost) : "",
  ]
    .filter(Boolean)
    .join(", ");
