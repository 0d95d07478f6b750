// The words in Chinese. What begins with `means.` explains a word of the API.
export const zh = {
  // the frame
  groups: '群聊', agents: '智能体', mailbox: '信箱', system: '系统', sections: '栏目',
  close: '关闭', back: '返回', cancel: '取消', loading: '加载中…', unknown: '未知', on: '开', off: '关', error: '错误',
  unreachable: '边车没有响应。', keys: '键盘操作',
  'live.live': '实时', 'live.live.means': '已连接：发生的事立即显示',
  'live.connecting': '连接中', 'live.connecting.means': '正在建立连接',
  'live.waiting': '{n} 秒后重试', 'live.waiting.means': '边车没有响应，{n} 秒后重试',
  'live.offline': '离线，{n} 秒后重试', 'live.offline.means': '这台电脑没有联网，{n} 秒后重试',
  'sign.out': '退出登录',
  whose: '{name} 的边车',

  // keys
  'key.next': '下一条消息', 'key.previous': '上一条消息', 'key.details': '消息详情', 'key.escape': '关闭，退出筛选',
  'key.end': '最新消息', 'key.search': '搜索会话', 'key.groups': '上一个、下一个群',
  'key.sections': '群聊、智能体、信箱、系统', 'key.theme': '浅色或深色', 'key.language': '中文 / English', 'key.help': '本帮助',

  // groups and the conversation
  'groups.filter': '查找群聊', unread: '未读', 'choose.group': '选择一个群查看会话。',
  'empty.groups': '还没有群聊。请在机器人所在的群里发一条消息，该群会立即出现在这里。如果没有出现，用这条命令查看缺了什么：',
  'empty.talk': '还没有消息。一有新消息，这里立即显示。', 'empty.filter': '没有符合条件的内容。',
  'mail.list': '智能体之间的信件', 'mail.between': '两个智能体之间的信件',
  limits: '上限 {max} · 阈值 {threshold} · 裁判{judge}', messages: '消息', beginning: '会话从这里开始',
  found: '显示 {n} 条', search: '搜索', filter: '显示', 'filter.all': '全部', 'filter.people': '人', 'filter.bots': '机器人', 'filter.stopped': '已停止', 'filter.waiting': '等待中', 'filter.agent': '所有智能体',
  'search.earlier': '搜索更早的消息', 'look.earlier': '继续往前查找', reopen: '重新加载',
  dropped: '更早的消息已不在内存中，页面最多保留 {n} 条。', enough: '已加载 {n} 条消息，达到页面上限。更早的可用搜索查找。',
  newest: '最新', 'newest.n': '{n} 条新消息', bot: '机器人', thread: '话题', 'thread.only': '只看这个话题', 'thread.left': '只看此话题',
  'message.by': '{name} 的消息', 'reply.go': '回复 {name}，点击跳转',
  'text.all': '显示全文（{n} 个字符）', 'text.less': '收起', 'text.unseen': '不可见字符',
  'no.such.message': '页面能加载的消息里没有这一条。',

  // how a group's bots are steered
  steer: '群设置', 'steer.bots': '机器人', 'steer.nobody': '无', 'steer.online': '在线', 'steer.absent': '机器人未连接', 'steer.muted': '已静音', 'steer.muted.n': '{n} 个已静音', 'steer.paused': '已暂停', 'steer.unpaused': '不再暂停', 'steer.unmuted': '不再静音', 'set.forgotten': '恢复为运维的设置', 'steer.until': '到 {time}', 'steer.fixed': '已锁定',
  'steer.locked': '本群的设置由群配置文件锁定，这里不能更改。', 'steer.changed': '已改', 'steer.done': '已完成。', 'steer.conflict': '刚才有人改了本群的设置。现在显示的是最新设置，你的更改没有生效。',
  'steer.pause': '暂停', 'steer.pause.means': '机器人不再收到其他机器人的消息', 'steer.resume': '恢复', 'steer.resume.means': '结束暂停', 'steer.for': '时长', 'time.ever': '直到有人结束', 'time.30m': '30 分钟', 'time.2h': '2 小时', 'time.1d': '1 天',
  'steer.stop': '停止', 'steer.stop.means': '叫停机器人，直到有人发消息', 'steer.continue': '继续', 'steer.continue.means': '放行被拦下的消息，重新计数',
  'steer.forget': '还原', 'steer.forget.means': '取消大家在这里改过的设置', 'steer.forget.sure': '取消大家改过的全部设置？', 'steer.forget.yes': '确定还原', 'steer.forget.yes.means': '恢复为运维的设置', 'steer.cancel': '取消', 'steer.cancel.means': '不做更改',
  'steer.mute': '静音', 'steer.unmute': '取消静音', 'steer.mute.name': '让 {name} 静音', 'steer.unmute.name': '取消 {name} 的静音', 'steer.last': '最近一次停止：{time}，{bots}：', 'steer.go': '显示消息',
  'set.answer': '谁来回答', 'set.answer.means': '没有点名机器人的消息由谁回答', 'mode.all': '所有机器人', 'mode.named': '只有被点名的', 'mode.default': '默认机器人', 'mode.one': '一个机器人', 'set.default_bot': '默认机器人', 'set.default_bot.means': '没有点名的消息由它回答',
  'set.limit': '上限', 'set.limit.means': '机器人连续说到第几条停下', 'set.threshold': '阈值', 'set.threshold.means': '前几条不经裁判', 'set.budget': '预算', 'set.budget.means': '每小时的机器人消息数，0 为不限', 'set.judge': '裁判', 'set.judge.means': '阈值与上限之间是否由裁判决定',
  'source.record': '由人设置', 'source.file': '来自群配置文件', 'source.env': '来自环境变量', 'kind.command': '命令', 'kind.answer': '回复', 'kind.stop': '停止', 'act.stop': '机器人被叫停', 'act.continue': '放行被拦下的消息', 'act.set': '更改了设置：', 'act.answer': '回复', 'by.api': '通过 API', recalled: '已撤回', edited: '已编辑',

  // what became of a message
  'depth.n': '深度 {n}', 'depth.means': '机器人连续发言的第 {n} 条', 'depth.title': '机器人连续发言', 'depth.person': '人', 'depth.threshold': '{n} 条以内不问裁判', 'depth.max': '到第 {n} 条停止', 'depth.none': '这里没有机器人的消息，没有深度可显示。',
  'depth.picture': '最近 {n} 条消息的深度，最大 {deepest}。方向键选择消息，回车跳转。',
  'limit.threshold': '阈值 {n}：不超过它的消息直接放行', 'limit.max': '硬上限 {n}：达到后消息会被拦下',

  'state.pass': '已送达', 'state.stop': '已停止', 'state.wait': '等待中', 'state.skip': '与它无关', 'state.acknowledged': '已确认',
  'ended': '对话停在这里：{why}', 'ended.n': '对话停在这里：{why}（{n} 条消息）', 'stops.n': '连续出现 {n} 次',
  'became.pass': '{who} 已收到', 'became.acknowledged': '{who} 已收到并确认', 'became.quiet': '{who} 于 {time} 收到，尚未回答', 'became.silent': '{who} 于 {time} 收到，没有回答', 'became.wait': '正在投递给 {who}', 'became.stop': '{who} 没有收到：{why}', 'became.skip': '{who} 尚未判定', 'became.away': '{who} 没有收到：边车不在线', 'became.absent': '{who} 没有收到：机器人未连接', 'became.held': '{who} 未连接，消息在等它', 'became.left': '{who} 于 {time} 收到，随后离线', 'became.unheard': '不知道 {who} 是否收到', 'became.unrecorded': '{who} 没有记录',
  'why.max_depth': '已达上限 {n}', 'why.judge_no': '裁判认为无需回复', 'why.judge_error': '裁判未给出结论', 'why.budget': '本小时额度已用完', 'why.paused': '机器人对话已暂停', 'why.stopped_by_person': '有人叫停了机器人', 'why.muted': '已被静音', 'why.not_for_me': '消息是发给别的机器人的', 'why.not_mentioned': '没有被提到', 'why.not_a_member': '不在这个群里', 'why.duplicate': '此前已收到过', 'why.bad_signature': '签名不符', 'why.malformed': '内容无法解析', 'why.expired': '投递时已过期', 'why.recalled': '投递前已撤回', 'why.undeliverable': '机器人拒收，或未及时响应', 'why.mail': '信箱拒收（{why}）',

  // details
  details: '详情', 'details.outcomes': '各机器人的处理结果', 'details.undecided': '还没有机器人对这条消息作出判定。', 'details.unrecorded': '没有这条消息的处理记录：时间太久，或记录读不到。', 'took.delivered': '发出 {time} 后送达', advice: '怎么办', 'do.wait': '机器人不在线，或还在处理前面的消息。在 `RELAY_MAX_AGE` 之内，它一上线就会收到这条消息。`feishu-relay check` 可以查看它是否已连接。', 'do.away': '启动它的边车。机器人说的话，没有超过 `RELAY_MAX_AGE` 的会补发给它；人说的话只由飞书投递，不会补发。', 'do.absent': '启动机器人。其他机器人说的话会等着它，最久 `RELAY_MAX_AGE`；人说的话只由飞书投递。', 'do.held': '启动机器人：在 `RELAY_MAX_AGE` 之内，它一连上就会收到这条消息。', 'do.left': '启动机器人，并查它的日志，看它为什么退出。已经给过它的消息不会再发第二次，可能需要重新问一遍。', 'do.unrecorded': '边车已判定后面的消息，却没有这一条的记录：它当时被强行结束，或没有读这个队列。请查它的日志。', 'do.unheard': '机器人没有 `im:message.group_msg` 权限时，飞书只把点名它的消息发给它。不经网关接收消息的机器人，要通过 `POST /v1/inbound` 上报。', 'do.heard': '机器人收到的就是飞书发来的原文。如果它没有回答，看它自己的日志；许多框架在群里只有被 @ 才回答。', 'do.pass': '机器人已经收到。如果它没有回答，多半是它的框架丢弃了机器人的消息，或只在被点名时回答：先设 `INJECT_MENTION=always`，再查 docs/frameworks.md。', colon: '：', comma: '，', 'took.judge': '裁判用时 {time}', 'took.acknowledged': '{time} 后确认', 'details.fields': '原始字段',
  'copy.link': '复制链接', 'copy.command': '复制命令', 'copy.id': '复制 ID', copied: '已复制。', 'copy.failed': '浏览器不允许页面复制。', 'show.in.flow': '在会话中显示',

  // agents
  'empty.agents': '还没有其他智能体注册。另一个边车使用同一数据目录或 Redis 启动后就会出现：', 'mailbox.off.agents': '信箱已关闭（MAILBOX=off），只知道这个边车自己。机器人说了什么、如何判定，仍可在群聊中查看。',
  'presence.idle': '空闲', 'presence.busy': '忙碌', 'presence.offline': '离线', 'presence.unknown': '已注册', 'presence.absent': '边车在线，机器人自 {time} 起未连接', heartbeat: '最近心跳', 'this.one': '本机', ready: '就绪', 'not.ready': '未就绪',
  door: '{name}', 'door.connected': '{name}：机器人已连接', 'door.waits': '{name}：机器人未连接', 'tasks.now': '任务 {n} / {max}',
  'queue.lag': '待读', 'queue.unsettled': '处理中', 'queue.outbox': '发件', 'queue.inbox': '收件', 'queue.unacknowledged': '未确认',
  'means.lag': '后端已有而边车尚未读取：文件的字节数，或流的条目数', 'means.unsettled': '已读取、尚未处理完的消息', 'means.outbox': '后端还没有收下的本机消息', 'means.inbox': '等待机器人的直接消息', 'means.unacknowledged': '已发出、尚未确认的直接消息',

  // mailbox
  'mailbox.off': '这个边车的信箱已关闭。打开后，智能体之间可以互派任务：',
  'tab.tasks': '任务', 'tab.inbox': '收件箱', 'tab.dead': '死信', 'direction.sent': '派出', 'direction.received': '收到', deadline: '截止', overdue: '已逾期',
  'task.pending': '待接受', 'task.accepted': '已接受', 'task.working': '进行中', 'task.completed': '已完成', 'task.failed': '失败', 'task.rejected': '被拒绝',
  result: '结果', 'task.because': '原因', 'last.message': '最近消息', 'last.stop': '最近停止', 'empty.tasks': '还没有任务。智能体用工具 send_task 派任务，你也可以这样派：', 'empty.inbox': '没有等待机器人的消息。', 'empty.dead': '没有死信：发出的都已到达或正在途中。',
  everybody: '所有智能体', priority: '优先级 {n}', attempts: '尝试 {n} 次', replay: '重新发送', 'replay.sure': '再发一次？会当作新信发出。', 'replay.yes': '确定发送', replayed: '已重新发出。', 'more.wait': '还有 {n} 条在等待。', 'more.rows': '另有 {n} 条更早的未显示。',
  'means.AGENT_BUSY': '接收方的任务已满', 'means.AGENT_OFFLINE': '接收方不在线', 'means.INVALID_MESSAGE': '消息格式不对', 'means.TASK_NOT_FOUND': '接收方没有这个任务', 'means.UNAUTHORIZED': '接收方不接受这个发送方的消息', 'means.RATE_LIMITED': '两者之间消息过多',

  // system
  'ready.long': '就绪：后端有响应，并且正在读取。', sidecar: '边车', agent: '智能体', 'bot.name': '机器人', version: '版本', started: '启动于', backend: '后端', membership: '成员检查', enforced: '已检查', 'not.enforced': '未检查：所有群都放行',
  'hour.title': '最近一小时（每分钟）', 'hour.split': '送达这个机器人 {delivered} 条，停下 {stopped} 条',
  'door.title': '机器人', 'door.name': '投递通道', 'door.bot': '机器人', connected: '已连接', away: '未连接', connector: '飞书连接', 'gateway.bot': '网关', 'gateway.drafts': '草稿',
  'limits.title': '限制', 'judge.title': '裁判', 'judge.model': '模型', 'judge.breaker': '熔断器', 'judge.failures': '连续失败', 'judge.retry': '下次尝试', 'judge.calls': '进行中的调用',
  'queue.of.outbound': '机器人消息队列（outbound）', 'queue.of.inbound': '用户消息队列（inbound）', 'queue.state': '状态', 'queue.read': '正在读取', 'queue.not.read': '没有在读取', 'queue.published': '已发布', 'queue.republished': '重新发布', 'queue.failed': '失败的尝试', 'open.tasks': '未完成任务',
  'missing.title': '缺口', 'missing.n': '缺 {n} 条消息', errors: '最近的错误', 'errors.none': '启动以来没有错误。', times: '{n} 次', 'groups.file': '群配置文件',

  // words of the API
  'means.hard_limit': '机器人连续发言过多，不再放行', 'means.threshold': '机器人连续发言不多，直接放行', 'means.judge': '询问了裁判', 'means.judge_off': '裁判关闭，放行',

  'means.released': '有人让它继续', 'means.settings': '按群里的设置不给这个机器人',
  'means.judge.off': '阈值与上限之间全部放行', 'means.judge.rules': '内置规则：拦下客套话', 'means.breaker.closed': '正常调用', 'means.breaker.open': '失败过多：等待下次尝试', 'means.breaker.probe': '放行一次调用试探',
  'means.max_bot_reply_depth': '达到这个深度的消息会被拦下', 'means.bot_reply_llm_threshold': '不超过这个深度的消息直接放行', 'means.bot_reply_llm_check': '两者之间询问裁判', 'means.bot_reply_depth_count': '如何计数：每条消息，或机器人的每一轮', 'means.relay_max_age_ms': '更早的消息只进入记录', 'means.group_policy': '哪些机器人消息与它有关',
}
