// A client on the official TypeScript SDK. It runs in the folder in which the SDK
// is installed, and connects to URL, in the environment, with the token TOKEN, or
// starts COMMAND, a JSON list of a program and its arguments, and speaks to it.
//
// First it prints the server's tools, then for each line of its standard input,
// {name, arguments}, the result of that call, or {failed} when there is none: one
// JSON value a line. It ends when its standard input does. The SDK checks each
// result against the schema that the server gave.

import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const require = createRequire(join(process.cwd(), 'client.mjs'));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');

function transportTo({ URL: url, TOKEN, COMMAND }) {
	if (url) {
		return new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers: { Authorization: `Bearer ${TOKEN}` } } });
	}
	const [command, ...args] = JSON.parse(COMMAND);
	return new StdioClientTransport({ command, args });
}

const transport = transportTo(process.env);
const client = new Client({ name: 'node', version: '1.0.0' });
client.onerror = error => console.error(error);
await client.connect(transport);

const print = value => console.log(JSON.stringify(value));
print((await client.listTools()).tools);
for await (const line of createInterface({ input: process.stdin })) {
	await client.callTool(JSON.parse(line)).then(print, error => print({ failed: error.message }));
}
await client.close();
