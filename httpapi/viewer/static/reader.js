// Reads a conversation from the API, page by page.

import * as api from './api.js'
import { KEPT } from './conversation.js'
import { fault } from './notice.js'

const FIRST = 200 // messages read at first
const PAGE = 500 // and at each further step back
const FOUND = 100 // messages asked for by a search further back
const SOME_OUTCOMES = 2000 // asked for at first
const ALL_OUTCOMES = 5000 // the most that the API tells

export const STEPS_BACK = KEPT / PAGE // until no more is kept

// Reader fills a conversation. Its methods throw what the API answers.
export class Reader {
  #abort = new AbortController()
  #begun = false
  #all = false // outcomes were asked for

  constructor(conversation) {
    this.conversation = conversation
  }

  stop() {
    this.#abort.abort()
  }

  get stopped() {
    return this.#abort.signal.aborted
  }

  // newest brings in the newest messages and outcomes. It returns whether there may
  // be others between these and what was here.
  async newest() {
    const { conversation } = this
    const [page, became] = await Promise.all([this.#read({ limit: FIRST }), this.#outcomes(this.#all ? ALL_OUTCOMES : SOME_OUTCOMES)])
    const { fresh } = conversation.add(page.entries)
    for (const o of became) conversation.note(o)
    if (this.#begun) return fresh.length === page.entries.length && page.earlier !== undefined
    conversation.earlier = page.earlier
    this.#begun = true
    return false
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
    const [page, became] = await Promise.all([this.#read({ limit: PAGE, before: conversation.earlier }), asked ? [] : this.#outcomes(ALL_OUTCOMES)])
    conversation.earlier = page.earlier
    const told = new Set(became.filter((o) => conversation.note(o)).map((o) => o.relay_msg_id))
    return { ...conversation.add(page.entries), told }
  }

  // search returns messages that contain q, from before a cursor on back, and the
  // cursor to go on from.
  async search(q, before) {
    const { entries, earlier } = await this.#read({ limit: FOUND, q, before })
    return { entries, earlier }
  }

  #read(options) {
    const { channel, chat } = this.conversation
    return api.transcript(channel, chat, { ...options, signal: this.#abort.signal })
  }

  // outcomes asks what became of the newest messages. Without an answer the
  // conversation is shown all the same.
  async #outcomes(limit) {
    const { channel, chat } = this.conversation
    try {
      return (await api.outcomes(channel, chat, { limit, signal: this.#abort.signal })).outcomes
    } catch (error) {
      fault(error)
      return []
    }
  }
}
