// Short words to the operator: at the edge of the page, or only spoken; and what a part shows that is empty.

import { h, iconButton, show } from './h.js'
import { t } from './language.js'

const STAYS = 6000 // ms

// notice shows a message for a while, in the place of the one before.
export function notice(text, kind = 'plain') {
  const item = h('div.notice', { data: { kind, testid: 'notice' } }, h('span', text),
    iconButton('notice-close', () => item.remove(), '×', t('close')))
  document.getElementById('notices').replaceChildren(item)
  setTimeout(() => item.remove(), STAYS)
}

// fault shows why something failed.
export function fault(error) {
  if (error.name === 'AbortError' || error.status === 401) return
  notice(error.status === 0 ? t('unreachable') : error.message, 'fault')
}

// sure asks before something is done, and calls act if the answer is yes.
export function sure(word, act) {
  const dialog = document.getElementById('sure')
  const asks = document.activeElement.dataset.testid
  dialog.onclose = () => { // what asked may have been drawn again meanwhile; then the focus is nowhere, or still in here
    const at = document.activeElement
    if (at === document.body || dialog.contains(at)) document.querySelector(`[data-testid="${asks}"]`)?.focus()
  }
  show(dialog, h('p', t(word + '.sure')), h('form', { method: 'dialog', class: 'buttons' },
    h('button.primary', { autofocus: true, data: { testid: 'sure-yes' }, onclick: act }, t(word + '.yes')),
    h('button', { data: { testid: 'sure-no' } }, t('cancel'))))
  dialog.showModal()
}

// say tells a screen reader something, politely.
export const say = (text) => (document.getElementById('spoken').textContent = text)

// empty says why there is nothing, and shows the command to go on with, if there is one.
export const empty = (word, command) => h('div.empty', { data: { testid: 'empty' } }, h('p', t(word)),
  command && h('code.next', { data: { testid: 'next-command' } }, command))
