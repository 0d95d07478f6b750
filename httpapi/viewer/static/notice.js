// Short words to the operator: at the edge of the page, or only spoken.

import { h } from './h.js'
import { t } from './i18n.js'

const STAYS = 6000 // ms
const AT_ONCE = 3 // more push the oldest out

// notice shows a message for a while.
export function notice(text, kind = 'plain') {
  const place = document.getElementById('notices')
  const item = h('div', { class: 'notice', 'data-kind': kind, 'data-testid': 'notice' }, h('span', null, text),
    h('button', { type: 'button', class: 'icon-button', 'aria-label': t('close'), onclick: () => item.remove() }, '×'))
  for (const same of place.children) if (same.firstChild.textContent === text) same.remove()
  place.append(item)
  while (place.childElementCount > AT_ONCE) place.firstChild.remove()
  setTimeout(() => item.remove(), STAYS)
}

// fault shows why something failed.
export function fault(error) {
  if (error.name === 'AbortError' || error.status === 401) return
  notice(error.status === 0 ? t('unreachable') : error.message, 'fault')
}

// say tells a screen reader something, politely.
export function say(text) {
  document.getElementById('spoken').textContent = text
}
