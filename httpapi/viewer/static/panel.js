// What the sections beside the groups have in common: they read the API when they
// are shown, now and then while they are, and when something happened.

import { fault } from './notice.js'
import { keepFocus, selecting } from './focus.js'

const EVERY = 15_000 // ms
const SETTLE = 400 // ms of quiet after events

// Panel reads and draws a section. A subclass has load(), which returns what the
// API says, and draw(), which shows this.data in this.element.
export class Panel {
  #timer
  #soon
  #shown = false

  constructor(element, every = EVERY) {
    Object.assign(this, { element, every })
  }

  show() {
    this.#shown = true
    this.redraw()
    this.refresh()
    clearInterval(this.#timer)
    this.#timer = setInterval(() => document.hidden || this.refresh(), this.every)
  }

  hide() {
    this.#shown = false
    clearInterval(this.#timer)
  }

  async refresh() {
    clearTimeout(this.#soon)
    this.#soon = undefined
    try {
      const data = await this.load()
      const text = JSON.stringify(data)
      if (text === this.text || selecting(this.element)) return
      this.text = text
      this.data = data
      this.redraw()
    } catch (error) {
      fault(error)
    }
  }

  // again reads once more, soon.
  again() {
    if (!this.#shown) return
    this.#soon ??= setTimeout(() => this.refresh(), SETTLE)
  }

  redraw() {
    if (this.#shown && this.data) keepFocus(this.element, () => this.draw())
  }
}

// orOff makes an answer that the mailbox is off into undefined.
export async function orOff(answer) {
  try {
    return await answer
  } catch (error) {
    if (error.status === 404) return undefined
    throw error
  }
}
