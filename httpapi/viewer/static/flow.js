// The flow of a conversation's messages: in order, at any length, pinned to the
// newest while that is in view.

import { insert } from './conversation.js'
import { paint } from './message.js'
import { Block } from './block.js'

const BLOCK = 20 // messages
const NEAR = '1600px 0px' // around what is in view there are rows
const AT_BOTTOM = 48 // px from the end that count as the end

// Flow fills the element `list` inside the scrolling element `scroller`. It shows
// the entries of view.conversation that view.matches, and before them those that
// were found further back, view.found.
export class Flow {
  shown = [] // in order
  pinned = true
  #holding = false
  #at = 0 // where the scroller was last
  #blocks = new Map() // message id → block

  constructor(scroller, list, { view, onPinned }) {
    Object.assign(this, { scroller, list, view, onPinned })
    scroller.addEventListener('scroll', () => {
      const { scrollTop } = scroller
      const up = scrollTop < this.#at
      this.#at = scrollTop
      if (scroller.scrollHeight - scrollTop - scroller.clientHeight < AT_BOTTOM) this.#pin(true)
      else if (up) this.#pin(false) // else the flow has grown, and its end is to follow
    }, { passive: true })
    const resized = new ResizeObserver(() => this.pinned && this.toEnd())
    resized.observe(list)
    resized.observe(scroller)
    this.near = new IntersectionObserver((seen) => this.hold(() => {
      for (const { target, isIntersecting, boundingClientRect } of seen) isIntersecting ? target.block.build() : target.block.clear(boundingClientRect.height)
    }), { root: scroller, rootMargin: NEAR })
  }

  #pin(pinned) {
    if (this.pinned === pinned) return
    this.pinned = pinned
    this.onPinned()
  }

  // hold changes something and leaves on the screen what is there. Browsers that do
  // so by themselves do not at the very top, nor when the height of a block changes.
  hold(change) {
    const anchor = this.pinned || this.#holding ? undefined : this.#anchor()
    if (!anchor) return change()
    const top = () => (anchor.id ? this.article(anchor.id) : anchor.element)?.getBoundingClientRect().top
    const before = top()
    this.#holding = true
    change()
    this.#holding = false
    this.scroller.scrollTop += (top() ?? before) - before
  }

  // anchor is what the eye is on: a message in view, by its id, or else a block.
  #anchor() {
    const elements = [0, 0.25, 0.5, 0.75, 1].map((part) => this.#elementAt(part))
    const slot = elements.find((e) => e && !e.block)
    if (slot) return { id: idOf(slot) }
    const element = elements.find((e) => e) ?? this.list.firstElementChild
    return element && { element }
  }

  // refill shows everything anew, such as after another filter, and stays where it
  // was if that is still there.
  refill() {
    const top = this.pinned ? undefined : this.#entryAt(0)
    this.near.disconnect()
    this.#blocks.clear()
    this.shown = []
    this.list.replaceChildren()
    this.prepend(this.view.found.concat(this.view.conversation.entries))
    this.list.lastElementChild?.block.build() // not a frame late
    if (top && this.#blocks.has(top.message_id)) this.reveal(top.message_id, 'start')
    else this.toEnd()
  }

  // add shows entries: older ones all at once, others each in its place.
  add(entries) {
    const matching = entries.filter((e) => this.view.matches(e))
    if (!matching.length) return
    if (!this.shown.length || matching.at(-1).ts < this.shown[0].ts) this.prepend(matching)
    else for (const entry of matching) this.#insert(entry)
  }

  // prepend puts entries before all others.
  prepend(entries) {
    const matching = entries.filter((e) => this.view.matches(e))
    if (!matching.length) return
    const first = this.list.firstElementChild
    this.shown = matching.concat(this.shown)
    const elements = []
    for (let i = matching.length; i > 0; i -= BLOCK) elements.unshift(this.#block(matching.slice(Math.max(0, i - BLOCK), i)).element)
    this.hold(() => {
      this.list.prepend(...elements)
      first?.block.fit()
    })
  }

  #block(entries) {
    const block = new Block(entries, this.view)
    for (const { message_id } of entries) this.#blocks.set(message_id, block)
    this.near.observe(block.element)
    return block
  }

  #insert(entry) {
    const next = this.shown[insert(this.shown, entry) + 1]
    const block = next ? this.#blocks.get(next.message_id) : this.list.lastElementChild.block
    if (!next && block.entries.length >= BLOCK) {
      const last = this.#block([entry])
      this.list.append(last.element)
      if (this.pinned && !document.hidden) last.build() // else it is built when it comes into view
      return
    }
    block.add(next ? block.entries.indexOf(next) : block.entries.length, entry)
    this.#blocks.set(entry.message_id, block)
    if (next && next === block.entries.at(-1)) block.element.nextElementSibling?.block.fit()
  }

  // update shows what changed of an entry, which may begin or cease to match.
  update(entry, textChanged = false) {
    const block = this.#blocks.get(entry.message_id)
    const matches = this.view.matches(entry)
    if (!block) return matches ? this.add([entry]) : undefined
    if (!matches) return this.remove([entry])
    if (textChanged) return block.renew(entry)
    const slot = block.rows?.get(entry.message_id)
    if (slot) paint(slot, entry, this.view)
  }

  remove(entries) {
    const gone = new Set(entries)
    this.shown = this.shown.filter((e) => !gone.has(e))
    const blocks = new Set()
    for (const entry of entries) {
      const block = this.#blocks.get(entry.message_id)
      this.#blocks.delete(entry.message_id)
      block?.remove(entry)
      if (block) blocks.add(block)
    }
    for (const { entries, element } of blocks) {
      const after = entries.length ? element : element.nextElementSibling
      if (!entries.length) element.remove()
      after?.block.refit()
    }
  }

  // article is the element of a message, if it is shown.
  article(id) {
    const block = this.#blocks.get(id)
    block?.build()
    return block?.rows.get(id).querySelector('.message')
  }

  // reveal scrolls to a message.
  reveal(id, where = 'center') {
    const go = () => this.article(id)?.scrollIntoView({ block: where })
    if (!this.article(id)) return
    this.#pin(false)
    go()
    requestAnimationFrame(() => requestAnimationFrame(go)) // by now the heights around it are known
  }

  toEnd() {
    this.#pin(true)
    this.scroller.scrollTop = this.scroller.scrollHeight
    this.#at = this.scroller.scrollTop
  }

  // lastInView is the index in shown of the lowest message in view.
  lastInView() {
    const last = this.pinned ? undefined : this.#entryAt(1)
    const i = last ? this.shown.indexOf(last) : -1
    return i < 0 ? this.shown.length - 1 : i
  }

  // elementAt is the slot at a height of what is in view, from 0 at the top to 1 at
  // the bottom, or the block if that has no rows.
  #elementAt(part) {
    const { left, width, top, height } = this.scroller.getBoundingClientRect()
    return document.elementFromPoint(left + width / 2, top + 4 + (height - 8) * part)?.closest('.slot, .block') ?? undefined
  }

  // entryAt is the first (0) or the last (1) entry in view.
  #entryAt(end) {
    const element = this.#elementAt(end) ?? this.#elementAt(end ? 0.9 : 0.1)
    if (!element) return undefined
    return element.block ? element.block.entries.at(-end) : this.view.get(idOf(element))
  }
}

const idOf = (slot) => slot.querySelector('.message').dataset.messageId
