// The conversation of one group: loads it, keeps it up to date, lets one filter it and select messages.
//
// The browser lays out only the messages near those in view (content-visibility). The scroller is a column in
// reverse: its position counts from the newest message, which therefore stays in view, and nothing moves when
// older messages come in above.

import { button, h, icon, iconButton, keepFocus, order, selecting, show } from './h.js'
import { number, t } from './language.js'
import { Conversation, KEPT, STEPS_BACK, entryOf } from './conversation.js'
import { blank, factsOf } from './facts.js'
import { endedBy, why } from './verdict.js'
import { paint, row, select } from './message.js'
import { FindBar } from './find.js'
import { clean, line } from './text.js'
import { chatName, isBot, isNotice, nameOf } from './names.js'
import { Steer } from './steer.js'
import { details } from './details.js'
import { empty, fault, say } from './notice.js'
import { hash } from './route.js'

const GONE = 410 // the record does not reach back to there any more
const AT_END = 48 // px from the end that count as the end
const LOAD_AT = '1500px 0px 0px 0px' // older messages are read when their place is this near
// What a row shows of its facts.
const FACTS = ['word', 'list', 'state', 'why', 'time', 'agent', 'stopped', 'decision', 'reason', 'tier']

export class Talk {
  conversation = new Conversation('', '')
  shown = [] // facts
  selected // message id
  #facts = []
  #rows = new Map() // message id → slot
  #cursor // where a search goes on
  #loading // a promise while older messages are read or searched
  #fault // why the newest messages, or older ones, cannot be read
  #unseen = 0

  // parts are the elements { head, steering, bar, scroller, top, list, newest, aside }.
  constructor(parts) {
    Object.assign(this, parts)
    this.find = new FindBar(this.bar, () => this.#filtered())
    this.steer = new Steer(this.steering, { changed: () => this.drawAll(), go: (id) => this.choose(id) })
    this.newest.addEventListener('click', () => this.toEnd())
    this.list.addEventListener('click', (e) => this.#clicked(e))
    this.scroller.addEventListener('scroll', () => this.newest.hidden !== this.pinned && this.#drawNewest())
    const near = (seen) => seen.at(-1).isIntersecting && this.find.all && this.earlier()
    this.sentinel = new IntersectionObserver(near, { root: this.scroller, rootMargin: LOAD_AT })
  }

  // pinned reports whether the newest message is in view, and stays there.
  get pinned() {
    return this.scroller.scrollTop > -AT_END
  }

  toEnd() {
    this.scroller.scrollTop = 0
  }

  // open shows a group: { channel, chat_id, name?, limits?, settings?, … }.
  open(group) {
    this.conversation.stop()
    this.conversation = new Conversation(group.channel, group.chat_id)
    this.group = group
    this.find.clear()
    this.#loading = this.#fault = this.selected = undefined
    this.#unseen = 0
    this.aside.hidden = true
    this.steer.of(group)
    this.#filtered()
    return (this.opened = this.#newest())
  }

  // newest reads the newest messages and what became of them. Where others may be missing before them, it opens
  // the group anew.
  async #newest() {
    const { conversation } = this
    conversation.became().then(() => conversation.stopped || this.render(), fault)
    try {
      const gap = await conversation.newest()
      if (conversation.stopped) return
      if (gap) return this.open(this.group)
      this.#fault = undefined
    } catch (error) {
      fault(error)
      if (conversation.stopped) return
      if (!conversation.begun) this.#fault = error.message
    }
    this.render()
    this.#watchTop()
  }

  // again reads what was missed while there was no connection.
  again() {
    if (this.group) this.#newest()
  }

  // earlier reads a page before what is here, and returns whether there was one.
  earlier() {
    const { conversation } = this
    if (!conversation.earlier || conversation.entries.length >= KEPT) return false
    return this.#load(() => conversation.before())
  }

  // search lets the sidecar look through what is not loaded.
  #search() {
    const { conversation, find: { filter } } = this
    return this.#load(async () => {
      const { entries, earlier } = await conversation.search(filter.query, this.#cursor)
      if (filter !== this.find.filter) return
      this.#cursor = earlier
      conversation.found = entries.filter((e) => !conversation.get(e.message_id)).concat(conversation.found)
    })
  }

  // load reads, unless something is being read, and returns whether it could.
  #load(read) {
    const { conversation } = this
    const done = (failed) => {
      if (conversation.stopped) return false
      this.#loading = undefined
      this.render()
      if (!failed) this.#watchTop() // else not again by itself
      return !failed
    }
    this.#loading ??= read().catch((error) => this.#failed(conversation, error)).then(done)
    this.#drawTop()
    return this.#loading
  }

