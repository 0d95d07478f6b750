// The section of the agents: who is there, what waits for whom.

import * as api from './api.js'
import { h, s, show } from './h.js'
import { t } from './i18n.js'
import { moment, number } from './format.js'
import { plain, cut } from './text.js'
import { agentAvatar, botName } from './person.js'
import { age } from './age.js'
import { FROM, learn } from './names.js'
import * as seen from './seen.js'
import { table } from './details.js'
import { Panel, orOff } from './panel.js'
import { empty } from './empty.js'

export class Agents extends Panel {
  async load() {
    const [cards, status, groups] = await Promise.all([orOff(api.agents()), api.status(), seen.groups()])
    for (const { agent_id: agent, bot_name: name } of cards?.agents ?? []) learn(agent, name, FROM.card)
    return { cards: cards?.agents, status, groups }
  }

  draw() {
    const { cards, status, groups } = this.data
    const self = status.identity.agent_name
    const others = (cards ?? []).filter((c) => c.agent_id !== self).sort((a, b) => (a.agent_id < b.agent_id ? -1 : 1))
    const own = cards?.find((c) => c.agent_id === self) ?? { agent_id: self, description: '', capabilities: [], current_tasks: [] }
    show(this.element,
      h('header', null, h('h2', null, t('agents'))),
      !cards && h('p', { class: 'note', 'data-testid': 'mailbox-off' }, t('mailbox.off.agents')),
      h('div', { class: 'cards' }, ownCard(own, status, groups), others.map((c) => card(c, c.queues, groups))),
      cards && !others.length && empty('empty.agents', 'AGENT_NAME=agent_b BOT_NAME=BotB LISTEN_ADDR=127.0.0.1:8797 feishu-relay run'))
  }
}

function ownCard(own, status, groups) {
  const sum = (get) => Object.values(status.queues).reduce((n, q) => n + get(q), 0)
  const queues = {
    lag: sum((q) => q.lag), unsettled: sum((q) => q.unsettled), outbox: sum((q) => q.outbox.pending),
    inbox: status.mailbox?.waiting ?? own.queues?.inbox, unacknowledged: status.mailbox?.unacknowledged ?? own.queues?.unacknowledged,
  }
  const { name, connected } = status.door
  return card(own, queues, groups, [
    h('span', { class: 'state', 'data-state': 'own', 'data-testid': 'this-one' }, t('this.one')),
    h('span', { class: 'state', 'data-state': status.ready ? 'pass' : 'stop' }, t(status.ready ? 'ready' : 'not.ready')),
    h('span', { class: 'state', 'data-state': connected === undefined ? 'skip' : connected ? 'pass' : 'wait' },
      t(connected === undefined ? 'door' : connected ? 'door.connected' : 'door.waits', { name })),
  ])
}

function bar(n, most) {
  const part = 100 * Math.min(1, n / Math.max(most, 1))
  return s('svg', { class: 'bar', viewBox: '0 0 100 1', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, s('rect', { width: part, height: 1 }))
}

function card(c, queues, groups, marks) {
  const waiting = Object.keys(queues ?? {}).filter((name) => queues[name] > 0)
  const { current_tasks: tasks = [], max_concurrent_tasks: most, bot } = c
  const status = c.status !== 'offline' && bot?.connected === false ? 'absent' : c.status ?? 'unknown'
  return h('article', { class: 'card agent', 'data-testid': 'agent', 'data-agent': c.agent_id, 'data-state': status },
    h('div', { class: 'title' }, agentAvatar(c.agent_id),
      h('div', null, botName(c.agent_id),
        h('div', { class: 'soft' }, h('span', { class: 'presence', 'data-state': status }, t('presence.' + status, { time: bot && moment(Date.parse(bot.since)) })), c.last_heartbeat && [' · ', t('heartbeat'), ' ', age(c.last_heartbeat)]))),
    marks && h('div', { class: 'tags' }, marks),
    c.description && h('p', { class: 'description', dir: 'auto' }, plain(cut(c.description, 300))),
    c.capabilities?.length > 0 && h('div', { class: 'tags' }, c.capabilities.slice(0, 20).map((w) => h('span', { class: 'tag' }, plain(cut(w, 40))))),
    tasks.length > 0 && most !== undefined && h('div', { class: 'tasks' }, h('span', null, t('tasks.now', { n: tasks.length, max: most })), bar(tasks.length, most)),
    table(seen.lines(groups, c.agent_id)),
    waiting.length > 0 && h('dl', { class: 'figures' }, waiting.map((name) =>
      h('div', { title: t('means.' + name), 'data-queue': name }, h('dt', null, t('queue.' + name)), h('dd', null, number(queues[name]))))))
}
