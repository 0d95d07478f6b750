// Some messages in a row, which have elements only while they are near the part
// of the flow that is in view. So a conversation of any length stays light.

import { h } from './h.js'
import { row, place } from './message.js'

const ROW_HEIGHT = 92 // of a message not yet seen, in px, about

// Block holds entries in order. Without rows it is an empty element of the height
// that they had, or about have.
export class Block {
  element = h('div', { class: 'block', role: 'presentation' })
  rows // message id → slot; undefined: there are none

  constructor(entries, view) {
    this.entries = entries
    this.view = view
    this.element.block = this
    this.#setHeight(entries.length * ROW_HEIGHT)
  }

  #setHeight(px) {
    this.height = px
    this.element.style.height = px === undefined ? '' : px + 'px'
  }

  // previous is the entry before the first.
  get #previous() {
    return this.element.previousElementSibling?.block.entries.at(-1)
  }

  // build makes the rows.
  build() {
    if (this.rows) return
    this.rows = new Map()
    let before = this.#previous
    for (const entry of this.entries) {
      this.element.append(this.#make(entry, before))
      before = entry
    }
    this.#setHeight(undefined)
  }

  // clear takes the rows away and leaves their height, which is given, unless the
  // keyboard is there.
  clear(height) {
    if (!this.rows || this.element.contains(document.activeElement)) return
    this.#setHeight(height)
    this.rows = undefined
    this.element.replaceChildren()
  }

  #make(entry, before) {
    const slot = row(entry, this.view)
    place(slot, entry, before)
    this.rows.set(entry.message_id, slot)
    return slot
  }

  // add puts an entry at position i.
  add(i, entry) {
    this.entries.splice(i, 0, entry)
    if (!this.rows) return this.#setHeight(this.height + ROW_HEIGHT)
    const slot = this.#make(entry, this.entries[i - 1] ?? this.#previous)
    this.element.insertBefore(slot, this.element.children[i] ?? null)
    this.fit(i + 1)
  }

  // fit places the entry at i anew, since another one is before it now.
  fit(i = 0) {
    const entry = this.entries[i]
    if (this.rows && entry) place(this.rows.get(entry.message_id), entry, this.entries[i - 1] ?? this.#previous)
  }

  // refit places all entries anew, after others were taken away.
  refit() {
    for (const i of this.entries.keys()) this.fit(i)
  }

  // renew makes the row of an entry anew, whose text has changed.
  renew(entry) {
    if (!this.rows) return
    const i = this.entries.indexOf(entry)
    this.rows.get(entry.message_id).replaceWith(this.#make(entry, this.entries[i - 1] ?? this.#previous))
  }

  remove(entry) {
    this.entries = this.entries.filter((e) => e !== entry)
    if (!this.rows) return this.#setHeight(Math.max(0, this.height - ROW_HEIGHT))
    this.rows.get(entry.message_id).remove()
    this.rows.delete(entry.message_id)
  }
}
