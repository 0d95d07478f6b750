// What the keys do. Everything can be reached with Tab as well.

import { h, show } from './h.js'
import { t } from './i18n.js'

const help = [
  ['j / ↓', 'key.next'], ['k / ↑', 'key.previous'], ['Enter', 'key.details'], ['Esc', 'key.escape'], ['End', 'key.end'], ['/', 'key.search'],
  ['[ ]', 'key.groups'], ['g g / i / a / m / s', 'key.sections'], ['t', 'key.theme'], ['l', 'key.language'], ['?', 'key.help'],
]

// keys binds actions: next, previous, details, escape, end, search, beside(by),
// section(name), theme, language.
export function keys(actions) {
  const dialog = document.getElementById('keys')
  const sections = { g: 'groups', a: 'agents', m: 'mailbox', s: 'system' }
  const plainKeys = {
    j: actions.next, k: actions.previous, '/': actions.search, '[': () => actions.beside(-1), ']': () => actions.beside(1),
    t: actions.theme, l: actions.language, '?': () => showKeys(dialog),
  }
  const flowKeys = { ArrowDown: actions.next, ArrowUp: actions.previous, Enter: actions.details, End: actions.end } // where no control takes them
  let afterG = false

  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented || dialog.open) return
    if (event.key === 'Escape') return actions.escape()
    const { target } = event
    if (target.closest('input, select, textarea')) return
    const free = !target.closest('a, button, [role=tab], svg, aside')
    const action = afterG && sections[event.key] ? () => actions.section(sections[event.key]) : plainKeys[event.key] ?? (free ? flowKeys[event.key] : undefined)
    afterG = !afterG && event.key === 'g'
    if (!action) return
    event.preventDefault()
    action()
  })
}

export function showKeys(dialog = document.getElementById('keys')) {
  show(dialog,
    h('h2', null, t('keys')),
    h('dl', null, help.map(([key, word]) => h('div', null, h('dt', null, key.split(' ').map((k) => (/[·/]/.test(k) && key.length > 1 ? ` ${k} ` : h('kbd', null, k)))), h('dd', null, t(word))))),
    h('form', { method: 'dialog' }, h('button', { class: 'primary' }, t('close'))))
  dialog.showModal()
}
