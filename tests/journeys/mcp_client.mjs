// The official TypeScript SDK as a client of the MCP server at argv[2].
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const client = new Client({ name: "journey", version: "1.0.0" }, { capabilities: { elicitation: {} } });
const asked = [];
client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
  asked.push([params.message.includes("May I?"), Object.keys(params.requestedSchema.properties)]);
  return { action: "accept", content: { answer: "yes" } };
});
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const { tools } = await client.listTools();
const progress = [];
const onprogress = ({ message }) => progress.push(message);
const said = await client.callTool({ name: "execute", arguments: { message: "Hello" } }, undefined, { onprogress });
const answered = await client.callTool({ name: "execute", arguments: { message: 'Use ask_person: "May I?"' } });
const refused = await client.callTool({ name: "execute", arguments: { message: "" } });
console.log(
  JSON.stringify({
    tools: tools.map(({ name }) => name),
    said: said.structuredContent.state,
    progressed: progress.length > 0,
    asked,
    answered: answered.content[0].text.includes("yes"),
    refused: refused.isError,
  }),
);
await client.close();
