// The messages of one group and what became of them, in memory.

import { called, learn } from './names.js'
import { endedBy } from './verdict.js'

export const KEPT = 20_000 // messages; beyond, the oldest are dropped
const DROPPED_AT_ONCE = 1000
const RUN = 50 // messages before and after one that are looked at for the same end
const BOT_TURNS = 50 // new messages of which the person's message before is looked at again

// Conversation holds entries in order of their time, each once.
export class Conversation {
  entries = []
  earlier // cursor of the page before the first entry; undefined: there is none
  dropped = false // older entries were there and are not kept
  recordedFrom = Infinity // ts of the message after which no outcome is missing in what was read
  #byId = new Map()
  #outcomes = new Map() // message id → agent → outcome
  #agents = new Set() // that spoke here or decided on something
  #orphans = new Map() // id of a message that is not here → those that reply to it

  constructor(channel, chat) {
    this.channel = channel
    this.chat = chat
  }

  get(id) {
    return this.#byId.get(id)
  }

  // add takes entries and returns those that are new here, in order, and as changed
  // those that were known: they say more now, or what they reply to has come.
  add(entries) {
    const before = this.newest
    const fresh = []
    const changed = []
    for (const entry of entries) {
      if (isBot(entry)) learn(entry.sender, entry.sender_name)
      const known = this.#byId.get(entry.message_id)
      if (!known) {
        this.#byId.set(entry.message_id, entry)
        if (isBot(entry)) this.#agents.add(entry.sender)
        fresh.push(entry)
        changed.push(...this.#adopt(entry))
      } else if (says(known, entry)) {
        changed.push(known)
      }
    }
    fresh.sort((a, b) => a.ts - b.ts)
    if (fresh.length) this.#merge(fresh)
    const now = new Set(fresh)
    for (const entry of [before, ...fresh.slice(-BOT_TURNS).map((e) => this.#personBefore(e))]) {
      if (entry && (entry !== this.newest || !isBot(entry)) && !now.has(entry) && !changed.includes(entry)) changed.push(entry) // it may be answered now
    }
    for (const entry of fresh.flatMap((e) => this.#stopsBeside(e))) if (!now.has(entry) && !changed.includes(entry)) changed.push(entry)
    return { fresh, changed }
  }

  // index is where an entry is; -1: it is not here.
  #index(entry) {
    let i = firstFrom(this.entries, entry.ts)
    while (this.entries[i]?.ts === entry.ts && this.entries[i] !== entry) i++
    return this.entries[i] === entry ? i : -1
  }

  // stopsBeside are the notices of stops directly before and after an entry, which may begin or cease to be repeats.
  #stopsBeside(entry) {
    const i = this.#index(entry)
    let first = i
    while (isStop(this.entries[first - 1])) first--
    return this.entries.slice(first, i + 2).filter((e) => e !== entry && isStop(e))
  }

  // repeats is how often a notice of a stop is there in a row, 0 where it is not the first; 1 for any other entry.
  repeats(entry) {
    const i = isStop(entry) ? this.#index(entry) : -1
    const same = (e) => e && isStop(e) && e.content === entry.content && e.thread_id === entry.thread_id
    if (i < 0) return 1
    if (same(this.entries[i - 1])) return 0
    let n = 1
    while (same(this.entries[i + n])) n++
    return n
  }

  // endOf is the outcome that ended a conversation with a message, if one did.
  #endOf(entry) {
    return isBot(entry) ? endedBy(this.outcomes(entry.message_id)) : undefined
  }

  // run lists the messages in a row, entry among them, that ended the conversation for the same reason.
  run(entry) {
    const end = this.#endOf(entry)
    const i = this.#index(entry)
    if (!end || i < 0) return [entry]
    const around = this.entries.slice(Math.max(0, i - RUN), i + RUN + 1).filter((e) => !isNotice(e))
    const at = around.indexOf(entry)
    let from = at
    let to = at + 1
    const same = (e) => e && this.#endOf(e)?.stopped === end.stopped
    while (same(around[from - 1])) from--
    while (same(around[to])) to++
    return around.slice(from, to)
  }

  // end is the outcome that ended the conversation with a message, and how many messages in a row ended so, where
  // it is the last of them.
  end(entry) {
    const run = this.run(entry)
    return run.at(-1) === entry ? { end: this.#endOf(entry), times: run.length } : {}
  }

  // personBefore is the newest message of a person before an entry, in its topic.
  #personBefore({ ts, thread_id }) {
    return this.entries.findLast((e) => isPerson(e) && e.ts < ts && e.thread_id === thread_id)
  }

  // lastOfPerson reports whether a message is a person's, and no person has said anything since in its topic.
  lastOfPerson(entry) {
    if (!isPerson(entry)) return false
    for (let i = this.#after(entry); i < this.entries.length; i++) if (isPerson(this.entries[i]) && this.entries[i].thread_id === entry.thread_id) return false
    return true
  }

  // after is the index of the first entry behind a message.
  #after(entry) {
    let i = this.entries.length
    while (i > 0 && this.entries[i - 1].ts >= entry.ts && this.entries[i - 1] !== entry) i--
    return i
  }

  // newest is the newest message, which nobody has answered.
  get newest() {
    return this.entries.findLast((e) => !isNotice(e))
  }

  // answered reports whether a bot has said something after a message. What it says after the next
  // message of a person answers that one, unless it is a reply to the first.
  answered(entry, agent) {
    let over = false
    for (let i = this.#after(entry); i < this.entries.length; i++) {
      const e = this.entries[i]
      if (e.sender === agent && isBot(e) && (!over || e.parent_id === entry.message_id)) return true
      over ||= isPerson(entry) && isPerson(e) && e.thread_id === entry.thread_id
    }
    return false
  }

  // silence is 'quiet' where a bot has not answered a message yet, 'silent' where people have gone on
  // without its answer, and undefined where it has answered, or another bot's message is no longer the newest.
  silence(entry, agent) {
    if (!isPerson(entry)) return entry === this.newest ? 'quiet' : undefined
    if (this.answered(entry, agent)) return undefined
    return this.lastOfPerson(entry) ? 'quiet' : 'silent'
  }

  // undecided reports whether the record covers a message, and nothing in it says that one is missing.
  undecided(entry) {
    return entry.ts > this.recordedFrom && !this.entries.slice(this.#after(entry)).some((e) => isBot(e) && this.outcomes(e.message_id).length)
  }

  // unrecorded reports whether what became of a bot's message at an agent is missing in the record: the agent was in
  // the conversation before it, and has decided on a later message of the topic. Each agent decides in order.
  unrecorded(entry, agent) {
    if (!isBot(entry) || !entry.depth || entry.recalled || entry.sender === agent || entry.ts <= this.recordedFrom || this.#outcomes.get(entry.message_id)?.has(agent)) return false
    const i = this.#index(entry)
    if (i < 0) return false
    const known = (e) => this.#outcomes.get(e.message_id)?.get(agent)
    const decided = (e) => isBot(e) && e.thread_id === entry.thread_id && known(e) && known(e).stopped !== 'own_message'
    return this.entries.slice(i + 1, i + 1 + RUN).some(decided) && this.entries.slice(Math.max(0, i - RUN), i).some((e) => known(e) || (isBot(e) && e.sender === agent))
  }

  // missedBefore lists the messages before one that an agent decided on of which nothing is recorded at that agent.
  missedBefore(entry) {
    const i = this.#index(entry)
    if (i < 0) return []
    const agents = this.outcomes(entry.message_id).map((o) => o.agent)
    return this.entries.slice(Math.max(0, i - RUN), i).filter((e) => agents.some((agent) => this.unrecorded(e, agent)))
  }

  // adopt returns the replies that waited for entry.
  #adopt({ message_id, parent_id }) {
    const replies = this.#orphans.get(message_id) ?? []
    this.#orphans.delete(message_id)
    if (parent_id && !this.#byId.has(parent_id)) {
      const others = this.#orphans.get(parent_id)
      if (others) others.push(this.#byId.get(message_id))
      else this.#orphans.set(parent_id, [this.#byId.get(message_id)])
    }
    return replies
  }

  // recall forgets the text of a message, and returns it if it is here.
  recall(id) {
    const entry = this.#byId.get(id)
    return entry && forget(entry)
  }

  #merge(fresh) {
    const { entries } = this
    if (entries.length && fresh.at(-1).ts < entries[0].ts) this.entries = fresh.concat(entries)
    else for (const entry of fresh) insert(entries, entry)
  }

  // trim drops the oldest entries when there are too many, and returns them.
  trim() {
    if (this.entries.length <= KEPT) return []
    const gone = this.entries.splice(0, this.entries.length - KEPT + DROPPED_AT_ONCE)
    for (const { message_id } of gone) {
      this.#byId.delete(message_id)
      this.#outcomes.delete(message_id)
    }
    for (const [id, replies] of this.#orphans) {
      const left = replies.filter((e) => this.#byId.has(e.message_id))
      if (left.length) this.#orphans.set(id, left)
      else this.#orphans.delete(id)
    }
    this.earlier = undefined
    this.dropped = true
    return gone
  }

  // note takes what became of a message at one bot, unless it knows better. It
  // returns whether anything changed.
  note(outcome) {
    let agents = this.#outcomes.get(outcome.relay_msg_id)
    if (!agents) this.#outcomes.set(outcome.relay_msg_id, (agents = new Map()))
    const known = agents.get(outcome.agent)
    if (known && (known.at > outcome.at || (known.at === outcome.at && fields(known) >= fields(outcome)))) return false
    agents.set(outcome.agent, outcome)
    this.#agents.add(outcome.agent)
    return true
  }

  // outcomes lists what became of a message, by agent.
  outcomes(id) {
    const agents = this.#outcomes.get(id)
    if (!agents) return []
    return [...agents.values()].sort((a, b) => (a.agent < b.agent ? -1 : 1))
  }

  // agents lists the bots that spoke here or decided on something, by name.
  agents() {
    return [...this.#agents].sort()
  }
}

// fields is how much an outcome says: of one moment the fuller one is the later.
const fields = (outcome) => Object.values(outcome).filter(Boolean).length

// isNotice reports whether an entry is what the sidecars did or showed, and no message.
export const isNotice = (entry) => entry.role === 'notice'

// marked gives a notice an id of its own: a person's word may be a message and a command.
export function marked(entry) {
  if (!isNotice(entry) || entry.told) return entry
  return { ...entry, told: entry.message_id, message_id: 'notice ' + entry.message_id, parent_id: entry.of === entry.message_id ? undefined : entry.of }
}

// isMail reports whether a group is no group but the mail between two agents.
export const isMail = ({ channel }) => channel === 'mailbox'

// isStop reports whether an entry is the notice that a message was stopped.
const isStop = (entry) => entry?.role === 'notice' && entry.kind === 'notice' && entry.act === 'stop'

export const isBot = (entry) => entry.role === 'assistant'

export const isPerson = (entry) => entry.role === 'user'

// nameOf is how a sender is called.
export function nameOf(entry) {
  if (entry.kind === 'command' && entry.by) return entry.by
  if (entry.sender && (isBot(entry) || isNotice(entry))) return called(entry.sender)
  return entry.sender_name || entry.sender || '?'
}

// forget takes the text of a message that was recalled.
export const forget = (entry) => Object.assign(entry, { content: '', recalled: true })

// insert puts entry behind all that are not later, and returns where: at the end
// mostly, without looking at the others.
export function insert(entries, entry) {
  if (!entries.length || entries.at(-1).ts <= entry.ts) return entries.push(entry) - 1
  const at = firstFrom(entries, entry.ts, true)
  entries.splice(at, 0, entry)
  return at
}

// firstFrom is the index of the first entry of a time or later; after: of the first that is later.
function firstFrom(entries, ts, after = false) {
  let low = 0
  let high = entries.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (entries[middle].ts < ts || (after && entries[middle].ts === ts)) low = middle + 1
    else high = middle
  }
  return low
}

// says brings known up to what entry says, and returns whether that was more.
function says(known, entry) {
  let more = false
  for (const [name, value] of Object.entries(entry)) {
    if (name === 'ts' || (name === 'content' && known.recalled) || value === undefined || known[name] === value) continue
    known[name] = value
    more = true
  }
  return more
}

// entryOf is the entry that a `message` or `notice` event tells of.
export function entryOf(e) {
  const { role, content = '', sender = '', sender_name, thread_id, parent_id, root_id, depth, recalled, edited, kind, act, of, by, set } = e
  return marked({ role, content, sender, sender_name, thread_id, parent_id, root_id, depth, recalled, edited, kind, act, of, by, set, message_id: e.relay_msg_id, ts: e.ts ?? e.time })
}
