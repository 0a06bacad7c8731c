// @ts-check
/**
 * One request as a command of curl, a program of Python and one of TypeScript. Pure functions; the key is
 * never in them.
 */

/** @param {string} text A word for a POSIX shell, which reads nothing in it. */
export const shellWord = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** @param {unknown} value @returns {string} A Python literal. */
function pythonLiteral(value, indent = "") {
  const deeper = `${indent}    `;
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return pythonText(value);
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return `[\n${value.map((each) => `${deeper}${pythonLiteral(each, deeper)},\n`).join("")}${indent}]`;
  }
  const entries = Object.entries(value);
  if (!entries.length) return "{}";
  const lines = entries.map(
    ([name, each]) => `${deeper}${pythonText(name)}: ${pythonLiteral(each, deeper)},\n`,
  );
  return `{\n${lines.join("")}${indent}}`;
}

/**
 * A JSON text is a Python text, except that it may hold line ends of Unicode and escapes of halves.
 * @param {string} text
 */
const pythonText = (text) =>
  ascii(JSON.stringify(text), (code) => `\\U${code.toString(16).padStart(8, "0")}`);

/** @param {string} text @param {(code: number) => string} escape */
const ascii = (text, escape) =>
  text.replace(/[^\x20-\x7e]/gu, (found) => escape(found.codePointAt(0) ?? 0));

/** @typedef {{base: string, body: Record<string, unknown>, auth: boolean, stream: boolean}} Call */

/** @param {Call} call */
export function curlSnippet({ base, body, auth, stream }) {
  const lines = [
    `curl -s${stream ? "N" : ""} ${shellWord(`${base}/v1/execute`)}`,
    "-H 'Content-Type: application/json'",
  ];
  if (stream) lines.push("-H 'Accept: text/event-stream'");
  if (auth) lines.push('-H "Authorization: Bearer $PORTICO_KEY"');
  lines.push(`--data-raw ${shellWord(JSON.stringify(body))}`);
  return `${lines.join(" \\\n  ")}\n`;
}

/** @param {Call} call */
export function pythonSnippet({ base, body, auth, stream }) {
  const headers = auth
    ? '    headers={"Authorization": f"Bearer {os.environ[\'PORTICO_KEY\']}"},\n'
    : "";
  const events = stream
    ? auth
      ? headers.replace("headers={", 'headers={"Accept": "text/event-stream", ')
      : '    headers={"Accept": "text/event-stream"},\n'
    : headers;
  const sent = `    json=${pythonLiteral(body, "    ")},\n    timeout=600,\n`;
  const call = `${pythonText(`${base}/v1/execute`)},\n${events}${sent}`;
  const imports = `${auth ? "import os\n\n" : ""}import httpx\n\n`;
  if (!stream)
    return `${imports}answer = httpx.post(\n    ${call})\nprint(answer.json()["content"])\n`;
  const lines = "    for line in answer.iter_lines():\n        print(line)\n";
  return `${imports}with httpx.stream(\n    "POST",\n    ${call}) as answer:\n${lines}`;
}

/** @param {Call} call */
export function typescriptSnippet({ base, body, auth, stream }) {
  const headers = ['"Content-Type": "application/json"'];
  if (stream) headers.push('Accept: "text/event-stream"');
  if (auth) headers.push("Authorization: `Bearer ${process.env.PORTICO_KEY}`");
  const text = ascii(JSON.stringify(body, null, 2), (code) =>
    code > 0xffff
      ? `\\u{${code.toString(16)}}`
      : code === 10
        ? "\n"
        : `\\u${code.toString(16).padStart(4, "0")}`,
  ).replaceAll("\n", "\n  ");
  const options = `  headers: { ${headers.join(", ")} },\n  body: JSON.stringify(${text}),\n`;
  const url = JSON.stringify(`${base}/v1/execute`);
  const head = `const answer = await fetch(${url}, {\n  method: "POST",\n${options}});\n`;
  if (!stream) return `${head}console.log((await answer.json()).content);\n`;
  const pieces = "answer.body!.pipeThrough(new TextDecoderStream())";
  return `${head}for await (const piece of ${pieces}) console.log(piece);\n`;
}
