// @ts-check
/** The frame of the console: navigation, the key, shortcuts, and the page of the present place. */
import { html, render, useEffect, useRef, useState } from "./vendor/preact.js";
import { askWith, forget, hasKey, json, signOut } from "./parts/api.js";
import { Icon } from "./parts/icons.js";
import { countQuestions, followList, questions, status } from "./parts/live.js";
import { me, said, say, shortcutsOn, switchShortcuts, useMe } from "./parts/person.js";
import { parse } from "./parts/route.js";
import { visible } from "./parts/text.js";
import { Button, Guarded, Loading, useNow, useObserved } from "./parts/ui.js";

/** @type {[string, string][]} */
const MAIN = [
  ["now", "Now"],
  ["executions", "Executions"],
  ["questions", "Questions"],
  ["sessions", "Sessions"],
  ["try", "Try"],
];
/** @type {[string, string][]} */
const PARTS = [
  ["flows", "Flows"],
  ["agents", "Agents"],
  ["tools", "Tools"],
  ["engines", "Engines"],
  ["memory", "Memory"],
];
/** @type {[string, string][]} */
const REST = [
  ["usage", "Usage"],
  ["keys", "Keys"],
  ["errors", "Errors"],
  ["machines", "Machines"],
];
const BOTTOM = [...MAIN.slice(0, 3), MAIN[4]];
const CATALOGUES = new Set(["agents", "tools", "errors", "machines"]);
const NAMES = new Set([...MAIN, ...PARTS, ...REST].map(([name]) => name).concat("compare"));
const THEME = "portico.theme";

/** @type {Map<string, any>} */
const loaded = new Map();

/** Load the styles of the pages besides the first, once. */
let styled = /** @type {Promise<unknown> | null} */ (null);
const moreStyles = () => (styled ??= Promise.all(["execution.css", "pages.css"].map(loadStyle)));

/** @param {string} name @returns {Promise<unknown>} */
const loadStyle = (name) =>
  new Promise((done) => {
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = new URL(name, import.meta.url).href;
    style.onload = style.onerror = done;
    document.head.append(style);
  });

/** Load the module of a page when it is opened first. @param {string} name @param {string[]} args */
async function pageModule(name, args) {
  if (name !== "executions" || args.length) await moreStyles();
  if (CATALOGUES.has(name)) return import("./pages/catalogue.js");
  if (name === "executions" && args.length) return import("./pages/execution.js");
  return import(`./pages/${name}.js`);
}

/** @param {{place: import("./parts/route.js").Place}} props */
function Page({ place }) {
  const known = NAMES.has(place.page);
  const id = place.page === "executions" && place.args.length ? "execution" : place.page;
  const [, arrived] = useState(0);
  const [error, setError] = useState(/** @type {any} */ (null));
  useEffect(() => {
    if (!known || loaded.has(id)) return;
    pageModule(place.page, place.args).then((module) => {
      loaded.set(id, module.default);
      arrived((n) => n + 1);
    }, setError);
  }, [id]);
  if (!known)
    return html`
      <div class="page">
        <h1 tabindex="-1">There is no such page</h1>
        <a href="#/executions">Executions</a>
      </div>
    `;
  if (error) throw error;
  const Found = loaded.get(id);
  return Found ? html`
    <${Found} place=${place} key=${[id, ...place.args.slice(0, id === "compare" ? 2 : 1)].join("/")} />
  ` : html`
    <${Loading} />
  `;
}

