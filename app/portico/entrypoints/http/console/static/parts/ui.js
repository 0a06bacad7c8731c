// @ts-check
/** Small parts that every page uses. */
import { html, useEffect, useErrorBoundary, useState } from "../vendor/preact.js";
import { ApiError, once } from "./api.js";
import { Icon } from "./icons.js";
import { age, fullTime, visible } from "./text.js";

/** @template T @param {{get: () => T, subscribe: (reader: (value: T) => void) => () => void}} source */
export function useObserved(source) {
  const [value, set] = useState(source.get());
  useEffect(() => {
    set(source.get());
    return source.subscribe(set);
  }, [source]);
  return value;
}

/** Return the time, again every `ms` while `runs`. @param {number} ms */
export function useNow(ms, runs = true) {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    if (!runs) return undefined;
    const timer = setInterval(() => !document.hidden && set(Date.now()), ms);
    return () => clearInterval(timer);
  }, [ms, runs]);
  return now;
}

/**
 * Load something, anew when `keys` change; `loaded` keeps its last value while it is loaded anew.
 * @param {(signal: AbortSignal) => Promise<any>} load @param {unknown[]} keys
 */
export function useLoaded(load, keys) {
  const [state, set] = useState(
    /** @type {{value: any, error: any, loading: boolean}} */ ({
      value: undefined,
      error: null,
      loading: true,
    }),
  );
  const [turn, again] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    set((old) => ({ ...old, error: null, loading: true }));
    load(controller.signal).then(
      (value) => !controller.signal.aborted && set({ value, error: null, loading: false }),
      (error) => !controller.signal.aborted && set((old) => ({ ...old, error, loading: false })),
    );
    return () => controller.abort();
  }, [...keys, turn]);
  return { ...state, again: () => again((n) => n + 1) };
}

/**
 * The heading of a page, which gets the focus when the page is opened.
 * @param {{children: any, class?: string}} props
 */
export const Heading = ({ children }) => html`<h1 tabindex="-1">${children}</h1>`;

/** A state with its colour and shape. @param {{state: string, live?: boolean}} props */
export const State = ({ state }) => html`
  <span class=${`state ${state}`}>
    <i class="shape" aria-hidden="true"></i>
    ${state}
  </span>
`;

/** @param {{time: string, now: number}} props */
export const Age = ({ time, now }) => html`
  <time datetime=${time} title=${fullTime(time)}>
    ${age(time, now)}
  </time>
`;

/**
 * A button. With `needs` it is off, and says the missing right.
 * @param {any} props
 */
export function Button({ icon, children, needs, off, reason, kind = "", hotkey, ...rest }) {
  const why = needs ? `needs ${needs}` : off ? reason : undefined;
  return html`
    <button
      type="button"
      class=${`button ${kind}`}
      disabled=${Boolean(needs || off)}
      title=${why}
      aria-description=${why}
      ...${rest}>
      ${icon && html`<${Icon} name=${icon} />`}
      <span>${children}</span>
      ${hotkey && html`<kbd aria-hidden="true">${hotkey}</kbd>`}
    </button>
  `;
}

/** A button for the next page, where there is one. @param {{more?: () => void}} props */
export const More = ({ more }) =>
  more && html`
    <p class="center">
      <${Button} onClick=${more}>Show more<//>
    </p>
  `;

/**
 * With `alone` it is all that the page has, and so its heading.
 * @param {{error: any, again?: () => void, alone?: boolean}} props
 */
export function Failure({ error, again, alone = false }) {
  const [row, setRow] = useState(/** @type {any} */ (null));
  useEffect(() => {
    setRow(null);
    if (error.code)
      once("errors").then(
        (all) => setRow(all.data.find((/** @type {any} */ each) => each.code === error.code)),
        () => {},
      );
  }, [error]);
  const Title = alone ? Heading : "h2";
  if (error.status === 404) {
    return html`
      <div class="notice" role="alert">
        <${Title}>Deleted, or never yours<//>
        <p>${visible(error.message)}</p>
        <a href="#/executions">Executions</a>
      </div>
    `;
  }
  const known = error instanceof ApiError;
  return html`
    <div class="notice bad" role="alert">
      <${Title}>${known ? error.code || "No answer" : "This page has failed"}<//>
      <p>${visible(error.message)}</p>
      ${row && html`
        <p class="muted">
          ${row.meaning}. ${row.recovery}
        </p>
      `}
      ${known && error.requestId && html`
        <p class="muted small">
          X-Request-Id <code>${error.requestId}</code>
        </p>
      `}
      ${again && html`<${Button} onClick=${again}>Try again<//>`}
    </div>
  `;
}

/** What stands for something that loads; it is seen after 150 ms. */
export const Loading = () => html`
  <div class="loading" role="status">
    <span class="hidden">Loading</span>
    <i></i>
    <i></i>
    <i></i>
  </div>
`;

/** @param {{title: string, children?: any, command?: string}} props */
export const Empty = ({ title, children, command }) => html`
  <div class="notice">
    <h2>${title}</h2>
    ${children && html`<p>${children}</p>`}
    ${command && html`<${Code} text=${command} label="Command" />`}
  </div>
`;

/**
 * Return a command that makes what a page has none of.
 * @param {string} method @param {string} path Below `/v1/`. @param {Record<string, unknown>} body
 */
export const example = (method, path, body) =>
  `curl -s -X ${method} ${location.origin}/v1/${path} -H 'Content-Type: application/json' \\\n` +
  `  -d '${JSON.stringify(body)}'`;

/**
 * A block of code, which scrolls in its own box.
 * @param {{text: string, label: string, model?: boolean}} props
 */
export function Code({ text, label, model = false }) {
  const [copied, setCopied] = useState(false);
  const copy = () =>
    navigator.clipboard?.writeText(text).then(
      () => setCopied(true),
      () => {},
    );
  return html`
    <div class="code">
      <pre tabindex="0" role="region" aria-label=${label} data-text=${model ? "" : undefined}>
        ${visible(text)}
      </pre>
      ${navigator.clipboard && html`
        <button class="button small" onClick=${copy}>
          ${copied ? "Copied" : "Copy"}
        </button>
      `}
    </div>
  `;
}

/**
 * Show what was loaded, or why not.
 * @param {{of: any, alone?: boolean, children: (value: any) => any}} props
 */
export function Loaded({ of, alone, children }) {
  if (of.error) return html`<${Failure} error=${of.error} again=${of.again} alone=${alone} />`;
  return of.value === undefined ? html`<${Loading} />` : children(of.value);
}

/** A page that throws says so. @param {{children: any}} props */
export function Guarded({ children }) {
  const [error, reset] = useErrorBoundary();
  if (!error) return children;
  return html`
    <div class="page">
      <div class="notice bad" role="alert">
        <h1 tabindex="-1">This page has failed</h1>
        <p>${visible(error.message)}</p>
        <${Button}
          onClick=${() => {
            reset();
            location.reload();
          }}>
          Reload page
        <//>
      </div>
    </div>
  `;
}

/** A figure with its name. @param {{value: any, name: string, tone?: string}} props */
export const Figure = ({ value, name, tone = "" }) => html`
  <div class=${`figure ${tone}`}>
    <b>${value}</b>
    <span>${name}</span>
  </div>
`;
