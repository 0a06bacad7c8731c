// The journey of argv[2], played by the TypeScript client through the proxy at argv[3].
import { readFileSync } from "node:fs";
import { Portico } from "@portico/client";

const client = new Portico({ baseUrl: process.argv[3] });
const tools = ["calculate", "ask_person"];
const shown = [];

for (const step of JSON.parse(readFileSync(process.argv[2], "utf8"))) {
  let text = "";
  let requestId;
  if (step.do === "stream") {
    const stream = client.stream(step.text, { tools });
    for await (const part of stream.text()) {
      const points = [...text];
      text = points.slice(0, points.length - part.replaces).join("") + part.text;
    }
    requestId = stream.requestId;
  } else {
    const onSuspension = step.do === "answer" ? () => "yes" : undefined;
    const response = await client.execute(step.text, { tools, onSuspension });
    [text, requestId] = [response.content, response.request_id];
  }
  const numbers = [];
  for await (const event of client.events(requestId)) numbers.push(event.sequence_number);
  shown.push([text, numbers]);
}
console.log(JSON.stringify(shown));
