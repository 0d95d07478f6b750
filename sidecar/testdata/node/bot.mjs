// A bot on the official Node SDK that knows nothing of the relay. It runs in the
// folder in which the SDK is installed.
//
// BOT, in the environment, is JSON: appId, appSecret, domain ("": Feishu's own)
// and rules. A rule {when, say, to, steps, picture, hand} answers a message that mentions
// the bot, or stands in a private chat, and has `when` in it: with `say` (Markdown) that mentions the bot
// named `to` (without `to`, a text), with a card that grows by `steps`, with a `picture` (base64), or not, and it gives the task
// `say` to the agent `to` by MCP at the URL `hand`. What the bot hears it
// prints, one JSON object a line; what the SDK logs goes to stderr. It ends when its
// standard input does, or with an error when a call fails.

import { createRequire } from 'node:module';
import { join } from 'node:path';

const lark = createRequire(join(process.cwd(), 'bot.mjs'))('@larksuiteoapi/node-sdk');
const { appId, appSecret, domain, rules } = JSON.parse(process.env.BOT);

const print = words => console.error(...words);
const logger = { error: print, warn: print, info: print, debug: print, trace: print };
const options = { appId, appSecret, domain: domain || lark.Domain.Feishu, logger, loggerLevel: lark.LoggerLevel.debug };
const client = new lark.Client(options);

async function done(call) {
	const answer = await call;
	if (answer.code !== 0) {
		throw new Error(`Feishu says ${answer.code}: ${answer.msg}`);
	}
	return answer;
}

const get = url => done(client.request({ method: 'GET', url }));

const reply = (message, type, content) => done(client.im.message.reply({
	path: { message_id: message.message_id },
	data: { msg_type: type, content: JSON.stringify(content) },
}));

async function say(message, { to, say: text }) {
	const { data } = await get(`/open-apis/im/v1/chats/${message.chat_id}/members/bots`);
	const peer = data.items.find(bot => bot.bot_name === to);
	const md = { tag: 'md', text: `<at user_id="${peer.bot_id}">${to}</at> ${text}` };
	await reply(message, 'post', { zh_cn: { content: [[md]] } });
}

const answer = (message, { say: text }) => reply(message, 'text', { text });

async function give(message, { hand: url, to, say: task }) {
	let session;
	const call = async (method, params, id) => {
		const headers = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
		if (session) {
			headers['mcp-session-id'] = session;
		}
		const got = await fetch(url, { method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', id, method, params }) });
		session ??= got.headers.get('mcp-session-id');
		const said = await got.text();
		if (!got.ok || said.includes('"isError":true')) {
			throw new Error(`${method}: ${got.status} ${said}`);
		}
	};
	await call('initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'bot', version: '1' } }, 1);
	await call('notifications/initialized');
	await call('tools/call', { name: 'send_task', arguments: { to, task, callback_chat_id: message.chat_id } }, 2);
}

async function stream(message, { steps }) {
	const element = { tag: 'markdown', element_id: 'content', content: 'Thinking…' };
	const card = { schema: '2.0', config: { streaming_mode: true }, body: { elements: [element] } };
	const { data } = await done(client.cardkit.v1.card.create({ data: { type: 'card_json', data: JSON.stringify(card) } }));
	const path = { card_id: data.card_id, element_id: 'content' };
	await reply(message, 'interactive', { type: 'card', data: { card_id: data.card_id } });
	let content = '', sequence = 0;
	for (const step of steps) {
		content += step;
		await done(client.cardkit.v1.cardElement.content({ path, data: { content, sequence: ++sequence } }));
	}
	const settings = JSON.stringify({ config: { streaming_mode: false } });
	await done(client.cardkit.v1.card.settings({ path, data: { settings, sequence: ++sequence } }));
}

async function show(message, { picture }) {
	const { image_key } = await client.im.image.create({ data: { image_type: 'message', image: Buffer.from(picture, 'base64') } });
	await reply(message, 'image', { image_key });
}

const { bot } = await get('/open-apis/bot/v3/info');

const events = new lark.EventDispatcher(options).register({
	'im.message.receive_v1': ({ message, sender }) => {
		const { text = '' } = JSON.parse(message.content); // a picture has none
		const mentions = (message.mentions ?? []).map(mention => mention.id.open_id);
		console.log(JSON.stringify({
			id: message.message_id, chat: message.chat_id, chatType: message.chat_type, type: message.message_type,
			text, senderType: sender.sender_type, senderID: sender.sender_id.open_id, mentions,
		}));
		const meant = message.chat_type === 'p2p' || mentions.includes(bot.open_id);
		const rule = meant && rules.find(rule => text.includes(rule.when));
		if (rule) {
			const act = rule.hand ? give : rule.steps ? stream : rule.picture ? show : rule.to ? say : answer;
			setImmediate(act, message, rule); // the SDK acknowledges first
		}
	},
});
new lark.WSClient(options).start({ eventDispatcher: events });

process.stdin.on('end', () => process.exit()).resume();
