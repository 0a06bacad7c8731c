// @ts-check
/** Messages of a conversation, as text. */
import { html } from "../vendor/preact.js";
import { Text } from "./frame.js";
import { asText, contentText, visible } from "./text.js";

/** @param {{messages: any[]}} props */
export const Messages = ({ messages }) =>
  messages.map((message, at) => html`
    <article key=${at} class=${`said ${message.role}`}>
      <header>
        ${message.role}
        ${message.name ? ` ${visible(message.name)}` : ""}
        ${message.tool_calls?.length
          ? ` calls ${message.tool_calls.map((/** @type {any} */ call) => visible(call.name)).join(", ")}`
          : ""}
        ${message.note ? ` · ${visible(message.note)}` : ""}
      </header>
      ${contentText(message.content) && html`
        <${Text}
          text=${contentText(message.content)}
          class=${`${message.role === "tool" ? "mono" : ""}${message.retracted ? " retracted" : ""}`}
        />
      `}
      ${message.tool_calls?.map((/** @type {any} */ call) => html`
        <${Text} key=${call.id} class="mono" text=${asText(call.arguments)} />
      `)}
    </article>
  `);
