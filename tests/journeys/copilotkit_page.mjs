// A page of CopilotKit and its server, whose handler is that of server.mjs.
import http from "node:http";
import { CopilotKitCore, ProxiedCopilotRuntimeAgent } from "@copilotkit/core";
import { POST } from "./server.mjs";

const server = http.createServer(async (request, response) => {
  const { method, headers, url } = request;
  const answer = await POST(new Request(`http://page${url}`, { method, headers, body: request, duplex: "half" }));
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  for await (const chunk of answer.body) response.write(chunk);
  response.end();
});
await new Promise((listening) => server.listen(0, "127.0.0.1", listening));

const opened = [];
const openMenu = { name: "open_menu", description: "Open a menu.", handler: () => opened.push("menu") && "opened" };
const runtimeUrl = `http://127.0.0.1:${server.address().port}/api/copilotkit`;
const agent = new ProxiedCopilotRuntimeAgent({ runtimeUrl, agentId: "support", transport: "single" });
const core = new CopilotKitCore({ agents__unsafe_dev_only: { support: agent }, tools: [openMenu] });
const shown = [];
let interrupts = [];
agent.subscribe({ onRunFinishedEvent: ({ event }) => { interrupts = event.outcome?.interrupts ?? []; } });

async function ask(content) {
  agent.setMessages([{ id: content, role: "user", content }]);
  await core.runAgent({ agent });
}
function show() {
  shown.push([agent.messages.map(({ role }) => role).join(" "), agent.messages.at(-1).content?.split("\n").at(-1)]);
}

await ask("Hello");
show();
await ask("Use open_menu");
show();
await ask("Roll two dice with roll_dice, count 2, sides 6.");
const [{ id, reason }] = interrupts;
await agent.runAgent({ resume: [{ interruptId: id, status: "resolved", payload: { decision: "approve" } }] });
show();
console.log(JSON.stringify({ opened, reason, shown }));
process.exit(0);
