// How who speaks is shown: people round, bots square, each bot in its own colour.

import { h } from './h.js'
import { plain, clean, cut } from './text.js'
import { t } from './i18n.js'
import { isBot, nameOf } from './conversation.js'

const HUES = 10 // classes hue-0 … hue-9
const LONGEST_NAME = 64

// hue is the same for a name wherever it stands.
export function hue(name) {
  let sum = 7
  for (const c of name) sum = (sum * 31 + c.codePointAt(0)) >>> 0
  return 'hue-' + (sum % HUES)
}

// initials are two letters of a name: of its last words, of its capitals, or of
// the end of a Chinese one.
function initials(name) {
  const visible = name.replace(/[^\p{L}\p{N}\s_.-]/gu, '').trim()
  if (/^[\p{Script=Han}]/u.test(visible)) return visible.slice(-2)
  const words = visible.split(/[\s_.-]+|(?<=[\p{Ll}])(?=\p{Lu})/u).filter(Boolean)
  return words.slice(-2).map((w) => [...w][0]).join('').toUpperCase() || '?'
}

export function avatar(entry) {
  const bot = isBot(entry)
  return h('span', { class: `avatar ${bot ? 'square ' + hue(entry.sender) : 'round'}`, 'aria-hidden': 'true' }, initials(nameOf(entry)))
}

// agentAvatar is the avatar of an agent of which only the name is known.
export const agentAvatar = (name) => avatar({ role: 'assistant', sender: name })

export function nameTag(entry) {
  const name = nameOf(entry)
  const full = isBot(entry) && entry.sender !== name ? `${name} (${entry.sender})` : name
  return [
    h('bdi', { class: isBot(entry) ? 'name ' + hue(entry.sender) : 'name', title: clean(cut(full, 400)) }, plain(cut(name, LONGEST_NAME))),
    isBot(entry) && h('span', { class: 'mark' }, t('bot')),
  ]
}