/** @param {{items: [string, string][], page: string}} props */
const Links = ({ items, page }) => {
  const open = useObserved(questions);
  return items.map(([name, title]) => html`
    <a
      key=${name}
      href=${`#/${name}`}
      aria-current=${
        page === name || (page === "compare" && name === "executions") ? "page" : undefined
      }>
      <${Icon} name=${name} />
      <span>${title}</span>
      ${name === "questions" && open > 0 && html`
        <b class="count">
          ${open}
          <span class="hidden"> open</span>
        </b>
      `}
    </a>
  `);
};

/** @param {{page: string, more: () => void}} props */
function Navigation({ page, more }) {
  return html`
      <nav aria-label="Pages" class="side">
        <a class="brand" href="#/executions">
          <svg class="mark" viewBox="0 0 24 24" aria-hidden="true">
            <path d="M12 2 2.5 7.2V9h19V7.2zM2.5 19.5h19V22h-19z" />
            <path d="M4.5 10.5h2.4V18H4.5zM10.8 10.5h2.4V18h-2.4zM17.1 10.5h2.4V18h-2.4z" />
          </svg>
          Portico
        </a>
        ${[MAIN, PARTS, REST].map((items) => html`
          <div>
            <${Links} items=${items} page=${page} />
          </div>
        `)}
        <${Person} />
      </nav>
      <nav aria-label="Main pages" class="bottom">
        <${Links} items=${BOTTOM} page=${page} />
        <button onClick=${more} aria-haspopup="dialog">
          <${Icon} name="more" />
          <span>More</span>
        </button>
      </nav>
  `;
}

function Person() {
  const person = useMe();
  return html`
    <footer>
      ${person && html`
        <p>
          <i class="avatar" aria-hidden="true">
            ${visible(person.user ?? "?")
              .slice(0, 1)
              .toUpperCase()}
          </i>
          <span>
            <b>${visible(person.user)}</b>
            <small>
              ${visible(person.tenant)}
              ${person.replicas > 1 ? ` · ${person.replicas} replicas` : ""}
            </small>
          </span>
        </p>
      `}
      <${Switches} />
    </footer>
  `;
}

function Switches() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "");
  const [keys, setKeys] = useState(shortcutsOn());
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const change = () => {
    const next = dark ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    sessionStorage.setItem(THEME, next);
    setTheme(next);
  };
  return html`
    <div class="switches">
      <${Button} kind="quiet" icon="theme" onClick=${change}>
        ${dark ? "Light" : "Dark"}
      <//>
      <${Button} kind="quiet hints" aria-pressed=${keys} onClick=${() => setKeys(switchShortcuts())}>
        Keys ${keys ? "on" : "off"}
      <//>
      ${hasKey() && html`
        <${Button} kind="quiet" icon="out" onClick=${leave}>
          Sign out
        <//>
      `}
    </div>
  `;
}

function leave() {
  signOut();
  forget();
  location.reload();
}

/** The state of the live connection, as a line while it is cut. */
function Connection() {
  const now = useNow(1000);
  const { name, retry } = useObserved(status);
  return html`
    <div data-live=${name} class="connection">
      ${name === "offline" && html`
        <p role="status">
          The connection is cut. Trying again${" "}
          ${retry > now ? `in ${Math.ceil((retry - now) / 1000)} s` : "now"}.
        </p>
      `}
    </div>
  `;
}

function Shell() {
  const [place, setPlace] = useState(parse(location.hash));
  const [question, setQuestion] = useState(/** @type {any} */ (null));
  const [help, setHelp] = useState(/** @type {any} */ (null));
  const [more, setMore] = useState(/** @type {any} */ (null));
  const spoken = useObserved(said);
  const open = useObserved(questions);
  const main = useRef(/** @type {any} */ (null));
  const own = (place.page === "executions" && place.args.length > 0) || place.page === "compare";
  const path = [place.page, ...place.args].join("/");
  const was = useRef(path);
  const count = useRef(open);

  useEffect(() => {
    askWith(
      (refused) =>
        new Promise((give) =>
          import("./parts/sign_in.js").then(({ SignIn }) =>
            setQuestion({
              SignIn,
              refused,
              give: (/** @type {any} */ given) => {
                setQuestion(null);
                give(given);
              },
            }),
          ),
        ),
    );
    json("me").then(me.set, () => {});
    const move = () => {
      setPlace(parse(location.hash));
      setMore(null);
    };
    addEventListener("hashchange", move);
    return () => removeEventListener("hashchange", move);
  }, []);
  useEffect(() => {
    import("./parts/shortcuts.js").then((keys) => keys.listen(() => setHelp(keys)));
  }, []);
  useEffect(() => (own ? undefined : followList()), [own]);
  useEffect(() => countQuestions(() => !own && status.get().name === "live"), [own]);
  useEffect(() => {
    document.title = open ? `(${open}) Portico` : "Portico";
    if (open > count.current) say(open === 1 ? "A question is open" : `${open} questions are open`);
    count.current = open;
  }, [open]);
  useEffect(() => {
    if (was.current === path) return;
    const samePage =
      was.current.split("/").slice(0, 2).join() === path.split("/").slice(0, 2).join() &&
      place.page === "executions";
    was.current = path;
    if (samePage) return;
    scrollTo(0, 0);
    const timer = setInterval(() => {
      const heading = main.current?.querySelector("h1");
      if (!heading) return;
      heading.focus({ preventScroll: true });
      clearInterval(timer);
    }, 50);
    return () => clearInterval(timer);
  }, [path]);

  return html`
      <${Navigation} page=${place.page} more=${() => import("./parts/dialog.js").then(setMore)} />
      <main ref=${main} data-page=${place.page} id="main">
        <${Connection} />
        <${Guarded} key=${path}>
          <${Page} place=${place} />
        <//>
      </main>
      <div class="hidden" role="status" aria-live="polite">
        ${spoken}
      </div>
      ${more && html`
        <${more.Dialog} title="More" kind="sheet" close=${() => setMore(null)}>
          <div class="sheet-links">
            <${Links} items=${[MAIN[3], ...PARTS, ...REST]} page=${place.page} />
          </div>
          <${Person} />
        <//>
      `}
      ${help && html`<${help.Shortcuts} close=${() => setHelp(null)} />`}
      ${question && html`<${question.SignIn} ...${question} />`}
  `;
}

const kept = sessionStorage.getItem(THEME);
if (kept) document.documentElement.dataset.theme = kept;
const root = /** @type {HTMLElement} */ (document.getElementById("console"));
root.replaceChildren();
render(html`<${Shell} />`, root);
