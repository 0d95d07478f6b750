// The names of bots. A bot has one name on the whole page: what its groups call it, else
// what its messages say, else the agent's id. It has one colour as well.

const KEPT = 1000 // agents; a name that comes later is not kept
const HUES = 8 // classes hue-0 … hue-7

const known = new Map() // agent → { name, sure }
const hues = new Map() // agent → number of its colour
let changed = () => {}

// onNames calls f after a name became another one.
export const onNames = (f) => (changed = f)

// learn takes the name of an agent; sure: from the sidecar, which knows better than a message.
export function learn(agent, name, sure = false) {
  if (!agent || !name) return
  const old = known.get(agent)
  if (old && (old.name === name || (old.sure && !sure))) return
  if (!old && known.size >= KEPT) return
  known.set(agent, { name, sure })
  changed()
}

// called is the name of an agent, with its id where another one has the same name.
export function called(agent) {
  const name = known.get(agent)?.name
  if (!name) return agent
  for (const [other, of] of known) if (other !== agent && of.name === name) return `${name} (${agent})`
  return name
}

// hue is the colour of an agent, the same wherever it appears. Two agents share one only
// when all are taken.
export function hue(agent) {
  if (!hues.has(agent)) {
    let sum = 7
    for (const c of agent) sum = (sum * 31 + c.codePointAt(0)) >>> 0
    const taken = new Set(hues.values())
    let number = sum % HUES
    for (let i = 0; i < HUES && taken.has(number); i++) number = (number + 1) % HUES
    if (hues.size < KEPT) hues.set(agent, number)
    return 'hue-' + number
  }
  return 'hue-' + hues.get(agent)
}
