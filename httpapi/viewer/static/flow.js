// The flow of a conversation's messages: in order, at any length, pinned to the
// newest while that is in view.

import { h } from './h.js'
import { insert } from './conversation.js'
import { row, paint, place } from './message.js'

const BLOCK = 50 // messages whose layout the browser skips together while out of view
const ROW_HEIGHT = 84 // of a message not yet seen, in px, about
const AT_BOTTOM = 48 // px from the end that count as the end

// Flow fills the element `list` inside the scrolling element `scroller`. It shows
// the entries of view.conversation that view.matches, and before them those that were
// found further back, view.found.
export class Flow {
  shown = [] // in order
  pinned = true
  #rows = new Map() // message id → slot

  constructor(scroller, list, { view, onPinned }) {
    Object.assign(this, { scroller, list, view, onPinned })
    scroller.addEventListener('scroll', () => this.#pin(scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < AT_BOTTOM), { passive: true })
    new ResizeObserver(() => this.pinned && this.toEnd()).observe(list)
    new ResizeObserver(() => this.pinned && this.toEnd()).observe(scroller)
  }

  #pin(pinned) {
    if (this.pinned === pinned) return
    this.pinned = pinned
    this.onPinned()
  }

  // refill shows everything anew, such as after another filter, and stays where it
  // was if that is still there.
  refill() {
    const top = this.pinned || !this.shown.length ? undefined : this.#at(this.scroller.getBoundingClientRect().top + 90)
    this.#fill()
    if (top && this.article(top)) this.reveal(top, 'start')
    else this.toEnd()
  }

  #fill() {
    this.#rows.clear()
    this.shown = []
    this.list.replaceChildren()
    this.prepend(this.view.found.concat(this.view.conversation.entries))
  }

  // add shows entries: older ones all at once, others each in its place.
  add(entries) {
    const matching = entries.filter((e) => this.view.matches(e))
    if (!matching.length) return
    if (!this.shown.length || matching.at(-1).ts < this.shown[0].ts) this.prepend(matching)
    else for (const entry of matching) this.#insert(entry)
  }

  // prepend puts entries before all others, and leaves on the screen what is there.
  prepend(entries) {
    const matching = entries.filter((e) => this.view.matches(e))
    if (!matching.length) return
    const first = this.shown[0]
    const anchor = first && this.#topmost()
    const top = anchor?.getBoundingClientRect().top
    this.shown = matching.concat(this.shown)
    const blocks = []
    for (let i = 0; i < matching.length; i += BLOCK) {
      blocks.push(block(matching.slice(i, i + BLOCK).map((entry, j) => this.#make(entry, matching[i + j - 1]))))
    }
    this.scroller.style.overflowAnchor = 'none' // this is done here, also at the very top
    this.list.prepend(...blocks)
    if (first) place(this.#rows.get(first.message_id), first, matching.at(-1))
    if (anchor && !this.pinned) this.scroller.scrollTop += anchor.getBoundingClientRect().top - top
    requestAnimationFrame(() => (this.scroller.style.overflowAnchor = ''))
  }

  #insert(entry) {
    const i = insert(this.shown, entry)
    const slot = this.#make(entry, this.shown[i - 1])
    const next = this.shown[i + 1]
    if (next) {
      const after = this.#rows.get(next.message_id)
      after.before(slot)
      place(after, next, entry)
      split(slot.parentNode)
      return
    }
    const last = this.list.lastElementChild
    if (last && last.childElementCount < BLOCK) last.append(slot)
    else this.list.append(block([slot]))
  }

  #make(entry, before) {
    const slot = row(entry, this.view)
    place(slot, entry, before)
    this.#rows.set(entry.message_id, slot)
    return slot
  }

  // update shows what changed of an entry, which may begin or cease to match.
  update(entry, textChanged = false) {
    const slot = this.#rows.get(entry.message_id)
    const matches = this.view.matches(entry)
    if (!slot) return matches ? this.add([entry]) : undefined
    if (!matches) return this.remove([entry])
    if (!textChanged) return paint(slot, entry, this.view)
    const fresh = this.#make(entry, this.shown[this.shown.indexOf(entry) - 1])
    slot.replaceWith(fresh)
  }

  remove(entries) {
    const gone = new Set(entries)
    this.shown = this.shown.filter((e) => !gone.has(e))
    for (const { message_id } of entries) {
      const slot = this.#rows.get(message_id)
      this.#rows.delete(message_id)
      const parent = slot?.parentNode
      slot?.remove()
      if (parent && !parent.childElementCount) parent.remove()
    }
  }

  article(id) {
    return this.#rows.get(id)?.querySelector('.message')
  }

  // reveal scrolls to a message.
  reveal(id, where = 'center') {
    const article = this.article(id)
    if (!article) return
    this.#pin(false)
    article.scrollIntoView({ block: where })
    requestAnimationFrame(() => article.scrollIntoView({ block: where })) // by now the heights around it are known
  }

  toEnd() {
    this.#pin(true)
    this.scroller.scrollTop = this.scroller.scrollHeight
  }

  // lastInView is the index in shown of the lowest message in view.
  lastInView() {
    if (this.pinned) return this.shown.length - 1
    const box = this.scroller.getBoundingClientRect()
    const id = this.#at(box.bottom - 24) ?? this.#at(box.bottom - 90)
    const i = this.shown.findIndex((e) => e.message_id === id)
    return i < 0 ? this.shown.length - 1 : i
  }

  #at(y) {
    const box = this.scroller.getBoundingClientRect()
    return document.elementFromPoint(box.left + box.width / 2, y)?.closest('.slot')?.querySelector('.message').dataset.messageId
  }

  // topmost is the first message in view, or the first at all.
  #topmost() {
    const box = this.scroller.getBoundingClientRect()
    const id = this.#at(box.top + 90)
    return this.#rows.get(id ?? this.shown[0].message_id)
  }
}

function block(slots) {
  const element = h('div', { class: 'block', role: 'presentation' }, slots)
  element.style.containIntrinsicSize = `auto ${slots.length * ROW_HEIGHT}px`
  return element
}

// split halves a block that has grown to twice its size.
function split(full) {
  if (full.childElementCount < 2 * BLOCK) return
  full.after(block([...full.children].slice(BLOCK)))
}
