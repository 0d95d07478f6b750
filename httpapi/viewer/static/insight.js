// The section that shows what happened in a group in a day.

import * as api from './api.js'
import { h, s, show, icon } from './h.js'
import { t, explain, language } from './i18n.js'
import { number, span, day } from './format.js'
import { clean, cut } from './text.js'
import { botName } from './person.js'
import { route, insightHash } from './route.js'
import { plot } from './plot.js'
import { FROM, chatName, learn } from './names.js'
import { isMail } from './conversation.js'
import { empty } from './empty.js'
import { why } from './chips.js'
import { Panel } from './panel.js'
import { fault } from './notice.js'

const EVERY = 30_000 // ms

// Insight shows the group and the day of the address; latest() is the group where it names none.
export class Insight extends Panel {
  constructor(element, latest) {
    super(element, EVERY)
    this.latest = latest
  }

  async load() {
    const [{ transcripts }, { groups }] = await Promise.all([api.transcripts(), api.groups()])
    for (const { agent, name } of groups.flatMap((g) => g.bots)) learn(agent, name, FROM.group)
    const { channel, chat, message } = route()
    const wanted = chat ? { channel, chat_id: chat } : this.latest()
    const group = transcripts.find((g) => g.channel === wanted?.channel && g.chat_id === wanted.chat_id) ?? transcripts[0]
    const date = dateOf(message) ?? dateOf(local(new Date(group?.last?.ts ?? Date.now())))
    const next = new Date(date.getFullYear(), date.getMonth(), date.getDate() + 1)
    const data = group && await api.insight(group.channel, group.chat_id, date.getTime(), next.getTime())
    return { groups: transcripts.filter((g) => !isMail(g)).map(({ channel, chat_id, name }) => ({ channel, chat_id, name })), group: group && { channel: group.channel, chat_id: group.chat_id, name: group.name }, date: local(date), data }
  }

  draw() {
    const { data, group } = this.data
    const header = this.#header()
    if (!group) return show(this.element, header, empty('empty.groups', 'feishu-relay check'))
    const { messages, stops, judge, latency, hours, answers } = data
    const total = messages.people + messages.bots
    const delivered = sum(hours, 'delivered')
    const stopped = sum(hours, 'stopped')
    if (!total) return show(this.element, header, h('p', { class: 'empty', 'data-testid': 'empty' }, t('insight.empty')))
    const perHour = h('div', { class: 'plot' })
    const became = h('div', { class: 'plot' })
    const waits = h('div', { class: 'plot' })
    show(this.element, header,
      !data.complete && h('p', { class: 'note', 'data-testid': 'incomplete' }, t('insight.incomplete')),
      h('dl', { class: 'numbers' },
        figure('messages', number(total), t('insight.split', { people: number(messages.people), bots: number(messages.bots) })),
        figure('state.pass', number(delivered), t('insight.deliveries')),
        figure('state.stop', number(stopped), stopped > 0 && percent(stopped, delivered + stopped)),
        figure('insight.latency', latency.n ? span(latency.p50) : '—', latency.n > 0 && t('insight.p95', { time: span(latency.p95) }))),
      h('div', { class: 'cards plots' },
        card('insight.messages', t('insight.split', { people: number(messages.people), bots: number(messages.bots) }), perHour),
        card('insight.became', `${number(delivered)} ${t('state.pass')}, ${number(stopped)} ${t('state.stop')}`, became),
        latency.n > 0 && card('insight.latency', t('insight.p95', { time: span(latency.p95) }), waits),
        h('section', { class: 'card', 'data-testid': 'stops' }, h('h3', null, t('insight.stops')), stops.length ? barList(stops) : h('p', { class: 'soft' }, t('insight.no.stops'))),
        h('section', { class: 'card', 'data-testid': 'judge' }, h('h3', null, t('insight.judge')), verdicts(judge)),
        h('section', { class: 'card wide', 'data-testid': 'answers' }, h('h3', null, t('insight.answers')), answers.length ? matrix(answers) : h('p', { class: 'soft' }, t('insight.no.answers')))),
      h('p', { class: 'soft credit' }, t('insight.drawn'), ' ', h('a', { href: api.base + '/viewer/uPlot.LICENSE', target: '_blank', rel: 'noopener' }, 'uPlot 1.6.32')))
    const of = (get) => hours.map(get)
    Promise.all([
      plot(perHour, hours, [{ label: t('filter.people'), colour: 'soft', values: of((x) => x.people) }, { label: t('filter.bots'), colour: 'accent', values: of((x) => x.bots) }]),
      plot(became, hours, [{ label: t('state.pass'), colour: 'pass', values: of((x) => x.delivered) }, { label: t('state.stop'), colour: 'stop', values: of((x) => x.stopped) }]),
      latency.n > 0 && plot(waits, hours, [{ label: t('insight.half'), colour: 'accent', values: of((x) => (x.latency.n ? x.latency.p50 : null)) }, { label: t('insight.most'), colour: 'soft', values: of((x) => (x.latency.n ? x.latency.p95 : null)) }], { bars: false, say: span }),
    ]).catch(fault)
  }

