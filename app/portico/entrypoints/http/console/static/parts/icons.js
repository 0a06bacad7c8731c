// @ts-check
/** Icons as strokes in a square of 24. */
import { html } from "../vendor/preact.js";

/** @type {Record<string, string>} */
const PATHS = {
  now: "M2 12h4l3-8 5 16 3-8h5",
  executions: "M4 6h16M4 12h16M4 18h10",
  questions: "M4 4h16v13h-8l-5 4v-4H4zM9.5 8.5a2.5 2.5 0 1 1 3.5 2.3c-.7.3-1 .7-1 1.4M12 14.5v.1",
  sessions: "M3 4h13v10H9l-4 3v-3H3zM19 8h2v10h-2v3l-4-3h-4",
  try: "M6 4l13 8-13 8z",
  flows:
    "M6 6a2 2 0 1 0 0-.1M6 18a2 2 0 1 0 0-.1M18 12a2 2 0 1 0 0-.1M8 6c6 0 3 6 8 6M8 18c6 0 3-6 8-6",
  agents: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c0-4 3.5-6 8-6s8 2 8 6",
  tools:
    "M14.5 5.5a4.5 4.5 0 0 1 5-1l-3 3 .5 2.5 2.5.5 3-3a4.5 4.5 0 0 1-6 5.5L8 21" +
      "l-4-4 8.5-8.5a4.5 4.5 0 0 1 2-3z",
  engines: "M7 7h10v10H7zM10 3v4M14 3v4M10 17v4M14 17v4M3 10h4M3 14h4M17 10h4M17 14h4",
  memory:
    "M4 6c0-1.7 3.6-3 8-3s8 1.3 8 3v12c0 1.7-3.6 3-8 3s-8-1.3-8-3z" +
      "M4 6c0 1.7 3.6 3 8 3s8-1.3 8-3M4 12c0 1.7 3.6 3 8 3s8-1.3 8-3",
  usage: "M4 21v-7M10 21V9M16 21V4M21 21H3",
  keys: "M15 9a4 4 0 1 0-3.5 4L9 15.5V18H6.5v2.5H3V17l6-6a4 4 0 0 1 6-2z",
  errors: "M12 3l10 18H2zM12 10v5M12 18v.1",
  machines: "M3 5h7v5H3zM14 14h7v5h-7zM10 7.5h7.5V14M14 16.5H6.5V10",
  more: "M5 12h.1M12 12h.1M19 12h.1",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5",
  inference:
    "M12 3v5M12 16v5M3 12h5M16 12h5M5.5 5.5l3.5 3.5M15 15l3.5 3.5M18.5 5.5L15 9M9 15l-3.5 3.5",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3 2",
  prepare: "M4 7h16M4 12h16M4 17h16",
  replay: "M4 12a8 8 0 1 0 3-6.2L4 8M4 3v5h5",
  compare: "M4 4h6v16H4zM14 4h6v16h-6z",
  close: "M5 5l14 14M19 5L5 19",
  fork: "M7 6a2 2 0 1 0-.1 0M17 6a2 2 0 1 0-.1 0M12 22a2 2 0 1 0-.1 0M7 7.5c0 6 5 4 5 10M17 7.5c0 6-5 4-5 10",
  trash: "M4 6h16M9 6V3h6v3M6 6l1 15h10l1-15",
  check: "M4 13l5 5L20 6",
  theme: "M20 14A8.5 8.5 0 0 1 10 4a8.5 8.5 0 1 0 10 10z",
  out: "M10 4H4v16h6M15 8l5 4-5 4M20 12H9",
  back: "M15 5l-7 7 7 7",
};

/** @param {{name: string}} props */
export const Icon = ({ name }) => html`
  <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
    <path d=${PATHS[name] ?? PATHS.more} />
  </svg>
`;
