// Relative times, which go on while one looks.

import { h } from './h.js'
import { ago, exact, millis } from './format.js'

const EVERY = 10_000 // ms

// age is "3 minutes ago", kept up to date.
export function age(time) {
  const ms = millis(time)
  return h('time', { 'data-age': ms, title: exact(ms) }, ago(ms))
}

setInterval(() => {
  if (document.hidden) return
  for (const element of document.querySelectorAll('[data-age]')) element.textContent = ago(Number(element.dataset.age))
}, EVERY)
