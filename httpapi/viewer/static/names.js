// Who speaks. A bot has one name on the whole page: what its groups call it, else what its card says, else
// what its messages say, else the agent's id. It has one colour as well. People are round, bots are square.

import { h } from './h.js'
import { t } from './language.js'
import { clean, cut, plain } from './text.js'

const KEPT = 1000 // agents; the name of a further one is not kept
const HUES = 8 // classes hue-0 … hue-7
const LONGEST = 64 // characters of a name

export const FROM = { message: 0, card: 1, group: 2 } // where a name comes from; a higher one counts more

const names = new Map() // agent → { name, from }
const team = [] // the bots of all groups and cards, in order of their ids
let changed = () => {}

// onNames has f called after a name became another one.
export const onNames = (f) => (changed = f)

// learn takes the name of an agent, which may be empty.
export function learn(agent, name, from = FROM.message) {
  if (!agent) return
  if (from > FROM.message && !team.includes(agent) && team.length < KEPT) {
    team.push(agent)
    team.sort()
    changed()
  }
  const old = names.get(agent)
  if (!name || old?.from > from || (!old && names.size >= KEPT)) return
  names.set(agent, { name, from })
  if (old?.name !== name) changed()
}

// called is the name of an agent, with its id where another one has the same name.
export function called(agent) {
  const name = names.get(agent)?.name
  if (!name) return agent
  for (const [other, of] of names) if (other !== agent && of.name === name) return `${name} (${agent})`
  return name
}

// chatName is the name of a chat.
export const chatName = ({ chat_id, name }) => name || chat_id

// hue is the colour of an agent: by its place in the team, so it does not depend on what is shown first;
// of another agent by its id alone.
function hue(agent) {
  const place = team.indexOf(agent)
  const sum = (n, c) => (n * 31 + c.codePointAt(0)) >>> 0
  return 'hue-' + ((place < 0 ? [...agent].reduce(sum, 7) : place) % HUES)
}

export const isBot = (entry) => entry.role === 'assistant'
export const isPerson = (entry) => entry.role === 'user'

// isNotice reports whether an entry is what the sidecars did or showed, and not a message.
export const isNotice = (entry) => entry.role === 'notice'

// nameOf is the name of an entry's sender.
export function nameOf(entry) {
  if (entry.kind === 'command' && entry.by) return entry.by
  if (entry.sender && !isPerson(entry)) return called(entry.sender)
  return entry.sender_name || entry.sender || '?'
}

// initials are two letters of a name, of its last words or capitals, or the first Chinese character.
function initials(name) {
  const visible = name.replace(/\([^)]*\)$/, '').replace(/[^\p{L}\p{N}\s_.-]/gu, '').trim()
  if (/^\p{Script=Han}/u.test(visible)) return [...visible][0]
  const words = visible.split(/[\s_.-]+|(?<=\p{Ll})(?=\p{Lu})/u).filter(Boolean)
  return words.slice(-2).map((w) => [...w][0]).join('').toUpperCase() || '?'
}

const idOf = (agent) => clean(cut(agent, 200))

export function avatar(entry) {
  const of = isBot(entry) ? { class: 'square ' + hue(entry.sender), title: idOf(entry.sender) } : { class: 'round' }
  return h('span.avatar', { ...of, 'aria-hidden': 'true' }, initials(nameOf(entry)))
}

export const agentAvatar = (agent) => avatar({ role: 'assistant', sender: agent })

// botName is the name of a bot, with the agent's id when the pointer is over it.
export const botName = (agent, attributes) =>
  h('b', { class: hue(agent), title: idOf(agent), ...attributes }, h('bdi', plain(cut(called(agent), LONGEST))))

// nameText is botName where only text can be.
export const nameText = (agent) => clean(cut(called(agent), LONGEST))

export function nameTag(entry) {
  const name = nameOf(entry)
  const of = isBot(entry) ? { class: hue(entry.sender), title: idOf(entry.sender) } : { title: idOf(name) }
  return [h('bdi.name', of, plain(cut(name, LONGEST))), isBot(entry) && h('span.mark', t('bot'))]
}
