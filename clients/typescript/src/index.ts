/** `@portico/client`. */
export type { components, operations } from "./api.js";
export * from "./client.js";
export * from "./errors.js";
export { ExecutionStream, type ExecutionEvent, type SystemResponse } from "./stream.js";
export type { TextPart } from "./text.js";
export type { Options } from "./transport.js";
export type { Tool } from "./tools.js";
