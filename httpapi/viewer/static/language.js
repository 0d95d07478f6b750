// The viewer's language: words, times and numbers; and what the browser remembers of the page.

import { h } from './h.js'
import { en } from './words-en.js'
import { zh } from './words-zh.js'
import { reasons } from './reasons.js'

const words = { en, zh }
const PREFIX = 'feishu-relay.'

export function remembered(key) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + key))
  } catch {
    return null // storage is off
  }
}

export function remember(key, value) {
  try {
    localStorage.setItem(PREFIX + key, JSON.stringify(value))
  } catch {
    // storage is off or full: forgotten with the page
  }
}

let chosen = remembered('language') ?? (navigator.language.toLowerCase().startsWith('zh') ? 'zh' : 'en')
if (!words[chosen]) chosen = 'en'
document.documentElement.lang = chosen

export const language = () => chosen

export function setLanguage(name) {
  chosen = name
  remember('language', name)
  document.documentElement.lang = name
}

// filled is the text of a key with nodes in the place of the {name}s.
export const filled = (key, nodes) =>
  (words[chosen][key] ?? key).split(/\{(\w+)\}/).map((part, i) => (i % 2 ? nodes[part] : part))

// t is the text of a key with values in the place of the {name}s.
export const t = (key, values = {}) => filled(key, values).join('')

// explain says what a word of the API means; '' if there is no more to say.
export const explain = (word) => reasons[word]?.[chosen]?.means ?? words[chosen]['means.' + word] ?? ''

// advise says what to do about a reason of the API, or about a state; '' if nothing is known.
export const advise = (word) => reasons[word]?.[chosen]?.do ?? words[chosen]['do.' + word] ?? ''

const AGES_EVERY = 10_000 // ms between looks at relative times

// locale is the browser's own for the chosen language, so that an English reader in Berlin sees 21:44
// and one in Boston 9:44 PM.
const locale = () => navigator.languages.find((l) => l.startsWith(chosen)) ?? { zh: 'zh-CN', en: 'en-GB' }[chosen]

const made = new Map()

// formatter is an Intl formatter of the language; making one is slow.
function formatter(kind, options) {
  const key = kind + locale() + JSON.stringify(options)
  if (!made.has(key)) made.set(key, new Intl[kind](locale(), options))
  return made.get(key)
}

// valid is false for what is not a time, which a hostile clock may send.
const valid = (ms) => Number.isFinite(ms) && Math.abs(ms) < 8.64e15

const written = (ms, options) => (valid(ms) ? formatter('DateTimeFormat', options).format(ms) : '—')

export const clock = (ms) => written(ms, { hour: '2-digit', minute: '2-digit' })
export const second = (ms) => written(ms, { hour: '2-digit', minute: '2-digit', second: '2-digit' })
export const exact = (ms) => written(ms, { dateStyle: 'medium', timeStyle: 'medium' })
export const day = (ms) => written(ms, { weekday: 'short', year: 'numeric', month: 'long', day: 'numeric' })
export const dayKey = (ms) => (valid(ms) ? new Date(ms).toDateString() : '')

const today = (ms) => dayKey(ms) === dayKey(Date.now())
const date = (ms) => written(ms, { month: 'short', day: 'numeric' })

// brief is the time if it is today's, else the date.
export const brief = (ms) => (today(ms) ? clock(ms) : date(ms))

// moment is the time, with its date if that is not today.
export const moment = (ms) => (today(ms) ? clock(ms) : `${date(ms)} ${clock(ms)}`)

// ends is until when a pause holds, behind what is paused; '' if somebody has to end it.
export const ends = ({ until }) => (until ? ' ' + t('steer.until', { time: moment(until) }) : '')

// holds reports whether a pause or a mute is there and has not ended by itself.
export const holds = (paused) => Boolean(paused) && (!paused.until || paused.until > Date.now())

const units = [[86_400_000, 'day'], [3_600_000, 'hour'], [60_000, 'minute'], [1000, 'second'], [1, 'millisecond']]

const withUnit = (n, unit) =>
  formatter('NumberFormat', { style: 'unit', unit, unitDisplay: 'short', maximumFractionDigits: 1 }).format(n)

// span is a length of time: "120 ms", "1.2 sec", "3 hr".
export function span(ms) {
  const [size, unit] = units.find(([size]) => ms >= size) ?? units.at(-1)
  return withUnit(ms / size, unit)
}

// ago is how long ago, or until, ms is: "3 minutes ago".
function ago(ms) {
  if (!valid(ms)) return '—'
  const left = ms - Date.now()
  const [size, unit] = units.find(([size]) => Math.abs(left) >= size && size > 1) ?? units.at(-2)
  return formatter('RelativeTimeFormat', { numeric: 'auto', style: 'short' }).format(Math.trunc(left / size), unit)
}

// age is the time of the API, Unix milliseconds or RFC 3339, as an "ago" that is kept up to date.
export function age(time) {
  const ms = typeof time === 'number' ? time : Date.parse(time)
  return h('time', { data: { age: ms }, title: exact(ms) }, ago(ms))
}

setInterval(() => {
  if (document.hidden) return
  for (const element of document.querySelectorAll('[data-age]')) element.textContent = ago(Number(element.dataset.age))
}, AGES_EVERY)

// listed puts nodes into a row: "a, b and c"; "甲、乙".
export function listed(nodes) {
  const style = chosen === 'zh' ? 'narrow' : 'long'
  const parts = formatter('ListFormat', { style }).formatToParts(Object.keys(nodes))
  return parts.map(({ type, value }) => (type === 'element' ? nodes[value] : value))
}

export const number = (n) => formatter('NumberFormat', {}).format(n)

export const bytes = (n) => (n < 1_000_000 ? withUnit(n / 1000, 'kilobyte') : withUnit(n / 1_000_000, 'megabyte'))