  // failed says why older messages cannot be read. A record that was cut can only be read anew.
  #failed(conversation, error) {
    fault(error)
    if (error.status === GONE && !conversation.stopped) {
      conversation.earlier = this.#cursor = undefined
      this.#fault = error.message
    }
    return true
  }

  #filtered() {
    this.conversation.found = []
    this.#cursor = this.conversation.earlier
    this.#rows.clear() // what is searched for is marked in them
    this.render()
    if (this.article(this.selected)) this.#reveal(this.selected)
    else this.toEnd()
  }

  // take brings in live events.
  take(events) {
    const { conversation, pinned } = this
    const mine = events.filter((e) => {
      const { channel, chat_id } = e.outcome ?? e
      return channel === conversation.channel && chat_id === conversation.chat
    })
    const of = (...types) => mine.filter((e) => types.includes(e.type))
    const entries = of('message', 'notice').map(entryOf)
    const became = of('outcome').map((e) => e.outcome).filter((o) => conversation.note(o))
    const recalled = of('recall')
    if (!entries.length && !became.length && !recalled.length) return
    if (entries.some(isNotice)) this.steer.again()
    conversation.add(entries)
    for (const { relay_msg_id: id } of recalled) conversation.recall(id)
    const reads = !pinned || !this.aside.hidden
    if (conversation.entries.length > (reads ? 2 * KEPT : KEPT)) return this.open(this.group) // with the newest alone
    const before = this.shown.length
    this.render()
    if (!pinned) this.#unseen += Math.max(0, this.shown.length - before)
    this.#drawNewest()
    if (this.#unseen) say(t('newest.n', { n: number(this.#unseen) }))
    for (const entry of became.map((o) => conversation.get(o.relay_msg_id))) {
      const end = entry && isBot(entry) && endedBy(conversation.outcomes(entry.message_id))
      if (end) say(`${nameOf(entry)}: ${t('ended', { why: why(end, this.known.limits) })}`)
    }
  }

  // known is what is known of the group besides its messages: its bots and limits.
  get known() {
    const { bots, settings } = this.steer.group ?? {}
    const limits = settings && { max_depth: settings.limit, threshold: settings.threshold, check: settings.judge }
    return { bots, limits: limits ?? this.group?.limits }
  }

  // render shows the messages as they are now. Only rows that say something else are made anew.
  render() {
    const { conversation, known, pinned } = this
    const became = (id) => conversation.outcomes(id)
    const found = conversation.found.map((entry) => blank(entry, became(entry.message_id)))
    this.#facts = [...found, ...factsOf(conversation.entries, became, conversation.recordedFrom, known)]
    this.shown = this.#facts.filter((fact) => this.find.matches(fact))
    const focused = document.activeElement.closest('.message')?.dataset.messageId
    let before
    const rows = []
    for (const fact of this.shown) {
      rows.push(this.#row(fact, before, known.limits))
      before = fact.entry
    }
    order(this.list, rows)
    if (pinned) this.toEnd()
    if (focused && document.activeElement === document.body) this.article(focused)?.focus({ preventScroll: true })
    this.find.draw()
    this.#drawTop()
    this.#drawNewest()
    this.#drawDetails()
  }

  // row is the slot of a message.
  #row(fact, before, limits) {
    const { entry, said, state, end, ends } = fact
    const { message_id: id, parent_id } = entry
    const parent = parent_id && this.conversation.get(parent_id)
    const text = [entry.version, parent && (parent.version ?? 0)].join()
    let slot = this.#rows.get(id)
    if (slot?.text !== text) {
      slot = Object.assign(row(entry, parent, this.find.filter.query), { text })
      this.#rows.set(id, slot)
      if (id === this.selected) select(slot.children[1])
    }
    const shows = JSON.stringify([said, state, end?.stopped, ends, before?.message_id, limits?.max_depth], FACTS)
    if (slot.shows !== shows) paint(Object.assign(slot, { shows }), fact, before, limits)
    return slot
  }

  #watchTop() {
    this.sentinel.unobserve(this.top)
    this.sentinel.observe(this.top) // says anew whether it is in view
  }

  #drawTop() {
    const { conversation, find, top } = this
    const searching = Boolean(find.filter.query)
    const cursor = searching ? this.#cursor : conversation.earlier
    const further = (word, go) => button('earlier', go, null, t(word))
    const none = !this.shown.length && empty(find.all ? 'empty.talk' : 'empty.filter')
    if (this.#fault) show(top, this.#fault, ' ', further('reopen', () => this.open(this.group)))
    else if (!conversation.begun || this.#loading) show(top, t('loading'))
    else if (!cursor) show(top, none || t('beginning'))
    else if (searching) show(top, none, further('search.earlier', () => this.#search()))
    else if (conversation.entries.length >= KEPT) show(top, t('enough', { n: number(KEPT) }), none)
    else show(top, none, further('look.earlier', () => this.earlier()))
  }

  #drawNewest() {
    if (this.pinned) this.#unseen = 0
    this.newest.hidden = this.pinned
    show(this.newest, icon('down'), this.#unseen ? t('newest.n', { n: number(this.#unseen) }) : t('newest'))
  }

  drawHead() {
    const { group, known: { limits } } = this
    if (!group) return
    const name = chatName(group)
    const named = name !== group.chat_id
    const judge = limits && t(limits.check ? 'on' : 'off')
    const expands = { 'aria-controls': this.steering.id, 'aria-expanded': String(this.steer.open) }
    keepFocus(this.head, () => show(this.head,
      h('a.icon-button.back', { href: '#/groups', 'aria-label': t('back'), data: { testid: 'back' } }, icon('back')),
      h('div',
        h('h2', h('bdi', { title: clean(name) }, line(name))),
        h('div.soft', [named && [h('span.mono', group.chat_id), ' · '],
          limits && t('limits', { max: limits.max_depth, threshold: limits.threshold, judge })])),
      h('div.far.tags', this.steer.badges(),
        iconButton('steer-toggle', () => this.steer.toggle(), icon('sliders'), t('steer'), expands))))
  }

  // name says what became known of the open group.
  name(group) {
    this.group = group
    this.steer.learn(group)
    this.drawHead()
  }

  // redraw shows everything again: in another language, or with other names.
  redraw() {
    this.#rows.clear()
    this.steer.redraw()
    this.drawAll()
  }

  drawAll() {
    this.drawHead()
    this.render()
  }

  // article is the element of a message, if it is shown.
  article(id) {
    const slot = this.#rows.get(id)
    return slot?.isConnected ? slot.children[1] : undefined
  }

  // reveal brings a message into view.
  #reveal(id) {
    const go = () => this.article(id)?.scrollIntoView({ block: 'nearest' })
    go()
    requestAnimationFrame(() => requestAnimationFrame(go)) // by now the heights around it are known
  }

  #clicked({ target }) {
    const go = target.closest('[data-go]')
    const thread = target.closest('[data-thread]')
    const article = target.closest('.message')
    if (go) this.choose(go.dataset.go)
    else if (thread) this.find.set({ thread: thread.dataset.thread })
    else if (article && !target.closest('button, a') && getSelection().isCollapsed) {
      this.openDetails(article.dataset.messageId)
    }
  }

  // choose selects a message and brings it into view, and returns whether it could.
  async choose(id) {
    const { conversation } = this
    if (!this.article(id)) {
      this.find.reset()
      for (let i = 0; !conversation.stopped && !conversation.has(id) && i < STEPS_BACK && await this.earlier();) i++
    }
    if (conversation.stopped || !this.article(id)) return false
    this.select(id)
    this.#reveal(id)
    return true
  }

  // select marks a message: Tab and the arrows begin there.
  select(id) {
    this.unmark()
    this.selected = id
    const article = this.article(id)
    if (article) select(article)
    article?.focus({ preventScroll: true })
    if (this.aside.hidden) return
    this.#drawDetails()
    history.replaceState(null, '', hash(this.conversation.channel, this.conversation.chat, id))
  }

  unmark() {
    for (const article of this.list.querySelectorAll('[aria-current]')) select(article, false)
  }

  // step selects the next message, or the one before; at first the lowest in view.
  step(by) {
    const { shown, scroller } = this
    const { left, width, bottom } = scroller.getBoundingClientRect()
    const lowest = document.elementFromPoint(left + width / 2, bottom - AT_END)?.closest('.slot')?.children[1]
    const at = shown.findIndex(({ entry }) => entry.message_id === this.selected)
    const next = at < 0 ? shown.at(-1) : shown[Math.max(0, Math.min(at + by, shown.length - 1))]
    const id = at < 0 && !this.pinned && lowest ? lowest.dataset.messageId : next?.entry.message_id
    if (!id) return
    this.select(id)
    this.#reveal(id)
  }

  openDetails(id = this.selected) {
    if (id) location.hash = hash(this.conversation.channel, this.conversation.chat, id)
  }

  // showDetails is what the address of a message leads to.
  async showDetails(id) {
    const { href } = location
    await this.opened
    if (location.href !== href) return // one went on meanwhile
    const there = await this.choose(id)
    if (location.href !== href) return
    if (!there) return fault(new Error(t('no.such.message')))
    this.aside.hidden = false
    this.#drawDetails()
    this.aside.scrollTop = 0
    this.#reveal(id) // beside the details lines are shorter, so there are more
  }

  #drawDetails() {
    const fact = this.#facts.find(({ entry }) => entry.message_id === this.selected)
    if (this.aside.hidden || !fact || selecting(this.aside)) return
    keepFocus(this.aside, () => details(this.aside, fact, () => this.closeDetails()))
  }

  closeDetails() {
    location.hash = hash(this.conversation.channel, this.conversation.chat)
  }

  // escape closes one thing: the settings if the focus is there, the details, the filter, the selection.
  escape() {
    const { find, steer } = this
    if (steer.element.contains(document.activeElement)) {
      steer.toggle()
      return this.head.querySelector('[aria-expanded]').focus()
    }
    if (document.activeElement === find.input) find.input.blur()
    if (!this.aside.hidden) this.closeDetails()
    else if (!find.reset()) this.unmark()
  }

  hideDetails() {
    if (this.aside.hidden) return
    this.aside.hidden = true
    this.article(this.selected)?.focus({ preventScroll: true })
  }
}
