/** Routes beside executions, in groups. */
import type { components, operations } from "./api.js";
import type { Query, Sent, Transport } from "./transport.js";

type Schemas = components["schemas"];
type Id = string;
type Call = { signal?: AbortSignal };
type Items<T> = AsyncGenerator<T, void, undefined>;
type Page = { limit?: number };
type QueryOf<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;

/** Yield the items of all pages from `after` on. */
export async function* paged<T>(transport: Transport, path: string, query: Query, call: Call): Items<T> {
  for (let after: string | null | undefined = query["after"] as string | undefined; ; ) {
    const sent: Sent = { ...call, query: { limit: 100, ...query, after } };
    const { data, next }: { data: T[]; next: string | null } = await transport.json("GET", path, sent);
    yield* data;
    if (next === null || next === undefined) return;
    after = next;
  }
}

class Group {
  constructor(protected readonly transport: Transport) {}
}

const at = (...parts: string[]): string => `/v1/${parts.map(encodeURIComponent).join("/")}`;
const file = (id: Id, path: string): string => `${at("sessions", id, "files")}/${path.split("/").map(encodeURIComponent).join("/")}`;

export class Sessions extends Group {
  list = (page: Page = {}, call: Call = {}): Items<Schemas["SessionView"]> =>
    paged(this.transport, at("sessions"), page, call);
  get = (id: Id, call: Call = {}) => this.transport.json<Schemas["SessionView"]>("GET", at("sessions", id), call);
  update = (id: Id, changes: Schemas["SessionChanges"], call: Call = {}) =>
    this.transport.json<Schemas["SessionView"]>("PATCH", at("sessions", id), { body: changes, ...call });
  delete = (id: Id, query: { forks?: "delete" } = {}, call: Call = {}) =>
    this.transport.json<null>("DELETE", at("sessions", id), { query, ...call });
  messages = (id: Id, page: Page = {}, call: Call = {}): Items<Schemas["MessagePage"]["data"][number]> =>
    paged(this.transport, at("sessions", id, "messages"), page, call);
  files = (id: Id, page: Page = {}, call: Call = {}): Items<Schemas["FileView"]> =>
    paged(this.transport, at("sessions", id, "files"), page, call);
  getFile = (id: Id, path: string, call: Call = {}): Promise<Uint8Array> =>
    this.transport.bytes("GET", file(id, path), { headers: { Accept: "*/*" }, ...call });
  putFile = (id: Id, path: string, content: Uint8Array | Blob, call: Call = {}) =>
    this.transport.json<Schemas["WrittenFileView"]>("PUT", file(id, path), { body: content, ...call });
  deleteFile = (id: Id, path: string, call: Call = {}) => this.transport.json<null>("DELETE", file(id, path), call);
}

export class Memory extends Group {
  list = (page: Page = {}, call: Call = {}): Items<Schemas["DocumentSummary"]> =>
    paged(this.transport, at("memory"), page, call);
  get = (id: Id, call: Call = {}) => this.transport.json<Schemas["DocumentView"]>("GET", at("memory", id), call);
  put = (id: Id, document: Schemas["DocumentContent"], call: Call = {}) =>
    this.transport.json<Schemas["DocumentView"]>("PUT", at("memory", id), { body: document, ...call });
  delete = (id: Id, call: Call = {}) => this.transport.json<null>("DELETE", at("memory", id), call);
  search = (query: Schemas["MemoryQuery"], call: Call = {}) =>
    this.transport.json<Schemas["MemorySearchView"]>("POST", at("memory", "search"), { body: query, ...call });
}

export class Suspensions extends Group {
  /** Yield the open suspensions that the caller may answer. */
  list = (query: QueryOf<"listSuspensions"> = {}, call: Call = {}): Items<Schemas["OpenSuspension"]> =>
    paged(this.transport, at("suspensions"), query as Query, call);
}

export class Catalogue extends Group {
  agents = (call: Call = {}) => this.transport.json<Schemas["AgentList"]>("GET", at("agents"), call);
  engines = (call: Call = {}) => this.transport.json<Schemas["EngineList"]>("GET", at("engines"), call);
  errors = (call: Call = {}) => this.transport.json<Schemas["FailureList"]>("GET", at("errors"), call);
  flows = (call: Call = {}) => this.transport.json<Schemas["FlowList"]>("GET", at("flows"), call);
  flow = (name: string, call: Call = {}) => this.transport.json<Schemas["FlowView"]>("GET", at("flows", name), call);
  machines = (call: Call = {}) => this.transport.json<Schemas["MachineList"]>("GET", at("machines"), call);
  prompts = (call: Call = {}) => this.transport.json<Schemas["PromptList"]>("GET", at("prompts"), call);
  skills = (call: Call = {}) => this.transport.json<Schemas["SkillList"]>("GET", at("skills"), call);
  stepTypes = (call: Call = {}) => this.transport.json<Schemas["StepTypeList"]>("GET", at("step-types"), call);
  tools = (call: Call = {}) => this.transport.json<Schemas["ToolList"]>("GET", at("tools"), call);
}

export class Usage extends Group {
  get = (query: QueryOf<"getUsage"> = {} as QueryOf<"getUsage">, call: Call = {}) =>
    this.transport.json<Schemas["UsageList"]>("GET", at("usage"), { query: query as Query, ...call });
  statistics = (query: QueryOf<"getStatistics"> = {} as QueryOf<"getStatistics">, call: Call = {}) =>
    this.transport.json<Schemas["StatisticsView"]>("GET", at("stats"), { query: query as Query, ...call });
}
