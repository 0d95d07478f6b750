// Copies a text for the operator.

import { h, icon } from './h.js'
import { t } from './i18n.js'
import { notice } from './notice.js'

export function copyButton(label, picture, text) {
  return h('button', { type: 'button', onclick: async () => notice((await copied(text())) ? t('copied') : t('copy.failed')) }, icon(picture), label)
}

// copied reports whether text is on the clipboard now. Away from localhost and
// without TLS a page has no clipboard of its own; the old command still works.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    const field = h('textarea', { class: 'unshown', readonly: true })
    field.value = text
    document.body.append(field)
    field.select()
    const done = document.execCommand('copy')
    field.remove()
    return done
  }
}
