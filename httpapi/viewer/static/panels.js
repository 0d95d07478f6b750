// The sections beside the groups: agents, mailbox, system.

import * as api from './api.js'
import { button, h, keepFocus, later, mark, s as svg, selecting, show } from './h.js'
import { age, bytes, clock, explain, moment, number, span, t } from './language.js'
import { body, cut, line, plain } from './text.js'
import { FROM, agentAvatar, botName, learn } from './names.js'
import { table } from './details.js'
import { empty, fault, notice, sure } from './notice.js'

const EVERY = 15_000 // ms between reads of a section that is shown
const SETTLE = 400 // ms of quiet after events

// Panel reads and draws a section. A subclass has load(), which returns what the API says, and draw(), which
// shows this.data in this.element.
class Panel {
  #soon = later(SETTLE, () => this.refresh())
  #says

  constructor(element) {
    this.element = element
    setInterval(() => document.hidden || this.element.hidden || this.refresh(), EVERY)
  }

  show() {
    this.redraw()
    this.refresh()
  }

  async refresh() {
    try {
      const data = await this.load()
      const says = JSON.stringify(data)
      if (says === this.#says || selecting(this.element)) return
      this.#says = says
      this.data = data
      this.redraw()
    } catch (error) {
      fault(error)
    }
  }

  // again reads once more, soon.
  again() {
    if (!this.element.hidden) this.#soon()
  }

  redraw() {
    if (this.data && !this.element.hidden) keepFocus(this.element, () => this.draw())
  }
}

// orOff makes an answer that the mailbox is off into undefined.
const orOff = (answer) => answer.catch((error) => {
  if (error.status !== 404) throw error
})

// The section of the agents: who is there, what waits for whom.

export class Agents extends Panel {
  async load() {
    const [cards, { identity }] = await Promise.all([orOff(api.agents()), api.status()])
    for (const { agent_id: agent, bot_name: name } of cards?.agents ?? []) learn(agent, name, FROM.card)
    return { cards: cards?.agents, self: identity.agent_name }
  }

  draw() {
    const { cards = [], self } = this.data
    const own = cards.find((c) => c.agent_id === self) ?? { agent_id: self }
    const others = cards.filter((c) => c.agent_id !== self).sort((a, b) => (a.agent_id < b.agent_id ? -1 : 1))
    show(this.element, h('header', h('h2', t('agents'))),
      !this.data.cards && h('p.note', { data: { testid: 'mailbox-off' } }, t('mailbox.off.agents')),
      h('div.cards', agent(own, true), others.map((c) => agent(c))),
      this.data.cards && !others.length &&
        empty('empty.agents', 'AGENT_NAME=agent_b BOT_NAME=BotB LISTEN_ADDR=127.0.0.1:8797 feishu-relay run'))
  }
}

function agent(c, own) {
  const { agent_id: id, current_tasks: tasks = [], max_concurrent_tasks: most, capabilities = [], queues = {}, bot } = c
  const waiting = Object.keys(queues).filter((name) => queues[name] > 0)
  const status = c.status !== 'offline' && bot?.connected === false ? 'absent' : c.status ?? 'unknown'
  const presence = t('presence.' + status, { time: bot && moment(Date.parse(bot.since)) })
  return h('article.card.agent', { data: { testid: 'agent', agent: id, state: status } },
    h('div.title', agentAvatar(id),
      h('div', botName(id), h('div.soft', h('span.presence', { data: { state: status } }, presence),
        c.last_heartbeat && [' · ', t('heartbeat'), ' ', age(c.last_heartbeat)]))),
    own && h('div.tags', mark('own', t('this.one'), { testid: 'this-one' })),
    c.description && h('p.description', { dir: 'auto' }, plain(cut(c.description, 300))),
    h('div.tags', capabilities.slice(0, 20).map((w) => h('span.tag', plain(cut(w, 40))))),
    tasks.length > 0 && h('p.soft', t('tasks.now', { n: tasks.length, max: most ?? '∞' })),
    waiting.length > 0 && h('dl.figures', waiting.map((queue) =>
      h('div', { title: explain(queue), data: { queue } }, h('dt', t('queue.' + queue)), h('dd', queues[queue])))))
}

// The section of the mailbox: tasks, what waits for the bot, what could not be delivered.

const tabs = ['tasks', 'inbox', 'dead']
const RESULT = 20_000 // characters of a result
const SHOWN = 200 // rows; of more only the newest are shown

// How a task's state is coloured; after those that pass or stop comes none.
const colours = {
  completed: 'pass', failed: 'stop', rejected: 'stop', pending: 'wait', accepted: 'wait', working: 'own',
}

export class Mailbox extends Panel {
  #tab = 'tasks'