  #header() {
    const { groups, group, date } = this.data
    const go = (g, d) => (location.hash = insightHash(g.channel, g.chat_id, d))
    const key = (g) => JSON.stringify([g.channel, g.chat_id])
    const choice = h('select', { 'aria-label': t('groups'), 'data-testid': 'insight-group', onchange: () => go(groups.find((g) => key(g) === choice.value), date) }, groups.map((g) => h('option', { value: key(g) }, clean(cut(chatName(g), 60)))))
    if (group) choice.value = key(group)
    const input = h('input', { type: 'date', value: date, required: true, 'aria-label': t('insight.day'), 'data-testid': 'insight-day', onchange: () => input.value && go(group, input.value) })
    const step = (by, name) => h('button', { type: 'button', class: 'icon-button', 'aria-label': t(name), title: t(name), 'data-testid': name, onclick: () => go(group, shifted(date, by)) }, icon(by < 0 ? 'back' : 'forth'))
    return h('header', null, h('h2', null, t('insight')), group && h('div', { class: 'buttons' }, choice, step(-1, 'insight.before'), input, step(1, 'insight.after'), h('span', { class: 'soft' }, day(dateOf(date).getTime()))))
  }
}

// local is a date as YYYY-MM-DD, and dateOf the midnight that it names here; undefined: none.
const local = (date) => [date.getFullYear(), date.getMonth() + 1, date.getDate()].map((n) => String(n).padStart(2, '0')).join('-')

function dateOf(text) {
  const parts = /^(\d{4})-(\d\d)-(\d\d)$/.exec(text ?? '')
  return parts ? new Date(Number(parts[1]), Number(parts[2]) - 1, Number(parts[3])) : undefined
}

function shifted(text, by) {
  const date = dateOf(text)
  return local(new Date(date.getFullYear(), date.getMonth(), date.getDate() + by))
}

const sum = (list, name) => list.reduce((n, x) => n + x[name], 0)
const percent = (n, of) => `${Math.round((100 * n) / Math.max(1, of))}${language() === 'zh' ? '%' : ' %'}`
const figure = (name, value, more) => h('div', { 'data-figure': name }, h('dt', null, t(name)), h('dd', null, value), more && h('dd', { class: 'soft' }, more))
const card = (title, label, plot) => h('section', { class: 'card', 'data-testid': 'plot' }, h('h3', null, t(title)), h('div', { role: 'img', 'aria-label': `${t(title)}: ${label}` }, plot))

// bar is a part of a whole, in the colour of a state.
const bar = (part, state) => s('svg', { class: 'bar', viewBox: '0 0 100 1', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, s('rect', { width: 100 * part, height: 1, 'data-state': state }))

// nameOf is a reason in a few words.
const nameOf = (reason) => (reason === 'max_depth' ? t('insight.limit') : why({ stopped: reason }))

function barList(stops) {
  const most = stops[0].n
  return h('ul', { class: 'bars' }, stops.map(({ reason, n }) => h('li', { title: clean(explain(reason)), 'data-reason': reason }, h('span', null, nameOf(reason)), h('b', null, number(n)), bar(n / most, 'stop'))))
}

function verdicts({ yes, no, error, took }) {
  const all = yes + no + error
  if (!all) return h('p', { class: 'soft' }, t('insight.no.judge'))
  return [
    h('ul', { class: 'bars' }, [['yes', yes, 'pass'], ['no', no, 'stop'], ['error', error, 'stop']].filter(([, n]) => n > 0).map(([name, n, state]) =>
      h('li', { 'data-verdict': name }, h('span', null, t('judge.' + name)), h('b', null, number(n), ' ', h('span', { class: 'soft' }, percent(n, all))), bar(n / all, state)))),
    h('p', { class: 'soft' }, t('insight.took', { half: span(took.p50), most: span(took.p95) })),
  ]
}

// matrix is who answers whom: a row for each bot that answers, a column for who is answered.
function matrix(answers) {
  const rows = [...new Set(answers.map((a) => a.from))]
  const columns = [...new Set(answers.map((a) => a.to))].sort((a, b) => (a === '' ? -1 : b === '' ? 1 : rows.indexOf(a) - rows.indexOf(b)))
  const most = Math.max(...answers.map((a) => a.n))
  const cell = (from, to) => {
    const n = answers.find((a) => a.from === from && a.to === to)?.n ?? 0
    const td = h('td', { 'data-from': from, 'data-to': to }, n ? number(n) : from === to ? '' : h('span', { class: 'soft' }, '·'))
    td.style.setProperty('--part', `${Math.round((60 * n) / most)}%`)
    return td
  }
  return h('div', { class: 'matrix' }, h('table', null,
    h('thead', null, h('tr', null, h('th', { class: 'soft' }, t('insight.corner')), columns.map((c) => h('th', { scope: 'col' }, c === '' ? t('filter.people') : botName(c))))),
    h('tbody', null, rows.map((r) => h('tr', null, h('th', { scope: 'row' }, botName(r)), columns.map((c) => cell(r, c)))))))
}
