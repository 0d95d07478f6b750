// Reads a conversation from the API, page by page.

import * as api from './api.js'
import { KEPT, marked } from './conversation.js'
import { fault } from './notice.js'

const FIRST = 200 // messages read at first
const PAGE = 500 // and at each further step back
const FOUND = 100 // messages asked for by a search further back
const SOME_OUTCOMES = 2000 // asked for at first
const ALL_OUTCOMES = 5000 // the most that the API tells
const PATIENCE = 400 // ms that messages wait for their outcomes, which a lost Redis delays

const NOTHING = { outcomes: [] }

export const STEPS_BACK = KEPT / PAGE // until no more is kept

// Reader fills a conversation. Its methods throw what the API answers.
export class Reader {
  #abort = new AbortController()
  #begun = false
  #all = false // outcomes were asked for
  #known // ids of the messages that were here before what newest reads; undefined: it does not

  // late is told the ids of messages whose outcomes came after the messages.
  constructor(conversation, late) {
    this.conversation = conversation
    this.late = late
  }

  stop() {
    this.#abort.abort()
  }

  get stopped() {
    return this.#abort.signal.aborted
  }

  // begun reports whether the newest messages were read once.
  get begun() {
    return this.#begun
  }

  // newest brings in the newest messages and outcomes. It returns what earlier does,
  // whether it is the first time, and whether there is a gap: others may be between these and what was here.
  async newest() {
    const { conversation } = this
    this.#known ??= new Set(conversation.entries.map((e) => e.message_id)) // live ones that come meanwhile do not close a gap
    const [page, became] = await Promise.all([this.#read({ limit: FIRST }), this.#outcomes(this.#all ? ALL_OUTCOMES : SOME_OUTCOMES)])
    const known = this.#known // undefined: it was read twice at once
    this.#known = undefined
    const gap = this.#begun && known && page.earlier !== undefined && !page.entries.some((e) => known.has(e.message_id))
    const first = !this.#begun
    if (first) conversation.earlier = page.earlier
    this.#begun = true
    return { ...this.#bring(page, became), first, gap }
  }

  // more reports whether there is an earlier page and room for it.
  get more() {
    return Boolean(this.conversation.earlier) && this.conversation.entries.length < KEPT
  }

  // earlier brings in the page before. It returns what is new and what changed, and
  // the ids of messages of which an outcome became known.
  async earlier() {
    const { conversation } = this
    const asked = this.#all
    this.#all = true
    const [page, became] = await Promise.all([this.#read({ limit: PAGE, before: conversation.earlier }), asked ? NOTHING : this.#outcomes(ALL_OUTCOMES)])
    conversation.earlier = page.earlier
    return this.#bring(page, became)
  }

  #bring(page, became) {
    const told = this.#note(became)
    return { ...this.conversation.add(page.entries), told }
  }

  // note takes outcomes in, and returns the ids of the messages that they changed.
  #note({ outcomes: became, from }) {
    if (from !== undefined) this.conversation.recordedFrom = from
    return new Set(became.filter((o) => this.conversation.note(o)).map((o) => o.relay_msg_id))
  }

  // search returns messages that contain q, from before a cursor on back, and the
  // cursor to go on from.
  async search(q, before) {
    const { entries, earlier } = await this.#read({ limit: FOUND, q, before })
    return { entries, earlier }
  }

  async #read(options) {
    const { channel, chat } = this.conversation
    const page = await api.transcript(channel, chat, { ...options, signal: this.#abort.signal })
    return { ...page, entries: page.entries.map(marked) }
  }

  // outcomes returns what became of the newest messages, and from when on none is missing; or nothing yet.
  async #outcomes(limit) {
    const asked = this.#ask(limit)
    const soon = await Promise.race([asked, new Promise((done) => setTimeout(done, PATIENCE))])
    if (!soon) asked.then((became) => this.stopped || this.late(this.#note(became)))
    return soon ?? NOTHING
  }

  // ask returns no outcomes where they cannot be read: the conversation is shown
  // all the same.
  async #ask(limit) {
    const { channel, chat } = this.conversation
    try {
      const { outcomes, complete } = await api.outcomes(channel, chat, { limit, signal: this.#abort.signal })
      return { outcomes, from: !complete ? Infinity : outcomes.length < limit ? 0 : outcomes[0].at }
    } catch (error) {
      fault(error)
      return NOTHING
    }
  }
}
