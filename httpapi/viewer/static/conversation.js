// The messages of one group and what became of them, as they are read from the API and come in events.

import * as api from './api.js'
import { isBot, isNotice, learn } from './names.js'

const FIRST = 200 // messages read at first
const PAGE = 200 // and at each further step back
const FOUND = 100 // messages asked for by a search further back
const OUTCOMES = 2000 // read at first
const ALL_OUTCOMES = 5000 // the most that the API returns, read once one looks further back

export const KEPT = 5000 // messages; older ones are found by a search
export const STEPS_BACK = KEPT / PAGE // until no more is kept

// Conversation holds entries in order of their time, each once. What reads from the API throws what it answers.
export class Conversation {
  entries = []
  found = [] // by a search further back
  earlier // cursor of the page before the first entry; undefined: there is none
  begun = false // the newest messages were read
  recordedFrom = Infinity // ts of the message after which no outcome is missing in what was read
  #byId = new Map()
  #outcomes = new Map() // message id → agent → outcome
  #limit = OUTCOMES
  #abort = new AbortController()

  constructor(channel, chat) { Object.assign(this, { channel, chat }) }

  stop() { this.#abort.abort() }
  get stopped() { return this.#abort.signal.aborted }

  get(id) { return this.#byId.get(id) ?? this.found.find((e) => e.message_id === id) }
  has(id) { return this.#byId.has(id) }

  // add takes entries. An entry that was known says what the newer one says.
  add(list) {
    const fresh = []
    for (const entry of list) {
      const known = this.#byId.get(entry.message_id)
      if (known) {
        update(known, entry)
        continue
      }
      if (isBot(entry)) learn(entry.sender, entry.sender_name)
      this.#byId.set(entry.message_id, entry)
      fresh.push(entry)
    }
    if (!fresh.length) return
    const older = fresh.at(-1).ts <= this.entries[0]?.ts
    this.entries = (older ? fresh.concat(this.entries) : this.entries.concat(fresh)).sort((a, b) => a.ts - b.ts)
  }

  // note takes what became of a message at one bot, unless something newer is known, and returns whether it did.
  note(outcome) {
    const agents = this.#outcomes.get(outcome.relay_msg_id) ?? new Map()
    this.#outcomes.set(outcome.relay_msg_id, agents)
    const known = agents.get(outcome.agent)
    if (known && (known.at > outcome.at || (known.at === outcome.at && fields(known) >= fields(outcome)))) return false
    agents.set(outcome.agent, outcome)
    return true
  }

  // outcomes lists what became of a message, by agent.
  outcomes(id) {
    return [...(this.#outcomes.get(id)?.values() ?? [])].sort((a, b) => (a.agent < b.agent ? -1 : 1))
  }

  // recall removes the text of a message.
  recall(id) {
    const entry = this.get(id)
    if (entry) update(entry, { content: '', recalled: true })
  }

  // newest reads the newest messages, and returns whether there is a gap: others may be between them and those
  // that were here. Live ones that come meanwhile do not close it.
  async newest() {
    const known = this.begun && new Set(this.#byId.keys()) // now: it may be read twice at once
    const { entries, earlier } = await this.#read({ limit: FIRST })
    const gap = known && earlier !== undefined && !entries.some((e) => known.has(e.message_id))
    if (!this.begun) this.earlier = earlier
    this.begun = true
    this.add(entries)
    return gap
  }

  // before reads the page before the first entry, and at the first time what became of all messages.
  async before() {
    const first = this.#limit < ALL_OUTCOMES
    this.#limit = ALL_OUTCOMES
    const [{ entries, earlier }] = await Promise.all([this.#read({ limit: PAGE, before: this.earlier }),
      first && this.became().catch(() => {})]) // the messages are shown all the same
    this.earlier = earlier
    this.add(entries)
  }

  // search reads what contains q, from before a cursor: { entries, earlier }.
  search(q, before) { return this.#read({ limit: FOUND, q, before }) }

  // became reads what became of the newest messages.
  async became() {
    const limit = this.#limit
    const { outcomes, complete } = await api.outcomes(this.channel, this.chat, limit, this.#abort.signal)
    this.recordedFrom = !complete ? Infinity : outcomes.length < limit ? 0 : outcomes[0].at
    for (const outcome of outcomes) this.note(outcome)
  }

  async #read(page) {
    const { entries, earlier } = await api.transcript(this.channel, this.chat, { ...page, signal: this.#abort.signal })
    return { entries: entries.map(marked), earlier }
  }
}

// fields is how much an outcome says: of one moment the fuller one is the later.
const fields = (outcome) => Object.values(outcome).filter(Boolean).length

// update brings an entry up to what a newer one says; version counts the changes.
function update(entry, newer) {
  for (const [name, value] of Object.entries(newer)) {
    const old = name === 'ts' || (name === 'content' && entry.recalled)
    if (old || value === undefined || entry[name] === value) continue
    entry[name] = value
    entry.version = (entry.version ?? 0) + 1
  }
}

// marked gives a notice an id of its own: a person's word may be a message and a command.
function marked(entry) {
  if (!isNotice(entry)) return entry
  const parent = entry.of === entry.message_id ? undefined : entry.of
  return { ...entry, own_id: entry.message_id, message_id: 'notice ' + entry.message_id, parent_id: parent }
}

// entryOf is the entry of an event `message` or `notice`.
export const entryOf = ({ type, channel, chat_id, time, relay_msg_id, ts = time, content = '', ...entry }) =>
  marked({ ...entry, content, ts, message_id: relay_msg_id })
