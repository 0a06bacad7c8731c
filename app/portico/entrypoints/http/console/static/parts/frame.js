// @ts-check
/** What pages besides the first share: their frame, texts, lists of items, the question before a deletion. */
import { html, useEffect, useState } from "../vendor/preact.js";
import { json, once } from "./api.js";
import { Dialog } from "./dialog.js";
import { Alert, failureText } from "./fields.js";
import { link, query } from "./route.js";
import { asText, bytes, visible } from "./text.js";
import { Button, Heading, useLoaded } from "./ui.js";

const DATA_URL = /data:([\w.+-]+\/[\w.+-]+)?(?:;[\w=.-]+)*;base64,([A-Za-z0-9+/=]{64,})/g;
const FOLDED = 65536;
const CLAMPED = 4000;

/**
 * A page with its heading; `up` is the place and the title of the list that it belongs to.
 * @param {{title: string, note?: any, up?: [string, string], actions?: any, children: any}} props
 */
export const Frame = ({ title, note, up, actions, children }) => html`
  <div class="page">
    ${up && html`
      <p class="crumbs">
        <a href=${`#/${up[0]}`}>${up[1]}</a>
      </p>
    `}
    <header class="top">
      <${Heading}>${visible(title)}<//>
      <span class="live-label">${note}</span>
      <span class="grow"></span>
      ${actions}
    </header>
    ${children}
  </div>
`;

/**
 * A table of items; on a narrow screen its rows are cards. A column is its title, its cells, and a class such
 * as `n` for figures.
 * @typedef {[any, (row: any) => any, string?]} Column
 * @param {{rows: any[], columns: Column[], id: (row: any) => string, marks?: (row: any) => any,
 * head?: boolean}} props
 */
export const List = ({ rows, columns, id, marks = () => ({}), head = true }) => html`
  <table class="list">
    ${head && html`
      <thead>
        <tr>
          ${columns.map(([title, , kind], at) => html`<th key=${at} class=${kind}>${title}</th>`)}
        </tr>
      </thead>
    `}
    <tbody>
      ${rows.map((row) => html`
        <tr key=${id(row)} ...${marks(row)}>
          ${columns.map(([title, cell, kind], at) => html`
            <td
              key=${at}
              class=${kind}
              data-name=${at && head && typeof title === "string" ? title : undefined}>
              ${cell(row)}
            </td>
          `)}
        </tr>
      `)}
    </tbody>
  </table>
`;

/** The name of an item as a link to its page, with a second line. @param {any} props */
export const Name = ({ place, text, children }) => html`
    <a data-row href=${link(place)}>
      ${visible(text)}
    </a>
    ${children && html`<small>${children}</small>`}
`;

/**
 * Ask once before something is gone; `act` is the name of the button and `run` does it.
 * @param {{title: string, text: string, act: string, run: () => Promise<any>, close: () => void}} props
 */
export function Confirm({ title, text, act, run, close }) {
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const yes = async () => {
    setBusy(true);
    await run().catch((failure) => setError(failureText(failure)));
    setBusy(false);
  };
  return html`
    <${Dialog} title=${title} close=${close}>
      <p>${text}</p>
      <${Alert} text=${error} />
      <div class="actions">
        <${Button} kind="danger" off=${busy} onClick=${yes}>
          ${act}
        <//>
        <${Button} kind="quiet" onClick=${close}>
          Keep it
        <//>
      </div>
    <//>
  `;
}

/** Return the rows of what changes only with the service, none before they are known. @param {string} path */
export function useRows(path) {
  const [rows, set] = useState(/** @type {any[]} */ ([]));
  useEffect(
    () =>
      void once(path).then(
        (all) => set(all.data),
        () => {},
      ),
    [path],
  );
  return rows;
}

/** Return what a request may name as its model: routes and engines. */
export const useModels = () => [
  ...new Set(useRows("engines").flatMap((each) => [...each.routes, each.name])),
];

/** Run something now and then while the page is seen. @param {() => void} run @param {number} ms */
export const useEvery = (run, ms) =>
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && run(), ms);
    return () => clearInterval(timer);
  }, []);

/** Replace embedded data by its type and size. @param {string} text */
export const withoutData = (text) =>
  text.includes(";base64,")
    ? text.replace(
        DATA_URL,
        (_all, type, data) => `[${type || "data"}, ${bytes(data.length * 0.75)}]`,
      )
    : text;

/**
 * A text that others wrote: never markup, never a link.
 * @param {{text: unknown, class?: string, model?: boolean}} props
 */
export function Text({ text, class: name = "", model = true }) {
  const [open, setOpen] = useState(false);
  const whole = withoutData(asText(text));
  const folds = whole.length > CLAMPED;
  const shown = folds && !open ? whole.slice(0, CLAMPED) : whole;
  const size = whole.length > FOLDED ? `, ${bytes(whole.length)}` : "";
  return html`
    <div class=${`text ${name}`} data-text=${model ? "" : undefined}>
      ${visible(shown)}
      ${folds && !open ? "…" : ""}
      ${folds && html`
        <button class="link" onClick=${() => setOpen(!open)}>
          ${open ? "Fold" : `Show all${size}`}
        </button>
      `}
    </div>
  `;
}

/** Name and value pairs in a line. @param {{pairs: [string, any][]}} props */
export const Facts = ({ pairs }) => html`
  <dl class="facts">
    ${pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => html`
        <div key=${name}>
          <dt>${name}</dt>
          <dd>${value}</dd>
        </div>
      `)}
  </dl>
`;

/** @param {{code: string}} props */
export const ErrorCode = ({ code }) => html`<a href=${`#/errors/${code}`}>${code}</a>`;

/** Read a list page by page. @param {string} path @param {Record<string, any>} values */
export function usePages(path, values) {
  const [rest, setRest] = useState({
    of: /** @type {any} */ (null),
    rows: /** @type {any[]} */ ([]),
    next: null,
  });
  const first = useLoaded(
    (signal) => json(`${path}${query(values)}`, { signal }),
    [path, JSON.stringify(values)],
  );
  const known = rest.of === first.value;
  const next = known ? rest.next : first.value?.next;
  const more = async () => {
    const page = await json(`${path}${query({ ...values, after: next })}`);
    setRest({
      of: first.value,
      rows: [...(known ? rest.rows : []), ...page.data],
      next: page.next,
    });
  };
  return {
    ...first,
    rows: [...(first.value?.data ?? []), ...(known ? rest.rows : [])],
    more: next ? more : null,
  };
}
