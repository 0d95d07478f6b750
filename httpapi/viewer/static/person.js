// How who speaks is shown: people round, bots square, each bot in its own colour.

import { h } from './h.js'
import { plain, clean, cut } from './text.js'
import { t } from './i18n.js'
import { isBot, nameOf } from './conversation.js'
import { called, hue } from './names.js'

const LONGEST_NAME = 64

// initials are two letters of a name: of its last words or of its capitals; or the first
// character of a Chinese one.
function initials(name) {
  const visible = name.replace(/\([^)]*\)$/, '').replace(/[^\p{L}\p{N}\s_.-]/gu, '').trim()
  if (/^[\p{Script=Han}]/u.test(visible)) return [...visible][0]
  const words = visible.split(/[\s_.-]+|(?<=[\p{Ll}])(?=\p{Lu})/u).filter(Boolean)
  return words.slice(-2).map((w) => [...w][0]).join('').toUpperCase() || '?'
}

export function avatar(entry) {
  const bot = isBot(entry)
  return h('span', { class: `avatar ${bot ? 'square ' + hue(entry.sender) : 'round'}`, title: bot && idOf(entry.sender), 'aria-hidden': 'true' }, initials(nameOf(entry)))
}

// agentAvatar is the avatar of an agent.
export const agentAvatar = (agent) => avatar({ role: 'assistant', sender: agent })

// botName is what a bot is called, with the agent's id for who points at it.
export function botName(agent, attributes) {
  return h('b', { class: hue(agent), title: idOf(agent), ...attributes }, h('bdi', null, plain(cut(called(agent), LONGEST_NAME))))
}

// nameText is botName where only text can be.
export const nameText = (agent) => clean(cut(called(agent), LONGEST_NAME))

const idOf = (agent) => clean(cut(agent, 200))

export function nameTag(entry) {
  const name = nameOf(entry)
  return [
    h('bdi', { class: isBot(entry) ? 'name ' + hue(entry.sender) : 'name', title: isBot(entry) ? idOf(entry.sender) : clean(cut(name, 400)) }, plain(cut(name, LONGEST_NAME))),
    isBot(entry) && h('span', { class: 'mark' }, t('bot')),
  ]
}
