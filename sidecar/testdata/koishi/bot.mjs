// A bot on Koishi that knows nothing of the relay. It runs in the folder in which Koishi is installed.
//
// BOT, in the environment, is JSON: appId, appSecret, endpoint, answer, with which it answers everything that it
// hears in a private chat, and rules: {when, say} answers what has `when` in it in a group. What it hears it prints,
// one JSON object a line. It ends when its standard input does.

import { createRequire } from 'node:module';
import { join } from 'node:path';

const need = createRequire(join(process.cwd(), 'bot.mjs'));
const { Context, HTTP } = need('koishi');
const { FeishuBot } = need('@satorijs/adapter-lark');
const { appId, appSecret, endpoint, answer, rules } = JSON.parse(process.env.BOT);

const app = new Context();
app.plugin(HTTP);
app.plugin(FeishuBot, { platform: 'feishu', protocol: 'ws', appId, appSecret, endpoint });
app.on('message', async session => {
	console.log(JSON.stringify({
		id: session.messageId, chat: session.channelId, chatType: session.isDirect ? 'p2p' : 'group', type: 'text',
		text: session.content, senderID: session.userId,
	}));
	const say = session.isDirect ? answer : rules.find(rule => session.content.includes(rule.when))?.say;
	if (say) {
		await session.send(say);
	}
});
await app.start();

process.stdin.on('end', () => process.exit()).resume();