  async load() {
    const all = await orOff(Promise.all([api.tasks(), api.inbox(), api.deadLetters(), api.status()]))
    if (!all) return { off: true }
    const [{ tasks }, inbox, { dead_letters: dead }, { identity }] = all
    return { tasks, inbox, dead, self: identity.agent_name }
  }

  draw() {
    const { tasks, inbox, dead, off } = this.data
    const header = h('header', h('h2', t('mailbox')))
    if (off) return show(this.element, header, empty('mailbox.off', 'MAILBOX=on feishu-relay run'))
    const counts = { tasks: tasks.length, inbox: inbox.total, dead: dead.length }
    const tab = (name) => button('tab-' + name, () => this.#go(name), {
      role: 'tab', id: 'tab-' + name, 'aria-controls': 'tabpanel', 'aria-selected': String(name === this.#tab),
      tabindex: name === this.#tab ? '0' : '-1',
    }, t('tab.' + name), ' ', h('span.count', number(counts[name])))
    const shown = { tasks: () => this.#tasks(), inbox: () => this.#inbox(), dead: () => this.#dead() }[this.#tab]
    show(this.element, header,
      h('div.tabs', { role: 'tablist', onkeydown: (e) => this.#key(e) }, tabs.map(tab)),
      h('div', { role: 'tabpanel', id: 'tabpanel', 'aria-labelledby': 'tab-' + this.#tab }, shown()))
  }

  #go(tab) {
    this.#tab = tab
    this.draw()
    this.element.querySelector(`#tab-${tab}`).focus()
  }

  #key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    if (by) this.#go(tabs.at((tabs.indexOf(this.#tab) + by) % tabs.length))
  }

  #tasks() {
    const { tasks, self } = this.data
    if (!tasks.length) return empty('empty.tasks', 'feishu-relay mailbox send --type task AGENT "write a test"')
    return list(tasks, ({ id, state, direction, peer, text, result, reason, deadline, overdue, updated_at }) => {
      const [from, to] = direction === 'sent' ? [self, peer] : [peer, self]
      const colour = colours[state] ?? 'skip'
      const open = colour === 'wait' || colour === 'own'
      return h('li', { data: { testid: 'task', taskId: id, state } },
        title(mark(colour, t('task.' + state)), from, to, t('direction.' + direction), updated_at),
        text && h('p', { dir: 'auto' }, line(text, 300)),
        (result || reason) && h('div.result', { data: { testid: 'result' } },
          h('b', t(result ? 'result' : 'task.because'), t('colon')), body(cut(result || reason, RESULT))),
        h('div.soft', h('span.mono', cut(id, 80)),
          deadline && open && [' · ', t('deadline'), ' ', age(deadline)],
          overdue && [' · ', h('b.stop', t('overdue'))]))
    })
  }

  #inbox() {
    const { messages, total } = this.data.inbox
    if (!messages.length) return empty('empty.inbox')
    return [
      list(messages, (m) => h('li', { data: { testid: 'mail' } },
        title(h('span.tag', m.type), m.from, m.to, t('priority', { n: m.priority }), m.timestamp),
        h('p', { dir: 'auto' }, line(textOf(m), 300)),
        h('div.soft.mono', cut(m.id, 100)))),
      total > messages.length && h('p.soft', t('more.wait', { n: number(total - messages.length) }))]
  }

  #dead() {
    const { dead } = this.data
    if (!dead.length) return empty('empty.dead')
    const row = ({ id, code, reason, attempts, dead_at, envelope: m }) => h('li', { data: { testid: 'dead-letter' } },
      title(mark('stop', code, null, explain(code)), m.from, m.to, m.type, dead_at),
      h('p', { dir: 'auto' }, line(textOf(m), 300)),
      h('p.reason', { dir: 'auto' }, line(reason, 300)),
      h('div.foot', h('span.soft', h('span.mono', cut(id, 100)), ' · ', t('attempts', { n: number(attempts) })),
        button('replay', () => sure('replay', () => this.#replay(id)), null, t('replay'))))
    return list(dead, row)
  }

  async #replay(id) {
    try {
      await api.replay(id)
      notice(t('replayed'))
    } catch (error) {
      fault(error)
    }
    this.refresh()
  }
}

const list = (rows, row) => [
  h('ul.rows', rows.slice(0, SHOWN).map(row)),
  rows.length > SHOWN && h('p.soft', t('more.rows', { n: number(rows.length - SHOWN) })),
]

// title is the first line of a row: what it is, who sent it to whom, a word about it, and when.
const title = (mark, from, to, word, time) => h('div.title', mark,
  h('span', botName(from), ' → ', to === '*' ? t('everybody') : botName(to)),
  h('span.soft', word), h('span.far.soft', age(time)))

// textOf is the text of an envelope, or what represents it.
const textOf = ({ content }) => (content?.parts ?? [])
  .map((p) => (p.type === 'text' ? p.text : p.type === 'file' ? p.path : JSON.stringify(p.data))).join(' ')

// The section of the system: GET /v1/status, with the names that it has there.

const MINUTE = 60_000 // ms

export class System extends Panel {
  async load() {
    return { ...await api.status(), minute: Math.floor(Date.now() / MINUTE) }
  }

  draw() {
    const { ready, not_ready, last_hour, last_errors, token_required, minute, agents, settings, ...rest } = this.data
    const isPart = ([, value]) => value !== null && typeof value === 'object'
    const parts = Object.entries(rest)
    const link = (href) => h('a', { href: api.base + href, target: '_blank', rel: 'noopener' }, href)
    const card = ([name, part]) =>
      fields(part).length > 0 && h('section.card', h('h3', h('code', name)), table(fields(part)))
    const state = ready ? 'pass' : 'stop'
    show(this.element,
      h('header', h('h2', t('system')), h('span.links', ['/v1/status', '/metrics', '/v1'].map(link))),
      h('p.note', { class: state, data: { testid: 'ready', state } },
        ready ? t('ready.long') : [t('not.ready'), ': ', plain(not_ready ?? '')]),
      h('div.cards',
        card([t('sidecar'), Object.fromEntries(parts.filter((part) => !isPart(part)))]),
        h('section.card', { data: { testid: 'hour' } }, h('h3', t('hour.title')), lastHour(last_hour, minute)),
        parts.filter(isPart).map(card),
        h('details.card', { 'aria-label': 'settings' }, h('summary', h('code', 'settings')), table(fields(settings)))),
      h('h3', t('errors')), errors(last_errors),
      token_required && h('form', { method: 'post', action: api.base + '/sign-out' },
        h('button', { data: { testid: 'sign-out' } }, t('sign.out'))))
  }
}

// fields are the values of an object and of those in it, with their names. Zeros, what is empty and lists of
// objects are left out.
function fields(values, path = '') {
  return Object.entries(values ?? {}).flatMap(([name, value]) => {
    if ([0, '', null, undefined].includes(value)) return []
    if (Array.isArray(value)) return typeof value[0] === 'string' ? [[h('code', path + name), value.join(' ')]] : []
    if (typeof value === 'object') return fields(value, path + name + '.')
    return [[h('code', { title: explain(name) }, path + name), shown(name, value)]]
  })
}

// shown is a value of the status.
function shown(name, value) {
  if (typeof value === 'boolean') {
    const good = value ? 'pass' : 'wait'
    return mark(/connect|reading/.test(name) ? good : 'skip', t(value ? 'yes' : 'no'))
  }
  if (name.endsWith('_ms')) return span(value)
  if (name.endsWith('bytes')) return bytes(value)
  if (typeof value === 'number') return number(value)
  if (name === 'started' || name.endsWith('_at')) return age(value)
  const means = explain(`${name}.${value}`)
  return [h('span.mono', plain(cut(value, 400))), means && ' · ' + means]
}

// lastHour is what became of messages at this bot in the hour that ends with a minute: a bar for each.
function lastHour(minutes, end) {
  const there = minutes.filter(({ at }) => at / MINUTE > end - 60)
  const sum = (name) => there.reduce((n, m) => n + m[name], 0)
  const label = t('hour.split', { delivered: number(sum('delivered')), stopped: number(sum('stopped')) })
  const most = Math.max(4, ...there.map((m) => m.delivered + m.stopped))
  const bar = (at, low, n, state) =>
    svg('rect', { x: 59.1 - (end - at / MINUTE), y: most - low - n, width: 0.8, height: n, data: { state } })
  const minute = ({ at, delivered, stopped }) => svg('g',
    svg('title', `${clock(at)}: ${t('hour.split', { delivered, stopped })}`),
    bar(at, 0, delivered, 'pass'), bar(at, delivered, stopped, 'stop'))
  const box = { viewBox: `0 0 60 ${most}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label }
  return [svg('svg.hour', box, there.map(minute)), h('p.soft', label)]
}

function errors(list) {
  if (!list?.length) return h('p.soft', { data: { testid: 'no-errors' } }, t('errors.none'))
  return h('ul.rows', list.map(({ part, count, at, error }) => h('li', { data: { testid: 'problem', part } },
    h('div.title', h('code', part), h('span.soft', t('times', { n: number(count) })), h('span.far.soft', age(at))),
    h('p.reason', plain(cut(error, 600))))))
}
