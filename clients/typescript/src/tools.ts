/** Tools that the caller's own program runs. */
import type { components } from "./api.js";

type Schemas = components["schemas"];

/** A tool of this program: `run` gets the arguments, an object by `parameters`, and returns what JSON can say. */
export interface Tool {
  name: string;
  description?: string;
  /** JSON Schema of the arguments. */
  parameters?: Record<string, unknown>;
  run: (args: any) => unknown;
}

/** Return what a request says of tools: those of this program, and by their names those of the service. */
export function offered(tools: readonly (Tool | string)[]): Pick<Schemas["SystemRequest"], "tools" | "client_tools"> {
  const named = tools.filter((each) => typeof each === "string");
  const own = tools.filter((each) => typeof each !== "string");
  const shown = own.map(({ run, ...described }) => described as Schemas["ClientTool"]);
  return { ...(named.length > 0 ? { tools: named } : {}), ...(shown.length > 0 ? { client_tools: shown } : {}) };
}

/** Run the call that a suspension waits for, and return its answer; undefined if it is none of these tools'. */
export function answerOf(tools: readonly (Tool | string)[], call: Schemas["Suspension"]): Promise<unknown> | undefined {
  const tool = tools.find((each) => typeof each !== "string" && each.name === call.tool_id) as Tool | undefined;
  return call.kind === "client_tool" && tool ? ran(tool, call.value) : undefined;
}

async function ran(tool: Tool, args: unknown): Promise<unknown> {
  try {
    const text = JSON.stringify(await tool.run(args)) ?? "null";
    return { result: JSON.parse(text) as unknown };
  } catch (error) {
    return { result: error instanceof Error ? `${error.name}: ${error.message}` : String(error), is_error: true };
  }
}
