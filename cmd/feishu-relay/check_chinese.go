package main

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// chineseFindings translates findings of the probes that init uses: those of files, relay and Feishu. A text that is
// not among [phrases], such as an error of the system, remains as it is.
func chineseFindings(found []finding) []finding {
	out := make([]finding, len(found))
	for i, f := range found {
		f.Detail, f.Mend = translated(f.Detail), translated(f.Mend)
		out[i] = f
	}
	return out
}

// translated is the Chinese of a text of a probe. The parts that vary are translated in the same way.
func translated(english string) string {
	for i, pattern := range phrasePatterns() {
		if match := pattern.FindStringSubmatch(english); match != nil {
			var parts []any
			for _, part := range match[1:] {
				parts = append(parts, translated(part))
			}
			return fmt.Sprintf(phrases[i].zh, parts...)
		}
	}
	return english
}

// phrasePatterns match the English of [phrases].
var phrasePatterns = sync.OnceValue(func() (patterns []*regexp.Regexp) {
	for _, p := range phrases {
		english := strings.NewReplacer("%s", "(.+)", "%d", "([0-9]+)").Replace(regexp.QuoteMeta(p.en))
		patterns = append(patterns, regexp.MustCompile("(?s)^"+english+"$"))
	}
	return patterns
})

// phrases are the texts of these probes. In the English %d stands for a number and %s for any text.
// The first that matches is taken.
var phrases = []text{
	{"run this check as the sidecar's user; if it is: %s", "请以边车的用户运行检查；如果已经是：%s"},
	{"look what its disk or its network is waiting for", "检查磁盘或网络为什么没有响应"},
	{"no result within %s", "%s 内没有结果"},
	{"no answer in time", "没有按时应答"},
	{"the connection was lost", "连接断了"},
	{"%d second", "%s 秒"},
	{"%d seconds", "%s 秒"},
	{"%d minute", "%s 分钟"},
	{"%d minutes", "%s 分钟"},
	{"%d hour", "%s 小时"},
	{"%d hours", "%s 小时"},
	{"%d day", "%s 天"},
	{"%d days", "%s 天"},
	{"%d message", "%s 条消息"},
	{"%d messages", "%s 条消息"},

	// the folders
	{"this is user %s, home %s; DATA_DIR is %s, the default, which nanobot shares; " +
		"a sidecar of another user meets this one only with the same DATA_DIR",
		"当前用户 %s，主目录 %s；DATA_DIR 是 %s（默认值，与 nanobot 共用）；其他用户的边车要用同一个 DATA_DIR 才能连到一起"},
	{"this is user %s, home %s; DATA_DIR is %s, the default, which nanobot shares",
		"当前用户 %s，主目录 %s；DATA_DIR 是 %s（默认值，与 nanobot 共用）"},
	{"this is user %s, home %s; DATA_DIR is %s", "当前用户 %s，主目录 %s；DATA_DIR 是 %s"},
	{"set %s (or DATA_DIR) to a folder that this user can write, or let this user write there",
		"把 %s（或 DATA_DIR）设成这个用户能写的目录，或让这个用户能写那里"},
	{"set %s (or DATA_DIR) to a folder that this user can write", "把 %s（或 DATA_DIR）设成这个用户能写的目录"},
	{"%s is a file, not a folder", "%s 是文件，不是目录"},
	{"put it on a local disk; sidecars on several hosts meet over Redis: set REDIS_URL",
		"放到本地磁盘上；几台主机上的边车请用 Redis：设 REDIS_URL"},
	{"%s: locks do not keep a second holder out", "%s：文件锁不起作用"},
	{"%s can be written, locks work", "%s 可写，文件锁有效"},
	{"%s does not exist yet, and can be made", "%s 还不存在，可以创建"},
	{"every user of this host can look into %s (mode %s): it holds conversations",
		"这台主机的所有用户都能读 %s（权限 %s），里面有对话内容"},
	{"use a local disk, or Redis: set REDIS_URL", "用本地磁盘，或 Redis：设 REDIS_URL"},
	{"%s is on a network file system (%s), where locks, appends and change events of several hosts are not reliable",
		"%s 在网络文件系统（%s）上，多台主机的文件锁、追加写入和变更通知都不可靠"},
	{"make room there, or set DATA_DIR to a folder on another disk: df -h %s",
		"清理空间，或把 DATA_DIR 设到另一块磁盘上：df -h %s"},
	{"%s are left for %s", "剩余 %s，在 %s"},
	{"chown -R %s, or run all sidecars that share it as one user or in one group",
		"chown -R %s，或让共用它的所有边车以同一个用户或同一个组运行"},
	{"this user cannot write in %s: %s", "这个用户不能写 %s 里的：%s"},
	{"%s and %d more", "%s 等，另有 %s 个"},
	{"%s (%s ago), %s", "%s（%s前），%s"},
	{"%s (%s ago)", "%s（%s前）"},

	// the queue in files, this agent, the others
	{"nothing has been sent in %s yet", "%s 里还没有发过消息"},
	{"%s can be appended to", "%s 可以追加写入"},
	{"run all sidecars that share RELAY_DIR as one user, or make the folder writable by their group",
		"让共用 RELAY_DIR 的所有边车以同一个用户运行，或让它们的组能写这个目录"},
	{"%s has not run in %s yet", "%s 还没有在 %s 里运行过"},
	{"run all sidecars that share RELAY_DIR as one user or in one group", "让共用 RELAY_DIR 的所有边车以同一个用户或同一个组运行"},
	{"put RELAY_DIR on a file system with locks", "把 RELAY_DIR 放到支持文件锁的文件系统上"},
	{"no sidecar of %s is running in %s", "没有 %s 的边车在 %s 里运行"},
	{"a sidecar of %s is running in %s; a second one would refuse to start", "%s 的边车正在 %s 里运行；第二个会拒绝启动"},
	{"%d other agent was seen: %s", "见过 %s 个其他智能体：%s"},
	{"%d other agents were seen: %s", "见过 %s 个其他智能体：%s"},
	{"start the others, and check again; all sidecars share one RELAY_DIR, or one REDIS_URL and RELAY_CHANNEL",
		"启动其他边车，再检查一次；所有边车的 RELAY_DIR 要相同，或 REDIS_URL 和 RELAY_CHANNEL 都相同"},
	{"no other agent has been seen yet", "还没有见过其他智能体"},
	{"give each bot a name of its own in Feishu, in BOT_NAME and in %s", "在飞书、BOT_NAME 和 %s 里给每个机器人各起一个名字"},
	{"%s is called %s as well: who is addressed by that name, cannot be told", "%s 也叫 %s：用这个名字时分不清叫的是谁"},
	{"restart it, or check with its environment", "重启它，或用它的环境变量检查"},
	{"the running sidecar of %s was started with another RELAY_SECRET than this environment has",
		"%s 正在运行的边车，启动时的 RELAY_SECRET 与当前环境不同"},
	{"nothing, if it is not used any more; else set the same RELAY_SECRET there", "不再使用就不用处理；否则在那里设同一个 RELAY_SECRET"},
	{"%s, which is offline (%s), last ran with another RELAY_SECRET", "%s 已离线（%s），上次运行时的 RELAY_SECRET 不同"},
	{"nothing, if they are to be apart; else the same RELAY_SECRET at both", "本来就要分开就不用处理；否则两边设同一个 RELAY_SECRET"},
	{"%s has another RELAY_SECRET, and another queue: they share only the mailbox, and refuse each other's mail",
		"%s 的 RELAY_SECRET 和队列都不同：双方只共用邮箱，而且互相拒收信件"},
	{"set RELAY_SECRET at this sidecar and at that of %s to the same (`openssl rand -hex 32` makes a good one), " +
		"and restart both",
		"让这个边车和 %s 的边车用同一个 RELAY_SECRET（可用 `openssl rand -hex 32` 生成），并重启两者"},
	{"the same at %s", "与这些智能体相同：%s"},
	{"they do not meet: no bot of the one hears those of the other", "它们没有连到一起，双方的机器人互相收不到消息"},
	{"update the older one", "升级较旧的那个"},
	{"a talk ends earlier at one than at the other", "一边的对话停得比另一边早"},
	{"the judge is asked earlier at one than at the other", "一边比另一边更早让裁判判断"},
	{"only one of them asks a judge", "只有一边用裁判"},
	{"they count depth differently", "两边计算深度的方法不同"},
	{"messages expire earlier at one than at the other", "一边的消息比另一边更早过期"},
	{"each keeps its own record, without what was said before it ran", "各自保存记录，里面没有它启动之前的消息"},
	{"update them; until then compare their settings yourself", "升级它们；在那之前请自己对照设置"},
	{"these agents run a version that does not show its settings: %s", "这些智能体的版本不公布自己的设置：%s"},
	{"folders or channel, version and limits are the same at %s", "目录或频道、版本和限额都相同：%s"},
	{"start the others, and check again", "启动其他边车，再检查一次"},
	{"no other agent is online to compare with", "没有其他智能体在线，无从对照"},
	{"set it alike, unless this is meant: %s", "除非有意如此，改成一样：%s"},
	{"use one folder (in containers, one volume), unless this is meant: %s", "除非有意如此，用同一个目录（在容器里是同一个卷）：%s"},
	{"%s is %s here, and another folder, %s", "%s 在这里是 %s，在别处是另一个目录：%s"},
	{"the running sidecar of %s has another %s than this environment", "%s 正在运行的边车，%s 与当前环境不同"},
	{"set the same RELAY_SECRET at all sidecars and restart them; nothing needs to be done if it was set or " +
		"changed after these messages",
		"所有边车设同一个 RELAY_SECRET 并重启；如果是在这些消息之后才设或改的，就不用处理"},
	{"the newest messages of these bots are not signed with this RELAY_SECRET, and such messages are not " +
		"delivered here: %s",
		"这些机器人的最新消息不是用这个 RELAY_SECRET 签名的，这样的消息在这里不会送达：%s"},
	{"set RELAY_SECRET to that of the other sidecars", "把 RELAY_SECRET 设成与其他边车相同"},
	{"these bots sign their messages, and RELAY_SECRET is not set here: their sidecars do not deliver what this " +
		"bot says: %s",
		"这些机器人给消息签名，而这里没有设 RELAY_SECRET：它们的边车不会送达这个机器人的消息：%s"},
	{"the newest messages of these bots are signed with this RELAY_SECRET: %s", "这些机器人的最新消息是用这个 RELAY_SECRET 签名的：%s"},

	// Redis
	{"check REDIS_URL, and whether that Redis runs and is reached from here: redis-cli -u \"$REDIS_URL\" ping",
		"检查 REDIS_URL，以及那个 Redis 是否在运行、从这里能否连上：redis-cli -u \"$REDIS_URL\" ping"},
	{"look at the state of the Cluster: redis-cli cluster info", "查看 Cluster 的状态：redis-cli cluster info"},
	{"find the node of the stream: %s", "找不到流所在的节点：%s"},
	{"find the node of %s: %s", "找不到 %s 所在的节点：%s"},
	{"let the user in REDIS_URL ask INFO, or look at them yourself", "允许 REDIS_URL 里的用户执行 INFO，或自己查看"},
	{"connected; version, role and memory cannot be seen: this user may not ask INFO",
		"已连接；看不到版本、角色和内存：这个用户不能执行 INFO"},
	{"use Redis %s or later, or Valkey", "用 Redis %s 以上，或 Valkey"},
	{"connected to version %s, which is older than what is tested", "已连接，版本 %s 比测试过的旧"},
	{"connected to version %s, %s", "已连接，版本 %s，%s"},
	{"persistence: append-only file", "持久化：AOF"},
	{"persistence: snapshots at most (none is needed)", "持久化：最多只有快照（不需要持久化）"},
	{"persistence unknown (none is needed)", "持久化方式未知（不需要持久化）"},
	{"set REDIS_URL to its primary, or to the Sentinels (docs/redis.md)",
		"把 REDIS_URL 设成主节点，或各个 Sentinel（docs/redis.md）"},
	{"this is a replica of %s, which takes no writes for good", "这是 %s 的副本，不能一直写入"},
	{"redis may throw away the relay's streams, and inboxes with mail that waits, " +
		"when memory is short (maxmemory-policy %s); for now there is no " +
		"maxmemory",
		"内存不足时 Redis 可能淘汰中继的流，以及还有邮件在等的收件箱（maxmemory-policy %s）；目前没有设 maxmemory"},
	{"redis may throw away the relay's streams, and inboxes with mail that waits, " +
		"when memory is short (maxmemory-policy %s)",
		"内存不足时 Redis 可能淘汰中继的流，以及还有邮件在等的收件箱（maxmemory-policy %s）"},
	{"redis may throw away claims, so that a notice comes twice, and malformed mail " +
		"when memory is short (maxmemory-policy %s); for now there is no " +
		"maxmemory",
		"内存不足时 Redis 可能淘汰占用标记（于是同一条通知会出现两次）和格式有误的邮件（maxmemory-policy %s）；目前没有设 maxmemory"},
	{"redis may throw away claims, so that a notice comes twice, and malformed mail " +
		"when memory is short (maxmemory-policy %s)",
		"内存不足时 Redis 可能淘汰占用标记（于是同一条通知会出现两次）和格式有误的邮件（maxmemory-policy %s）"},
	{"redis-cli config set maxmemory %s, or remove what other programs keep there: redis-cli --bigkeys",
		"redis-cli config set maxmemory %s，或清理其他程序存在里面的数据：redis-cli --bigkeys"},
	{"%s of %s are used; writes are refused, or keys thrown away, soon", "已用 %s，共 %s；很快会拒绝写入，或淘汰键"},
	{"%s of %s are used; writes are refused, or keys thrown away, now", "已用 %s，共 %s；正在拒绝写入，或淘汰键"},
	{"give the user in REDIS_URL the keys %s, the channels %s and %s, scripts, streams, publish and subscribe",
		"给 REDIS_URL 里的用户授权：键 %s，频道 %s 和 %s，脚本、流、发布和订阅"},
	{"write to a stream: %s", "写流失败：%s"},
	{"the stream that was tried could not be deleted: %s", "试写用的流删不掉：%s"},
	{"subscribe to the channels: %s", "订阅频道失败：%s"},
	{"streams and the channels %s and %s can be written and read", "流以及频道 %s 和 %s 可读可写"},
	{"a viewer shows only what became of messages at its own bot", "网页只能显示消息在自己机器人那里的结果"},
	{"what people set in a group, and what it is shown, stays at the sidecar that heard it",
		"群里改的设置和给群的提示，只有收到命令的边车知道"},
	{"%s: commands in groups are not answered, nor stops shown", "%s：群里的命令没有回复，停下也没有提示"},
	{"redis-cli del '%s', unless another program needs it: then set another RELAY_CHANNEL",
		"redis-cli del '%s'；如果其他程序要用它，就换一个 RELAY_CHANNEL"},
	{"%s is not a stream: %s", "%s 不是流：%s"},
	{"%s holds nothing yet", "%s 还是空的"},
	{"raise maxmemory of Redis, or REDIS_MAX_BYTES where it is set (docs/redis.md)",
		"调大 Redis 的 maxmemory；设了 REDIS_MAX_BYTES 的就调大它（docs/redis.md）"},
	{"%s takes %s of the %s that it may: it keeps only the newest %s, and a sidecar that is away for longer " +
		"misses some",
		"%s 占用 %s，限额 %s：只能保留最新的 %s，离线太久的边车会漏掉一些"},
	{"%s holds %s, the newest is %s old", "%s 里有 %s，最新的一条是 %s前的"},
	{"compare the hosts' clocks yourself", "请自己对照两台主机的时钟"},
	{"redis does not tell its time (%s)", "Redis 不给出时间（%s）"},
	{"agrees with that of %s", "与 %s 一致"},
	{"set the clocks of both hosts by NTP: timedatectl set-ntp true", "两台主机都用 NTP 校时：timedatectl set-ntp true"},
	{"this host's clock is %s behind that of %s", "这台主机的时钟慢 %s，对照的是 %s"},
	{"this host's clock is %s ahead of that of %s", "这台主机的时钟快 %s，对照的是 %s"},

	// Feishu
	{"what answers is not Feishu%s", "应答的不是飞书%s"},
	{"what answers is not Feishu", "应答的不是飞书"},
	{"set FEISHU_BASE_URL to Feishu's address (Lark's is https://open.larksuite.com); a proxy on the way may ask " +
		"for a sign-in",
		"把 FEISHU_BASE_URL 设成飞书的地址（Lark 是 https://open.larksuite.com）；也可能是途中的代理要求登录"},
	{"check FEISHU_BASE_URL and this host's DNS: nslookup open.feishu.cn",
		"检查 FEISHU_BASE_URL 和这台主机的 DNS：nslookup open.feishu.cn"},
	{"a proxy opens the connection, or this host has no list of authorities: set SSL_CERT_FILE to a PEM file " +
		"with the right one " +
		"(install ca-certificates)",
		"代理解密了连接，或这台主机没有根证书：把 SSL_CERT_FILE 设成含正确根证书的 PEM 文件（安装 ca-certificates）"},
	{"set FEISHU_BASE_URL (Lark's is https://open.larksuite.com), or HTTPS_PROXY if Feishu is reached by a proxy",
		"设 FEISHU_BASE_URL（Lark 是 https://open.larksuite.com）；要经代理访问飞书的话，设 HTTPS_PROXY"},
	{"copy the App Secret again into FEISHU_APP_SECRET: %s", "重新复制 App Secret 到 FEISHU_APP_SECRET：%s"},
	{"copy the App ID (cli_ and 16 digits or letters a to f) into FEISHU_APP_ID: %s",
		"重新复制 App ID（cli_ 加 16 位数字或 a 到 f 的字母）到 FEISHU_APP_ID：%s"},
	{"correct FEISHU_APP_ID; if the app is on the other platform: FEISHU_BASE_URL=%s",
		"改正 FEISHU_APP_ID；如果应用在另一个平台上：FEISHU_BASE_URL=%s"},
	{"add the scope and publish a version: %s", "添加权限并发布版本：%s"},
	{"turn on the bot ability (Add Features: Bot) and publish a version: %s", "添加机器人能力（添加应用能力 → 机器人）并发布版本：%s"},
	{"publish a version and have the tenant's administrator approve and enable the app: %s",
		"发布版本，请租户管理员审批并启用应用：%s"},
	{"try again in a minute: the app calls too often", "调用太频繁，过一分钟再试"},
	{"add this host's address to the app's IP whitelist (Security Settings): %s", "把这台主机的地址加进应用的 IP 白名单（安全设置）：%s"},
	{"the tenant has used up its calls of this month: ask its administrator", "租户本月的调用额度用完了，请找管理员"},
	{"look at the app, whether it is enabled and a version is published: %s", "看看应用是否已启用、版本是否已发布：%s"},
	{"%s refuses %s: %s", "%s 拒绝 %s：%s"},
	{"give check FEISHU_APP_ID and FEISHU_APP_SECRET to have them looked at",
		"要检查这些，请给出 FEISHU_APP_ID 和 FEISHU_APP_SECRET"},
	{"%s answers; the app's scopes, events and groups cannot be seen with the bot's own token alone",
		"%s 有应答；只凭机器人自己的令牌，看不到应用的权限、事件和群"},
	{"%s takes the credentials of %s", "%s 接受 %s 的凭证"},
	{"who the bot is is not known: %s", "查不到机器人是谁：%s"},
	{"which scopes the tenant has granted is not known: %s", "查不到租户批准了哪些权限：%s"},
	{"which events are subscribed is not known: %s", "查不到订阅了哪些事件：%s"},
	{"which groups the bot is in is not known: %s", "查不到机器人在哪些群里：%s"},
	{"%s has no bot", "%s 没有机器人能力"},
	{"not installed yet", "还没有安装"},
	{"disabled in the tenant", "已被租户停用"},
	{"installed and not enabled", "已安装，没有启用"},
	{"waiting for an upgrade to be enabled", "等待启用升级"},
	{"disabled: its licence has ended", "已停用：许可到期"},
	{"disabled: the tenant's plan has ended", "已停用：租户的套餐到期"},
	{"%s is %s (activate_status %s)", "%s：%s（activate_status %s）"},
	{"BOT_NAME='%s', or leave it out", "BOT_NAME='%s'，或不设"},
	{"BOT_NAME is %s, and Feishu calls the bot %s: people and bots address it by the latter",
		"BOT_NAME 是 %s，飞书里的名字是 %s：人和机器人用的都是后者"},
	{"BOT_OPEN_ID=%s, or leave it out", "BOT_OPEN_ID=%s，或不设"},
	{"BOT_OPEN_ID is %s, and the bot's own is %s: an open_id is different for each app that looks",
		"BOT_OPEN_ID 是 %s，机器人自己的是 %s：同一个机器人在每个应用里的 open_id 都不同"},
	{"hear people in groups", "接收群里人说的话"},
	{"send messages", "发消息"},
	{"tell groups from private chats", "区分群和私聊"},
	{"see the other bots of a group", "查看群里的其他机器人"},
	{"read messages again and their files", "再次读取消息及其文件"},
	{"know people's names", "读取姓名"},
	{"show by a reaction that bots were stopped; STOP_NOTICE=text or off needs none",
		"用表情回复提示停下（STOP_NOTICE 设为 text 或 off 就不需要）"},
	{"add %s and publish a version: %s", "添加 %s 并发布版本：%s"},
	{"it is applied for and not granted: publish a version, and have the administrator approve it: %s",
		"已申请，还没批准：发布版本，请管理员审批：%s"},
	{"without a scope to %s (%s)", "缺少权限：%s（%s）"},
	{"%d is granted; in groups the bot hears %s", "已批准 %s 项；机器人在群里%s"},
	{"%d are granted; in groups the bot hears %s", "已批准 %s 项；机器人在群里%s"},
	{"everything people say", "收得到人说的所有话"},
	{"only what is addressed to it (im:message.group_msg gives the rest); a command and a continue need a " +
		"mention in front",
		"只收得到 @ 它的话（im:message.group_msg 可收到其余的）；命令和“继续”前面要先 @ 它"},
	{"only what is addressed to it (im:message.group_msg gives the rest)", "只收得到 @ 它的话（im:message.group_msg 可收到其余的）"},
	{"in the console, Events & Callbacks must subscribe %s (by long connection or by webhook, as the bot works), " +
		"and a version must be published after that: %s",
		"在开发者后台的“事件与回调”里订阅 %s（用长连接或 webhook，看机器人怎样工作），之后再发布一个版本：%s"},
	{"cannot be seen without the scope application:application:self_manage",
		"没有 application:application:self_manage 权限，看不到"},
	{"cannot be seen from here (%s)", "从这里看不到（%s）"},
	{"publish one and have it approved: %s", "发布一个版本并通过审批：%s"},
	{"no version of the app is published", "应用还没有发布版本"},
	{"the bot hears nothing", "机器人什么也收不到"},
	{"that the bot was added to a group is known late", "机器人被加进群，要晚一些才知道"},
	{"that the bot was removed from a group is known late", "机器人被移出群，要晚一些才知道"},
	{"what people recall stays where bots and readers see it", "撤回的消息，机器人和查看记录的人仍然看得到"},
	{"subscribe it (Events & Callbacks) and publish a version: %s", "在“事件与回调”里订阅它并发布版本：%s"},
	{"subscribe it and publish a version: %s", "订阅它并发布版本：%s"},
	{"version %s does not subscribe %s: %s", "版本 %s 没有订阅 %s：%s"},
	{"publish it, or wait for the administrator's approval: %s", "发布它，或等管理员审批：%s"},
	{"version %s is not published: what it adds does not work yet", "版本 %s 还没有发布，新增的内容还没有生效"},
	{"version %s subscribes %s", "版本 %s 订阅了 %s"},
	{"in the group: Settings, Bots, Add Bot, and choose the bot", "在群里：设置 → 群机器人 → 添加机器人，选这个机器人"},
	{"the bot is in no group", "机器人不在任何群里"},
	{"the bot is in %d group: %s", "机器人在 %s 个群里：%s"},
	{"the bot is in %d groups: %s", "机器人在 %s 个群里：%s"},
	{"the bot is in %d groups or more: %s", "机器人至少在 %s 个群里：%s"},
	{"add the bot to them (group settings, Bots), or take %s out of their members in %s",
		"把机器人加进这些群（群设置 → 群机器人），或把 %s 从 %s 里这些群的成员中去掉"},
	{"%s lists %s in groups that the bot is not in: %s", "%s 里的 %s 列在机器人不在的群里：%s"},
	{"add %s to their members in %s", "把 %s 加到 %s 里这些群的成员中"},
	{"the bot is in groups whose members in %s are without %s: %s", "机器人所在的群，%s 里的成员没有 %s：%s"},
}
