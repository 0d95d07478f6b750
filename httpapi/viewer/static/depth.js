// The small picture of how deep a conversation was, message by message: a line
// of steps that falls to nothing where a person speaks, the limits, the stops.

import { h, s, show } from './h.js'
import { t } from './i18n.js'
import { second, sameDay, brief } from './format.js'
import { clean, cut } from './text.js'
import { isBot, isNotice, nameOf } from './conversation.js'
import { overall } from './verdict.js'

const LEAST = 9 // px from one message to the next, at least
const LOOSE = 12 // px of line beside a message to which no line leads
const HEIGHT = 64
const LEFT = 28 // for the numbers
const RIGHT = 8
const TOP = 8
const BOTTOM = 16 // for the times

// DepthPicture draws into element; go(id) is called for the message that is chosen.
export class DepthPicture {
  #drawn = []
  #step = LEAST // px from one message to the next
  #chosen = -1

  constructor(element, go) {
    this.element = element
    this.go = go
    element.addEventListener('click', (e) => this.#choose(this.#nearest(e), true))
    element.addEventListener('keydown', (e) => this.#key(e))
    new ResizeObserver(() => this.again?.()).observe(element)
  }

  // draw shows the messages up to the one at index `end`, as many as fit.
  draw(conversation, entries, end, limits) {
    this.again = () => this.draw(conversation, entries, end, limits)
    const width = this.element.clientWidth
    const room = Math.max(1, Math.floor((width - LEFT - RIGHT) / LEAST))
    const list = []
    for (let i = end; i >= 0 && list.length < room; i--) if (!isNotice(entries[i])) list.unshift(entries[i])
    this.#drawn = list
    this.#chosen = -1
    if (!width || !list.some((e) => e.depth > 0)) {
      show(this.element, h('p', { class: 'none' }, t('depth.none')))
      return
    }
    const deepest = Math.max(limits?.max_depth ?? 0, ...list.map((e) => e.depth ?? 0))
    const y = (depth) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - depth / deepest)
    const step = (this.#step = (width - LEFT - RIGHT) / list.length)
    const x = (i) => LEFT + step * i + step / 2
    const picture = s('svg', {
      viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: 'img', tabindex: '0', 'data-testid': 'depth', 'aria-label': t('depth.picture', { n: list.length, deepest: Math.max(...list.map((e) => e.depth ?? 0)) }),
    },
    limits && [limitLine('threshold', limits.threshold, y, width), limitLine('max', limits.max_depth, y, width)],
    s('line', { class: 'ground', x1: LEFT, x2: width - RIGHT, y1: y(0), y2: y(0) }),
    s('path', { class: 'steps', d: steps(list, x, y, step, adjacent(list, conversation)) }),
    list.map((entry, i) => dot(entry, x(i), y, conversation)),
    times(list, x, width))
    show(this.element, this.#head(limits), picture)
  }

  // head is what the picture shows, and what its colours and lines mean.
  #head(limits) {
    const item = (sign, text) => h('span', null, h('i', { class: 'key ' + sign }), text)
    return h('div', { class: 'depth-head' }, h('h3', null, t('depth.title')),
      h('div', { class: 'legend', 'aria-hidden': 'true' }, item('person', t('depth.person')), item('pass', t('state.pass')), item('wait', t('state.wait')), item('stop', t('state.stop')),
        limits && [item('threshold', t('depth.threshold', { n: limits.threshold })), item('max', t('depth.max', { n: limits.max_depth }))]))
  }

  // show marks the dot of a message, if it is drawn.
  mark(id) {
    this.element.querySelector('.chosen')?.classList.remove('chosen')
    if (id) this.element.querySelector(`[data-go="${CSS.escape(id)}"]`)?.classList.add('chosen')
  }

  #nearest(event) {
    const { left } = this.element.getBoundingClientRect()
    return Math.round((event.clientX - left - LEFT - this.#step / 2) / this.#step)
  }

  #choose(i, go) {
    if (!this.#drawn.length) return
    this.#chosen = Math.max(0, Math.min(i, this.#drawn.length - 1))
    const { message_id } = this.#drawn[this.#chosen]
    this.mark(message_id)
    if (go) this.go(message_id)
  }

  #key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    if (by) this.#choose(this.#chosen < 0 ? this.#drawn.length - 1 : this.#chosen + by, false)
    else if (event.key === 'Enter' && this.#chosen >= 0) this.#choose(this.#chosen, true)
    else return
    event.preventDefault()
    event.stopPropagation()
  }
}

function limitLine(kind, depth, y, width) {
  return [
    s('line', { class: 'limit ' + kind, x1: LEFT, x2: width - RIGHT, y1: y(depth), y2: y(depth) }, s('title', null, t('limit.' + kind, { n: depth }))),
    s('text', { class: 'limit ' + kind, x: LEFT - 6, y: y(depth) + 3.5, 'text-anchor': 'end' }, depth),
  ]
}

// adjacent is the set of messages of list whose predecessor in it is the one in the conversation
// too: a filter leaves others out.
function adjacent(list, { entries }) {
  const found = new Set()
  let at = entries.indexOf(list[0])
  if (at < 0) return found // found further back
  const next = () => {
    do at++
    while (at < entries.length && isNotice(entries[at]))
    return entries[at]
  }
  for (let i = 1; i < list.length; i++) {
    if (next() === list[i]) found.add(list[i])
    else while (at < entries.length && entries[at] !== list[i]) at++
  }
  return found
}

function steps(list, x, y, step, joined) {
  const loose = Math.min(step / 2, LOOSE)
  const reach = (e) => (joined.has(e) ? step / 2 : loose)
  return list.map((e, i) => `${joined.has(e) ? 'L' : 'M'}${x(i) - reach(e)} ${y(e.depth ?? 0)}H${x(i) + reach(list[i + 1])}`).join('')
}

function dot(entry, x, y, conversation) {
  const label = s('title', null, `${second(entry.ts)} ${clean(cut(nameOf(entry), 64))}` + (entry.depth ? ` · ${t('depth.n', { n: entry.depth })}` : ''))
  if (!isBot(entry)) return s('rect', { class: 'dot person', 'data-go': entry.message_id, x: x - 2, y: y(0) - 2, width: 4, height: 4 }, label)
  return s('circle', { class: 'dot', 'data-go': entry.message_id, 'data-state': overall(conversation.outcomes(entry.message_id)), cx: x, cy: y(entry.depth ?? 0), r: 3.2 }, label)
}

// times are under the first message, the last, and some between.
function times(list, x, width) {
  const n = Math.min(list.length, Math.max(2, Math.floor(width / 220)))
  const at = [...new Set(Array.from({ length: n }, (_, i) => (n > 1 ? Math.round((i * (list.length - 1)) / (n - 1)) : 0)))]
  return at.map((i, k) => {
    const [where, anchor] = k === 0 ? [LEFT, 'start'] : k === at.length - 1 ? [width - RIGHT, 'end'] : [x(i), 'middle']
    return s('text', { class: 'time', x: where, y: HEIGHT - 3, 'text-anchor': anchor }, timeOf(list[i].ts))
  })
}

const timeOf = (ts) => (sameDay(ts, Date.now()) ? second(ts) : `${brief(ts)} ${second(ts)}`)
