// What the keys do. Everything can be reached with Tab as well.

import { h, show } from './h.js'
import { t } from './language.js'

const help = {
  next: 'j ↓', previous: 'k ↑', details: 'Enter', escape: 'Esc', end: 'End', search: '/', groups: '[ ]',
  sections: 'g g i a m s', theme: 't', language: 'l', keys: '?',
}
const dialog = document.getElementById('keys')

// keys binds actions: next, previous, details, escape, end, search, beside(by), section(name), theme, language.
export function keys(actions) {
  const sections = { g: 'groups', a: 'agents', m: 'mailbox', s: 'system' }
  const plainKeys = {
    j: actions.next, k: actions.previous, '/': actions.search, t: actions.theme, l: actions.language, '?': showKeys,
    '[': () => actions.beside(-1), ']': () => actions.beside(1),
  }
  const flowKeys = { ArrowDown: actions.next, ArrowUp: actions.previous, Enter: actions.details, End: actions.end }
  let afterG = false

  document.addEventListener('keydown', (event) => {
    const { key, target } = event
    const held = event.ctrlKey || event.metaKey || event.altKey || event.isComposing
    if (held || event.defaultPrevented || document.querySelector('dialog[open]')) return
    if (key === 'Escape') return actions.escape()
    if (target.closest('input, select, textarea')) return
    const free = !target.closest('a, button, [role=tab], summary, aside') // no control that takes the key itself
    const section = afterG && sections[key]
    const action = section ? () => actions.section(section) : plainKeys[key] ?? (free ? flowKeys[key] : undefined)
    afterG = !afterG && key === 'g'
    if (!action) return
    event.preventDefault()
    action()
  })
}

export function showKeys() {
  const signs = (keys) => keys.split(' ').map((key) => h('kbd', key))
  const row = ([word, keys]) => h('div', h('dt', signs(keys)), h('dd', t('key.' + word)))
  show(dialog, h('h2', t('keys')), h('dl', Object.entries(help).map(row)),
    h('form', { method: 'dialog' }, h('button.primary', t('close'))))
  dialog.showModal()
}
