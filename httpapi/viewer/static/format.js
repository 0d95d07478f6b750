// Times and numbers, as the viewer's language writes them.

import { language, t } from './i18n.js'

const made = new Map()

function time(options) {
  const key = language() + JSON.stringify(options)
  if (!made.has(key)) made.set(key, new Intl.DateTimeFormat(locale(), options))
  return made.get(key)
}

// locale is the browser's own for the chosen language, so that an English reader
// in Berlin sees 21:44 and one in Boston 9:44 PM.
function locale() {
  return navigator.languages.find((l) => l.startsWith(language())) ?? (language() === 'zh' ? 'zh-CN' : 'en-GB')
}

// valid leaves out times that are none, which a hostile clock may send.
const valid = (ms) => Number.isFinite(ms) && Math.abs(ms) < 8.64e15

const written = (ms, options) => (valid(ms) ? time(options).format(ms) : '—')

export const clock = (ms) => written(ms, { hour: '2-digit', minute: '2-digit' })
export const second = (ms) => written(ms, { hour: '2-digit', minute: '2-digit', second: '2-digit' })
export const sameDay = (a, b) => dayKey(a) === dayKey(b)
export const exact = (ms) => written(ms, { dateStyle: 'medium', timeStyle: 'medium' })
export const day = (ms) => written(ms, { weekday: 'short', year: 'numeric', month: 'long', day: 'numeric' })
export const dayKey = (ms) => (valid(ms) ? new Date(ms).toDateString() : '')

// brief is the time if it is today's, else the date.
export function brief(ms) {
  return dayKey(ms) === dayKey(Date.now()) ? clock(ms) : written(ms, { month: 'short', day: 'numeric' })
}

// moment is the time, with its date if that is not today.
export const moment = (ms) => (brief(ms) === clock(ms) ? clock(ms) : `${brief(ms)} ${clock(ms)}`)

// ends is until when a pause holds, behind what is paused; '' if somebody has to end it.
export const ends = ({ until }) => (until ? ' ' + t('steer.until', { time: moment(until) }) : '')

// holds reports whether a pause or a mute is there and has not ended by itself.
export const holds = (paused) => Boolean(paused) && (!paused.until || paused.until > Date.now())

const units = [['day', 86_400_000], ['hour', 3_600_000], ['minute', 60_000], ['second', 1000]]

// ago is how long ago (or until) ms is: "3 minutes ago".
export function ago(ms) {
  if (!valid(ms)) return '—'
  const left = ms - Date.now()
  const [unit, size] = units.find(([, size]) => Math.abs(left) >= size) ?? units.at(-1)
  return new Intl.RelativeTimeFormat(locale(), { numeric: 'auto', style: 'short' }).format(Math.trunc(left / size), unit)
}

// span is a length of time: "120 ms", "1.2 s", "3 h".
export function span(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`
  return ms < 172_800_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} d`
}

// listed puts nodes into a row, as in "a, b and c".
export function listed(nodes) {
  const style = language() === 'zh' ? 'narrow' : 'long' // "甲、乙", and "a and b"
  const parts = new Intl.ListFormat(locale(), { style }).formatToParts(nodes.map((_, i) => String(i)))
  return parts.map(({ type, value }) => (type === 'element' ? nodes[Number(value)] : value))
}

export const number = (n) => new Intl.NumberFormat(locale()).format(n)

export function bytes(n) {
  if (n < 1024) return `${n} B`
  return n < 1 << 20 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`
}

// millis reads a time of the API: Unix milliseconds, or RFC 3339.
export const millis = (t) => (typeof t === 'number' ? t : Date.parse(t))
