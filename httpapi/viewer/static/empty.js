// What a part of the page shows that has nothing to show yet: why, and the next command.

import { h } from './h.js'
import { t } from './i18n.js'
import { copyButton } from './copy.js'

// empty says a word, and shows the command to go on with, if there is one.
export function empty(word, command) {
  return h('div', { class: 'empty', 'data-testid': 'empty' }, h('p', null, t(word)),
    command && h('div', { class: 'next' }, h('code', { 'data-testid': 'next-command' }, command), copyButton(t('copy.command'), 'copy', () => command)))
}
