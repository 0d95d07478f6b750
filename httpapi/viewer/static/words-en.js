// The words in English. What begins with `means.` explains a word of the API.
export const en = {
  // the frame
  groups: 'Groups', agents: 'Agents', mailbox: 'Mailbox', system: 'System', sections: 'Sections',
  close: 'Close', back: 'Back', cancel: 'Cancel', loading: 'Loading…', unknown: 'not known', on: 'on', off: 'off', error: 'Error',
  unreachable: 'The sidecar does not answer.', keys: 'Keyboard',
  'live.live': 'Live', 'live.live.means': 'Connected: new messages appear at once',
  'live.connecting': 'Connecting', 'live.connecting.means': 'The connection is being made',
  'live.waiting': 'Retry in {n} s', 'live.waiting.means': 'The sidecar does not answer; next try in {n} s',
  'live.offline': 'Offline, {n} s', 'live.offline.means': 'This computer is offline; next try in {n} s',
  'sign.out': 'Sign out',
  whose: '{name}’s sidecar',

  // keys
  'key.next': 'next message', 'key.previous': 'previous message', 'key.details': 'details of the message', 'key.escape': 'close, leave the filter',
  'key.end': 'newest message', 'key.search': 'search the conversation', 'key.groups': 'previous, next group',
  'key.sections': 'groups, agents, mailbox, system', 'key.theme': 'Light or dark', 'key.language': '中文 / English', 'key.help': 'this help',

  // groups and the conversation
  'groups.filter': 'Find a group', unread: 'unread', 'choose.group': 'Choose a group to see its conversation.',
  'empty.groups': 'No group yet. Write in a group that the bot is in: it appears here at once. If it does not, this command says what is missing:',
  'empty.talk': 'No message yet. New ones appear here at once.', 'empty.filter': 'Nothing here matches.',
  'mail.list': 'Mail between agents', 'mail.between': 'mail between two agents',
  limits: 'limit {max} · threshold {threshold} · judge {judge}', messages: 'Messages', beginning: 'The beginning of the conversation',
  found: '{n} shown', search: 'Search', filter: 'Show', 'filter.all': 'All', 'filter.people': 'People', 'filter.bots': 'Bots', 'filter.stopped': 'Stopped', 'filter.waiting': 'Waiting', 'filter.agent': 'Any agent',
  'search.earlier': 'Search earlier messages', 'look.earlier': 'Look further back', reopen: 'Load again',
  dropped: 'Older messages are no longer in memory; the page keeps {n} at most.', enough: '{n} messages are loaded, the most that the page keeps. Search looks further back.',
  newest: 'Newest', 'newest.n': '{n} new', bot: 'bot', thread: 'thread', 'thread.only': 'Show only this thread', 'thread.left': 'Thread only',
  'message.by': 'Message by {name}', 'reply.go': 'In reply to {name}; go there',
  'text.all': 'Show all ({n} characters)', 'text.less': 'Show less', 'text.unseen': 'A character that cannot be seen',
  'no.such.message': 'This message is not among those that the page can load.',

  // how a group's bots are steered
  steer: 'Settings of the group', 'steer.bots': 'Bots', 'steer.nobody': 'none', 'steer.online': 'online', 'steer.absent': 'bot not connected', 'steer.muted': 'muted', 'steer.muted.n': '{n} muted', 'steer.paused': 'paused', 'steer.unpaused': 'no longer paused', 'steer.unmuted': 'no longer muted', 'set.forgotten': 'as the operator has set', 'steer.until': 'until {time}', 'steer.fixed': 'fixed',
  'steer.locked': 'The groups file fixes the settings of this group: nothing can be changed here.', 'steer.changed': 'changed', 'steer.done': 'Done.', 'steer.conflict': 'Somebody else has just changed the group. Its settings are shown as they are now; your change was not made.',
  'steer.pause': 'Pause', 'steer.pause.means': 'Bots are no longer given what other bots say', 'steer.resume': 'Resume', 'steer.resume.means': 'End the pause', 'steer.for': 'for', 'time.ever': 'until somebody ends it', 'time.30m': '30 minutes', 'time.2h': '2 hours', 'time.1d': '1 day',
  'steer.stop': 'Stop', 'steer.stop.means': 'Stop the bots until a person writes', 'steer.continue': 'Continue', 'steer.continue.means': 'Release what was stopped, and count from zero',
  'steer.forget': 'Forget', 'steer.forget.means': 'Remove what people have set here', 'steer.forget.sure': 'Remove everything that people have set?', 'steer.forget.yes': 'Yes, remove', 'steer.forget.yes.means': 'The operator’s settings apply again', 'steer.cancel': 'Cancel', 'steer.cancel.means': 'Change nothing',
  'steer.mute': 'Mute', 'steer.unmute': 'Unmute', 'steer.mute.name': 'Mute {name}', 'steer.unmute.name': 'Unmute {name}', 'steer.last': 'Last stop, {time}, at {bots}:', 'steer.go': 'Show the message',
  'set.answer': 'Who answers', 'set.answer.means': 'Who answers when a person names no bot', 'mode.all': 'all bots', 'mode.named': 'only named bots', 'mode.default': 'the default bot', 'mode.one': 'one bot', 'set.default_bot': 'Default bot', 'set.default_bot.means': 'It answers what names no bot',
  'set.limit': 'Limit', 'set.limit.means': 'Bots stop at this many messages in a row', 'set.threshold': 'Threshold', 'set.threshold.means': 'This many pass without the judge', 'set.budget': 'Budget', 'set.budget.means': 'Messages of bots per hour; 0: no limit', 'set.judge': 'Judge', 'set.judge.means': 'Whether the judge decides between threshold and limit',
  'source.record': 'set by people', 'source.file': 'from the groups file', 'source.env': 'from the environment', 'kind.command': 'command', 'kind.answer': 'answer', 'kind.stop': 'stop', 'act.stop': 'Bots were stopped', 'act.continue': 'What was stopped goes on', 'act.set': 'Settings were changed:', 'act.answer': 'Answer', 'by.api': 'over the API', recalled: 'recalled', edited: 'edited',

  // what became of a message
  'depth.n': 'depth {n}', 'depth.means': 'The {n}. message of bots in a row', 'depth.title': 'Bots’ messages in a row', 'depth.person': 'person', 'depth.threshold': 'up to {n}: the judge is not asked', 'depth.max': 'from {n}: stopped', 'depth.none': 'No message of a bot here, so no depth to show.',
  'depth.picture': 'Depth of the last {n} messages, at most {deepest}. Arrow keys choose a message, Enter goes there.',
  'limit.threshold': 'Threshold {n}: up to here messages pass without the judge', 'limit.max': 'Hard limit {n}: from here on messages are stopped',

  'state.pass': 'delivered', 'state.stop': 'stopped', 'state.wait': 'waits', 'state.skip': 'not for it', 'state.acknowledged': 'acknowledged',
  'ended': 'The conversation stopped here: {why}', 'ended.n': 'The conversation stopped here: {why} ({n} messages)', 'stops.n': 'Shown {n} times in a row',
  'became.pass': '{who} got this', 'became.acknowledged': '{who} got and confirmed this', 'became.quiet': '{who} got this at {time}: no answer yet', 'became.silent': '{who} got this at {time}: no answer', 'became.wait': 'On its way to {who}', 'became.stop': '{who} did not get this: {why}', 'became.skip': 'No decision yet at {who}', 'became.away': '{who} did not get this: the sidecar is offline', 'became.absent': '{who} did not get this: the bot is not connected', 'became.held': 'Waits for {who}, which is not connected', 'became.left': '{who} got this at {time}, then went offline', 'became.unheard': 'Not known whether {who} got this', 'became.unrecorded': 'Not recorded at {who}',
  'why.max_depth': 'limit {n} reached', 'why.judge_no': 'the judge saw nothing to answer', 'why.judge_error': 'the judge gave no verdict', 'why.budget': 'the budget of this hour is used up', 'why.paused': 'bots are paused', 'why.stopped_by_person': 'a person stopped the bots', 'why.muted': 'muted', 'why.not_for_me': 'meant for another bot', 'why.not_mentioned': 'not mentioned', 'why.not_a_member': 'not in this group', 'why.duplicate': 'had it already', 'why.bad_signature': 'wrong signature', 'why.malformed': 'not readable', 'why.expired': 'too old by then', 'why.recalled': 'recalled before that', 'why.undeliverable': 'refused, or not answered in time', 'why.mail': 'the mailbox refused it ({why})',

  // details
  details: 'Details', 'details.outcomes': 'At each bot', 'details.undecided': 'No bot has decided on this message yet.', 'details.unrecorded': 'Nothing is recorded about this message: it is too old, or the record could not be read.', 'took.delivered': 'Delivered {time} after it was said', advice: 'What to do', 'do.wait': 'The bot is not there, or is still at an earlier message. It is given this one when it comes, within `RELAY_MAX_AGE`. `feishu-relay check` shows whether it is connected.', 'do.away': 'Start the sidecar. Of what bots say its bot then gets what is not older than `RELAY_MAX_AGE`; what people say comes from Feishu alone.', 'do.absent': 'Start the bot. What other bots said waits for it, for `RELAY_MAX_AGE` at most; what people say comes from Feishu alone.', 'do.held': 'Start the bot: it is given this message when it comes, within `RELAY_MAX_AGE`.', 'do.left': 'Start the bot, and look into its log for why it ended. It may have to be asked again: what it was given is not sent to it a second time.', 'do.unrecorded': 'The sidecar has decided on later messages, and this result is missing: it was killed at that moment, or does not read this queue. Look into its log.', 'do.unheard': 'Without the permission `im:message.group_msg` Feishu gives a bot only what mentions it. What a bot hears without the gateway it reports to `POST /v1/inbound`.', 'do.heard': 'The bot has it as Feishu sent it. If it does not answer, its own log says why; many frameworks answer in a group only when they are mentioned.', 'do.pass': 'The bot has it. If it does not answer, its framework drops messages of bots or answers only when it is named: set `INJECT_MENTION=always`, then look in docs/frameworks.md.', colon: ': ', comma: ', ', 'took.judge': 'the judge took {time}', 'took.acknowledged': 'confirmed after {time}', 'details.fields': 'Raw fields',
  'copy.link': 'Copy link', 'copy.command': 'Copy command', 'copy.id': 'Copy id', copied: 'Copied.', 'copy.failed': 'The browser did not let the page copy.', 'show.in.flow': 'Show in conversation',

  // agents
  'empty.agents': 'No other agent has registered yet. One appears when its sidecar starts with the same data directory or Redis:', 'mailbox.off.agents': 'The mailbox is off (MAILBOX=off), so only this sidecar is known. What the bots say and decide is under Groups all the same.',
  'presence.idle': 'idle', 'presence.busy': 'busy', 'presence.offline': 'offline', 'presence.unknown': 'here', 'presence.absent': 'sidecar online, bot not connected since {time}', heartbeat: 'heartbeat', 'this.one': 'this one', ready: 'ready', 'not.ready': 'Not ready',
  door: '{name}', 'door.connected': '{name}: bot connected', 'door.waits': '{name}: bot not connected', 'tasks.now': '{n} of {max} tasks',
  'queue.lag': 'To read', 'queue.unsettled': 'In progress', 'queue.outbox': 'Outbox', 'queue.inbox': 'Inbox', 'queue.unacknowledged': 'Unacknowledged',
  'means.lag': 'What the backend holds and the sidecar has not read yet: bytes of the file, or entries of the stream', 'means.unsettled': 'Messages read and not yet delivered or stopped', 'means.outbox': 'Own messages that the backend does not have yet', 'means.inbox': 'Direct messages that wait for the bot', 'means.unacknowledged': 'Direct messages sent and not yet acknowledged',

  // mailbox
  'mailbox.off': 'The mailbox of this sidecar is off. With it, agents give each other tasks:',
  'tab.tasks': 'Tasks', 'tab.inbox': 'Inbox', 'tab.dead': 'Dead letters', 'direction.sent': 'given', 'direction.received': 'received', deadline: 'deadline', overdue: 'overdue',
  'task.pending': 'pending', 'task.accepted': 'accepted', 'task.working': 'working', 'task.completed': 'completed', 'task.failed': 'failed', 'task.rejected': 'rejected',
  result: 'Result', 'task.because': 'Reason', 'last.message': 'Last message', 'last.stop': 'Last stop', 'empty.tasks': 'No tasks yet. An agent gives another one a task with the tool send_task, and so do you:', 'empty.inbox': 'Nothing waits for the bot.', 'empty.dead': 'No dead letters: everything that was sent arrived or is on its way.',
  everybody: 'everybody', priority: 'priority {n}', attempts: '{n} tries', replay: 'Send again', 'replay.sure': 'Send it again as a new message?', 'replay.yes': 'Yes, send', replayed: 'It is being sent again.', 'more.wait': '{n} more wait.', 'more.rows': '{n} older ones are not shown.',
  'means.AGENT_BUSY': 'The receiver has as many tasks as it takes', 'means.AGENT_OFFLINE': 'The receiver was not there', 'means.INVALID_MESSAGE': 'The message has an invalid format', 'means.TASK_NOT_FOUND': 'The receiver knows no such task', 'means.UNAUTHORIZED': 'The receiver does not take messages of this sender', 'means.RATE_LIMITED': 'Too many messages between the two',

  // system
  'ready.long': 'Ready: the backend answers and is being read.', sidecar: 'Sidecar', agent: 'Agent', 'bot.name': 'Bot', version: 'Version', started: 'Started', backend: 'Backend', membership: 'Membership', enforced: 'checked', 'not.enforced': 'not checked: every group passes',
  'hour.title': 'The last hour, by minute', 'hour.split': '{delivered} delivered to this bot, {stopped} stopped',
  'door.title': 'The bot', 'door.name': 'Delivery channel', 'door.bot': 'Bot', connected: 'connected', away: 'not connected', connector: 'Feishu connection', 'gateway.bot': 'Gateway', 'gateway.drafts': 'Drafts',
  'limits.title': 'Limits', 'judge.title': 'Judge', 'judge.model': 'Model', 'judge.breaker': 'Circuit breaker', 'judge.failures': 'Failures in a row', 'judge.retry': 'Next try', 'judge.calls': 'Calls in progress',
  'queue.of.outbound': 'Queue of bots (outbound)', 'queue.of.inbound': 'Queue of people (inbound)', 'queue.state': 'State', 'queue.read': 'being read', 'queue.not.read': 'not being read', 'queue.published': 'Published', 'queue.republished': 'Published again', 'queue.failed': 'Failed tries', 'open.tasks': 'Open tasks',
  'missing.title': 'Gaps', 'missing.n': '{n} messages missing', errors: 'Last errors', 'errors.none': 'None since the start.', times: '{n}×', 'groups.file': 'The groups file',

  // words of the API
  'means.hard_limit': 'the limit of messages of bots in a row is reached', 'means.threshold': 'up to the threshold messages pass without the judge', 'means.judge': 'the judge was asked', 'means.judge_off': 'passed, since the judge is off',

  'means.released': 'a person let it go on', 'means.settings': 'the settings of the group keep it from this bot',
  'means.judge.off': 'between threshold and limit everything passes', 'means.judge.rules': 'built-in rules: small talk is stopped', 'means.breaker.closed': 'calls go through', 'means.breaker.open': 'too many failures: calls wait until the next try', 'means.breaker.probe': 'one call is let through to see',
  'means.max_bot_reply_depth': 'From this depth on messages are stopped', 'means.bot_reply_llm_threshold': 'Up to this depth messages pass without the judge', 'means.bot_reply_llm_check': 'Whether the judge decides between the two', 'means.bot_reply_depth_count': 'What counts as one: each message, or each turn of a bot', 'means.relay_max_age_ms': 'Older messages reach the transcript only', 'means.group_policy': 'Which messages of other bots the bot is given',
}
