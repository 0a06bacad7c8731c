/** Frames of an event stream, and the text that its deltas add up to. */
import type { components } from "./api.js";

type Schemas = components["schemas"];
type ExecutionEvent = Schemas["ExecutionEvent"];

/** A change of the text that is shown: the last `replaces` code points give way to `text`. */
export interface TextPart {
  text: string;
  replaces: number;
  /** The attempt whose text it is; null in the last part, which makes up for what no delta brought. */
  segment: string | null;
}

/** Yield the `data` of each whole frame; a frame that is cut short is left out. */
export async function* readFrames(
  body: ReadableStream<Uint8Array>,
  read: <T>(chunk: Promise<T>) => Promise<T>,
): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await read(reader.read());
      if (done) return;
      const start = rest.length;
      rest += decoder.decode(value, { stream: true });
      let from = 0;
      for (let end = rest.indexOf("\n", start); end >= 0; end = rest.indexOf("\n", from)) {
        const line = rest.slice(from, rest[end - 1] === "\r" ? end - 1 : end);
        from = end + 1;
        if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
        if (line !== "" || data.length === 0) continue;
        yield data.join("\n");
        data = [];
      }
      rest = rest.slice(from);
    }
  } finally {
    await reader.cancel().catch(() => undefined); // A stream that has failed cannot be cancelled.
  }
}

interface Segment {
  text: string;
  /** Code points of `text`. */
  size: number;
}

/** The text that the deltas of a stream add up to: that of the attempts, one after the other. */
export class TextFold {
  readonly #segments = new Map<string, Segment>();
  #last: string | null = null;

  constructor(readonly kind: "text" | "reasoning") {}

  /** Return the change that an event brings. A repeated delta is cut; one behind a gap is left to the last part. */
  take(event: ExecutionEvent): TextPart | null {
    if (event.type === "inference.retracted") return this.#retract(event.segment);
    const text = event.type === "inference.delta" ? event[this.kind] : null;
    return event.type === "inference.delta" && text ? this.#grow(event.segment, event.offset, text) : null;
  }

  /** Return the change from what is shown to the content of a complete execution; null if they are equal. */
  last(response: Schemas["SystemResponse"] | null): TextPart | null {
    const content = response?.state === "COMPLETE" ? response.content : null;
    const shown = [...this.#segments.values()].map((each) => each.text).join("");
    if (content === null || content === undefined || shown === content) return null;
    let common = 0;
    while (common < shown.length && shown[common] === content[common]) common += 1;
    if (common > 0 && /[\ud800-\udbff]/.test(shown.charAt(common - 1))) common -= 1; // Inside a code point.
    return { text: content.slice(common), replaces: codePoints(shown.slice(common)), segment: null };
  }

  #grow(name: string, offset: number, text: string): TextPart | null {
    let segment = this.#segments.get(name);
    if (segment === undefined) {
      segment = { text: "", size: 0 };
      this.#segments.set(name, segment);
      this.#last = name;
    }
    if (offset > segment.size) return null;
    const added = offset === segment.size ? text : [...text].slice(segment.size - offset).join("");
    if (added === "") return null;
    segment.text += added;
    segment.size += codePoints(added);
    const later = name === this.#last ? "" : this.#after(name);
    return { text: added + later, replaces: codePoints(later), segment: name };
  }

  #retract(name: string): TextPart | null {
    const segment = this.#segments.get(name);
    if (segment === undefined) return null;
    const later = this.#after(name);
    this.#segments.delete(name);
    this.#last = [...this.#segments.keys()].at(-1) ?? null;
    if (segment.size === 0) return null;
    return { text: later, replaces: segment.size + codePoints(later), segment: name };
  }

  /** Return the text of the attempts that began after that one. */
  #after(name: string): string {
    const names = [...this.#segments.keys()];
    return names.slice(names.indexOf(name) + 1).map((each) => this.#segments.get(each)?.text).join("");
  }
}

function codePoints(text: string): number {
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}
