// What programs do with the generated types. `make openapi-check` compiles it.
import type { components, operations } from "./api";

type Schemas = components["schemas"];
const request: Schemas["SystemRequest"] = { messages: [{ role: "user", content: "Hello" }] };
const answer: Schemas["ResumeRequest"] = { tool_id: "ask_person", payload: "yes" };
type Listed = operations["listExecutions"]["responses"][200]["content"]["application/json"];

export function shown(response: Schemas["SystemResponse"]): string {
  return response.error === null || response.error === undefined ? (response.content ?? "") : response.error.code;
}

export function open(page: Schemas["SuspensionPage"]): string[] {
  return page.data.map((each) => `${each.request_id}/${each.suspension_id}`);
}

export function providers(events: Schemas["ExecutionEvent"][]): string[] {
  return events.flatMap((event) => (event.type === "inference.start" ? [event.provider] : []));
}

export const sent: [Schemas["SystemRequest"], Schemas["ResumeRequest"]] = [request, answer];
export type Ids = Listed["data"][number]["request_id"];
