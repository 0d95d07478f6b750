// The section of the system: GET /v1/status for people.

import * as api from './api.js'
import { h, s as svg, show, icon } from './h.js'
import { t, explain } from './i18n.js'
import { number, bytes, span, clock } from './format.js'
import { plain, cut } from './text.js'
import { age } from './age.js'
import { botName } from './person.js'
import { table } from './details.js'
import * as seen from './seen.js'
import { Panel } from './panel.js'

const EVERY = 5000 // ms
const MINUTE = 60_000 // ms

export class System extends Panel {
  constructor(element) {
    super(element, EVERY)
  }

  async load() {
    const [status, groups] = await Promise.all([api.status(), seen.groups()])
    return { ...status, groups, minute: Math.floor(Date.now() / MINUTE) }
  }

  draw() {
    const s = this.data
    show(this.element,
      h('header', null, h('h2', null, t('system')),
        h('span', { class: 'links' }, ['/v1/status', '/metrics', '/v1'].map((href) => h('a', { href: api.base + href, target: '_blank', rel: 'noopener' }, href)))),
      h('p', { class: s.ready ? 'note pass' : 'note stop', 'data-testid': 'ready', 'data-state': s.ready ? 'pass' : 'stop' }, s.ready ? t('ready.long') : [t('not.ready'), ': ', plain(s.not_ready ?? '')]),
      s.groups_file_error && h('p', { class: 'note stop' }, t('groups.file'), ': ', plain(s.groups_file_error)),
      h('div', { class: 'cards' },
        card('sidecar', table([
          [t('agent'), s.identity.agent_name], [t('bot.name'), s.identity.bot_name], ['Open ID', mono(s.identity.bot_open_id)], ['App ID', mono(s.identity.app_id)],
          [t('version'), mono(s.version)], [t('started'), s.started && age(s.started)], [t('backend'), s.backend],
          [t('membership'), s.membership && `${s.membership.check} · ${t(s.membership.enforced ? 'enforced' : 'not.enforced')}`],
        ])),
        s.last_hour && h('section', { class: 'card', 'data-testid': 'hour' }, h('h3', null, t('hour.title')), lastHour(s.last_hour, s.minute)),
        s.groups.length > 0 && card('groups', table(seen.lines(s.groups))),
        card('door.title', table([
          [t('door.name'), h('code', null, s.door.name)], [t('door.bot'), s.door.connected === undefined ? t('unknown') : yes(s.door.connected, 'connected', 'away')],
          [t('connector'), s.connector !== undefined && yes(s.connector, 'connected', 'away')],
          [t('gateway.bot'), s.gateway && yes(s.gateway.connected, 'connected', 'away')], [t('gateway.drafts'), s.gateway && s.gateway.drafts > 0 && number(s.gateway.drafts)],
        ])),
        card('limits.title', limits(s.limits)),
        card('judge.title', judge(s.judge)),
        Object.entries(s.queues).map(([name, q]) => queue(name, q)),
        s.mailbox && card('mailbox', table([[t('backend'), s.mailbox.backend], [t('queue.inbox'), some(s.mailbox.waiting)], [t('queue.unacknowledged'), some(s.mailbox.unacknowledged)], [t('open.tasks'), some(s.mailbox.open_tasks)]])),
        Object.keys(s.missing ?? {}).length > 0 && card('missing.title', missing(s.missing))),
      h('h3', null, t('errors')), errors(s.last_errors),
      s.token_required && h('form', { method: 'post', action: api.base + '/sign-out' }, h('button', { 'data-testid': 'sign-out' }, icon('out'), t('sign.out'))))
  }
}

const card = (title, ...inside) => h('section', { class: 'card' }, h('h3', null, t(title)), inside)
const some = (n) => n > 0 && number(n) // zeros are left out
const mono = (text) => text && h('span', { class: 'mono' }, text)
const yes = (is, good, bad) => h('span', { class: 'state', 'data-state': is ? 'pass' : 'wait' }, t(is ? good : bad))

// lastHour is what became of messages at this bot in the hour that ends with a minute: a bar for each.
function lastHour(minutes, end) {
  const shown = minutes.filter(({ at }) => at / MINUTE > end - 60)
  const sum = (name) => shown.reduce((n, m) => n + m[name], 0)
  const label = t('hour.split', { delivered: number(sum('delivered')), stopped: number(sum('stopped')) })
  const most = Math.max(4, ...shown.map((m) => m.delivered + m.stopped))
  const bar = (at, low, n, state) => svg('rect', { x: 59.1 - (end - at / MINUTE), y: most - low - n, width: 0.8, height: n, 'data-state': state })
  return [
    svg('svg', { class: 'hour', viewBox: `0 0 60 ${most}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
      shown.map(({ at, delivered, stopped }) => svg('g', null, svg('title', null, `${clock(at)}: ${t('hour.split', { delivered, stopped })}`), bar(at, 0, delivered, 'pass'), bar(at, delivered, stopped, 'stop')))),
    h('p', { class: 'soft' }, label)]
}

function limits(l) {
  if (!l) return h('p', { class: 'soft' }, t('unknown'))
  return table(Object.entries(l).map(([name, value]) => [h('code', { title: explain(name) }, name), name.endsWith('_ms') ? span(value) : typeof value === 'boolean' ? t(value ? 'on' : 'off') : String(value)]))
}

function judge(j) {
  if (typeof j === 'string') return h('p', null, h('code', null, j), ' ', h('span', { class: 'soft' }, explain('judge.' + j)))
  return table([
    [t('judge.model'), mono(j.model)], [t('judge.breaker'), h('span', { class: 'state', 'data-state': j.breaker === 'closed' ? 'pass' : 'wait', title: explain('breaker.' + j.breaker) }, j.breaker)],
    [t('judge.failures'), some(j.failures)], [t('judge.retry'), j.retry_at && age(j.retry_at)], [t('judge.calls'), some(j.calls)],
  ])
}

function queue(name, q) {
  const counted = Object.entries(q.counted ?? {}).filter(([, n]) => n > 0)
  return h('section', { class: 'card', 'data-testid': 'queue', 'data-queue': name }, h('h3', null, t('queue.of.' + name)),
    table([
      [t('queue.state'), yes(q.connected && q.reading, 'queue.read', 'queue.not.read')],
      [t('queue.lag'), some(q.lag)], [t('queue.unsettled'), some(q.unsettled)],
      [t('queue.outbox'), q.outbox.pending > 0 && `${number(q.outbox.pending)} · ${bytes(q.outbox.pending_bytes)}`],
      [t('queue.published'), some(q.outbox.published)], [t('queue.republished'), some(q.outbox.republished)],
      [t('queue.failed'), some(q.outbox.failed)], [t('error'), (q.error || q.outbox.error) && plain(cut(q.error || q.outbox.error, 400))],
      ...counted.map(([event, n]) => [h('code', null, event), number(n)]),
    ]))
}

function missing(m) {
  return table(Object.entries(m).map(([agent, n]) => [botName(agent), t('missing.n', { n: number(n) })]))
}

function errors(list) {
  if (!list?.length) return h('p', { class: 'soft', 'data-testid': 'no-errors' }, t('errors.none'))
  return h('ul', { class: 'rows' }, list.map((e) => h('li', { 'data-testid': 'problem', 'data-part': e.part },
    h('div', { class: 'title' }, h('code', null, e.part), h('span', { class: 'soft' }, t('times', { n: number(e.count) })), h('span', { class: 'far soft' }, age(e.at))),
    h('p', { class: 'reason' }, plain(cut(e.error, 600))))))
}
