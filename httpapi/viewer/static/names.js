// The names of bots. A bot has one name on the whole page: what its groups call it, else
// what its card says, else what its messages say, else the agent's id. It has one colour as well.

const KEPT = 1000 // agents; a name that comes later is not kept
const HUES = 8 // classes hue-0 … hue-7; those next to each other are told apart best at the beginning

// Where a name comes from. One from a later source counts more.
export const FROM = { message: 0, card: 1, group: 2 }

const known = new Map() // agent → { name, from }
const team = [] // the bots of all groups and cards, in order of their ids
let changed = () => {}

// onNames calls f after a name became another one.
export const onNames = (f) => (changed = f)

// learn takes the name of an agent.
export function learn(agent, name, from = FROM.message) {
  if (from > FROM.message) joins(agent)
  if (!agent || !name) return
  const old = known.get(agent)
  if (old && (old.from > from || (old.name === name && old.from === from))) return
  if (!old && known.size >= KEPT) return
  known.set(agent, { name, from })
  if (old?.name !== name) changed()
}

// joins puts an agent into the team.
function joins(agent) {
  if (!agent || team.includes(agent) || team.length >= KEPT) return
  team.push(agent)
  team.sort()
  changed()
}

// called is the name of an agent, with its id where another one has the same name.
export function called(agent) {
  const name = known.get(agent)?.name
  if (!name) return agent
  for (const [other, of] of known) if (other !== agent && of.name === name) return `${name} (${agent})`
  return name
}

// chatName is the name of a chat; mail between two agents has theirs.
export function chatName({ channel, chat_id, name }) {
  return (channel === 'mailbox' ? name?.split(' ↔ ').map(called).join(' ↔ ') : name) || chat_id
}

// hue is the colour of an agent: by its place in the team in order of their ids,
// so it does not depend on what is shown first, and the first of them differ most. The colour of
// another agent follows from its id alone.
export function hue(agent) {
  const place = team.indexOf(agent)
  if (place >= 0) return 'hue-' + (place % HUES)
  let sum = 7
  for (const c of agent) sum = (sum * 31 + c.codePointAt(0)) >>> 0
  return 'hue-' + (sum % HUES)
}
