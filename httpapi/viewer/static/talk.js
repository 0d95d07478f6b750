// The conversation of one group: loads it, keeps it up to date, lets the operator
// filter it and select messages.

import { h, show, icon } from './h.js'
import { t } from './i18n.js'
import { number } from './format.js'
import { Conversation, KEPT, entryOf, forget, isBot, isMail, isNotice, nameOf } from './conversation.js'
import { endedBy, stateOf } from './verdict.js'
import { choose } from './message.js'
import { why } from './chips.js'
import { Reader, STEPS_BACK } from './reader.js'
import { Flow } from './flow.js'
import { FindBar, matcher, everything, isEverything } from './find.js'
import { DepthPicture } from './depth.js'
import { line, clean } from './text.js'
import { chatName } from './names.js'
import { keepFocus } from './focus.js'
import { Steer } from './steer.js'
import { details } from './details.js'
import { fault, say } from './notice.js'
import { hash } from './route.js'

const GONE = 410 // the record does not reach back to there any more
const MAILED = 1000 // ms from an event of mail until it is read
const LOOKED_AT = 200 // messages whose sentences may name a bot that went or came
const SCROLLING = 120 // ms between pictures of the depth while scrolling

export class Talk {
  #loading // a promise while an earlier page is read
  #searching = false
  #fault // why the newest messages, or older ones, cannot be read
  #unseen = 0
  #drawing = false
  #mailing

  // parts are the elements { head, steering, bar, picture, scroller, top, list, newest, aside }.
  constructor(parts) {
    Object.assign(this, parts)
    this.view = { conversation: new Conversation('', ''), query: '', matches: () => true, found: [], selected: undefined, limits: undefined, get: (id) => this.entry(id) }
    this.flow = new Flow(this.scroller, this.list, { view: this.view, onPinned: () => this.#showNewest() })
    this.find = new FindBar(this.bar, () => this.#filtered())
    this.depth = new DepthPicture(this.picture, (id) => this.choose(id))
    this.steer = new Steer(this.steering, { changed: () => this.#steered(), go: (id) => this.choose(id) })
    this.newest.addEventListener('click', () => this.flow.toEnd())
    this.list.addEventListener('click', (e) => this.#clicked(e))
    this.scroller.addEventListener('scroll', () => this.#soon(SCROLLING), { passive: true })
    this.sentinel = new IntersectionObserver((seen) => seen.at(-1).isIntersecting && isEverything(this.find.filter) && this.earlier(), { root: this.scroller, rootMargin: '1500px 0px 0px 0px' })
  }

  get conversation() {
    return this.view.conversation
  }

  // open shows a group: { channel, chat_id, name?, limits? }.
  async open(group) {
    this.reader?.stop()
    this.group = group
    this.view.limits = group.limits
    this.view.conversation = new Conversation(group.channel, group.chat_id)
    this.reader = new Reader(this.conversation, (told) => this.#bring({ fresh: [], changed: [], told }))
    this.find.filter = everything()
    this.find.input.value = ''
    this.#loading = undefined
    this.#searching = false
    this.#fault = undefined
    this.#unseen = 0
    this.unselect()
    this.flow.pinned = true
    this.view.bots = undefined
    this.steer.of(group.channel, group.chat_id, group.known)
    this.#filtered()
    show(this.top, t('loading'))
    await (this.opened = this.#newest())
    this.flow.toEnd()
  }

  // newest brings in the newest messages, and returns whether there is a gap before
  // them.
  async #newest() {
    const { reader } = this
    try {
      const news = await reader.newest()
      if (news.first) {
        this.#fault = undefined
        this.#filtered()
      } else this.#bring(news)
      this.#watchTop()
      return news.gap
    } catch (error) {
      fault(error)
      if (reader.stopped || reader.begun) return false
      this.#fault = error.message
      this.#drawTop()
      return false
    }
  }

  // bring shows what was read besides what is here.
  #bring({ fresh, changed, told }) {
    this.flow.hold(() => {
      this.flow.add(fresh)
      for (const id of told) this.#became(id)
      for (const entry of changed) this.flow.update(entry, true)
    })
    this.#soon()
  }

  // again fills the gap after the connection was lost.
  async again() {
    if (this.group && await this.#newest()) await this.open(this.group)
  }

  // mailed reads mail again, soon: it is in no event.
  mailed() {
    if (this.group && isMail(this.group)) this.#mailing ??= setTimeout(() => ((this.#mailing = undefined), this.again()), MAILED)
  }

  // earlier loads a page before what is here, and returns whether there was one.
  earlier() {
    const { reader } = this
    if (!reader.more) return false
    if (!this.#loading) {
      this.#loading = this.#page(reader)
      this.#drawTop()
    }
    return this.#loading
  }

  async #page(reader) {
    try {
      this.#bring(await reader.earlier())
      this.#pageDone(reader, true)
      return true
    } catch (error) {
      fault(error)
      this.#gone(reader, error)
      this.#pageDone(reader, false) // not again by itself
      return false
    }
  }

  // gone takes note of a record that was cut or edited: only anew can it be read on.
  #gone(reader, error) {
    if (error.status !== GONE || reader.stopped) return
    reader.conversation.earlier = this.searchFrom = undefined
    this.#fault = error.message
  }

  #pageDone(reader, more) {
    if (reader.stopped) return
    this.#loading = undefined
    if (more) this.#watchTop()
    else this.#drawTop()
    this.#soon()
  }

  // searchEarlier lets the sidecar look through what is not loaded.
  async searchEarlier() {
    const { conversation, reader, view, find: { filter } } = this
    this.#searching = true
    this.#drawTop()
    try {
      const { entries, earlier } = await reader.search(filter.query, this.searchFrom)
      if (filter !== this.find.filter) return
      this.searchFrom = earlier
      const fresh = entries.filter((e) => !conversation.get(e.message_id))
      view.found = fresh.concat(view.found)
      this.flow.prepend(fresh)
      this.#drawFind()
    } catch (error) {
      fault(error)
      this.#gone(reader, error)
    } finally {
      this.#searching = false
      this.#drawTop()
    }
  }

  #watchTop() {
    this.#drawTop()
    this.sentinel.unobserve(this.top)
    this.sentinel.observe(this.top) // tells anew whether it is in view
  }

  #drawTop() {
    const { conversation, find: { filter } } = this
    const searching = Boolean(filter.query)
    const cursor = searching ? this.searchFrom : conversation.earlier
    const button = (word, go) => h('button', { type: 'button', 'data-testid': 'earlier', onclick: go }, t(word))
    const empty = !this.flow.shown.length && h('p', { class: 'empty', 'data-testid': 'empty' }, t(isEverything(filter) ? 'empty.talk' : 'empty.filter'))
    if (!this.#fault && this.reader && !this.reader.begun) return show(this.top, t('loading'))
    if (this.#fault) return show(this.top, this.#fault, ' ', button('reopen', () => this.open(this.group)))
    if (searching ? this.#searching : this.#loading) return show(this.top, t('loading'))
    if (conversation.dropped && !cursor) return show(this.top, t('dropped', { n: number(KEPT) }), ' ', button('reopen', () => this.open(this.group)), empty)
    if (!searching && conversation.entries.length >= KEPT && cursor) return show(this.top, t('enough', { n: number(KEPT) }), empty)
    if (!cursor) return show(this.top, empty || t('beginning'))
    if (searching) return show(this.top, empty, button('search.earlier', () => this.searchEarlier()))
    return show(this.top, empty, button('look.earlier', () => this.earlier()))
  }

  #filtered() {
    const { filter } = this.find
    this.view.query = filter.query
    this.view.matches = matcher(filter, this.conversation)
    this.view.found = []
    this.searchFrom = this.conversation.earlier
    this.flow.refill()
    this.#drawFind()
    this.#drawTop()
    this.#soon()
  }

  // take brings in live events.
  take(events) {
    const { conversation } = this
    const mine = (x) => x && x.channel === conversation.channel && x.chat_id === conversation.chat
    const messages = events.filter((e) => (e.type === 'message' || e.type === 'notice') && mine(e)).map(entryOf)
    const became = events.filter((e) => e.type === 'outcome' && mine(e.outcome)).map((e) => e.outcome)
    const recalled = events.filter((e) => e.type === 'recall' && mine(e)).map((e) => e.relay_msg_id)
    if (!messages.length && !became.length && !recalled.length) return
    if (messages.some(isNotice)) this.steer.again()
    const agents = conversation.agents().length
    const before = this.flow.shown.length
    const { fresh, changed } = conversation.add(messages)
    this.flow.hold(() => this.flow.add(fresh))
    if (!this.flow.pinned) this.#unseen += Math.max(0, this.flow.shown.length - before)
    this.flow.hold(() => {
      for (const entry of changed) this.flow.update(entry, true)
      for (const id of recalled) this.#recall(id)
      for (const id of new Set(became.filter((o) => conversation.note(o)).map((o) => o.relay_msg_id))) this.#became(id, true)
    })
    if (conversation.agents().length !== agents || !isEverything(this.find.filter)) this.#drawFind()
    const gone = conversation.trim()
    if (gone.length) this.flow.hold(() => this.flow.remove(gone))
    if (gone.length || (before === 0 && fresh.length)) this.#drawTop()
    this.#showNewest(true)
    this.#soon()
  }

  // recall takes the text of a message off the page.
  #recall(id) {
    const found = this.view.found.find((e) => e.message_id === id)
    const entry = this.conversation.recall(id) ?? (found && forget(found))
    if (!entry) return
    this.flow.update(entry, true)
    for (const reply of this.flow.shown) if (reply.parent_id === id) this.flow.update(reply, true) // which quote it
    if (id === this.view.selected && !this.aside.hidden) this.#drawDetails(entry)
  }

  // became shows a new outcome, and says so when it ended the talk.
  #became(id, live = false) {
    const entry = this.conversation.get(id)
    if (!entry) return
    for (const one of new Set([...this.conversation.run(entry), ...this.conversation.missedBefore(entry)])) this.flow.update(one)
    if (id === this.view.selected && !this.aside.hidden) this.#drawDetails(entry)
    const end = live && isBot(entry) && endedBy(this.conversation.outcomes(id))
    if (end) say(`${nameOf(entry)}: ${t('ended', { why: why(end, this.view.limits) })}`)
  }

  #showNewest(announce = false) {
    if (this.flow.pinned) this.#unseen = 0
    this.newest.hidden = this.flow.pinned
    show(this.newest, icon('down'), this.#unseen ? t('newest.n', { n: number(this.#unseen) }) : t('newest'))
    if (announce && this.#unseen) say(t('newest.n', { n: number(this.#unseen) }))
  }

  // soon draws the picture of the depth, with what happens until then.
  #soon(pause = 0) {
    if (this.#drawing) return
    this.#drawing = true
    setTimeout(() => requestAnimationFrame(() => {
      this.#drawing = false
      this.picture.hidden = Boolean(this.group && isMail(this.group))
      if (this.picture.hidden || !this.reader?.begun) return show(this.picture)
      this.depth.draw(this.conversation, this.flow.shown, this.flow.lastInView(), this.group?.limits)
      this.depth.mark(this.view.selected)
    }), pause)
  }

  drawHead() {
    if (this.group) keepFocus(this.head, () => this.#drawHead(this.group))
  }

  #drawHead(group) {
    const { channel, chat_id, limits } = group
    const name = chatName(group)
    const open = this.steer.open
    const mail = isMail({ channel })
    show(this.head,
      h('a', { class: 'icon-button back', href: '#/groups', 'aria-label': t('back'), 'data-testid': 'back' }, icon('back')),
      h('div', null, h('h2', null, h('bdi', { title: clean(name) }, line(name))),
        h('div', { class: 'soft' }, mail ? t('mail.between') : name !== chat_id && h('span', { class: 'mono' }, chat_id), limits && (name === chat_id ? '' : ' · ') + t('limits', { max: limits.max_depth, threshold: limits.threshold, judge: t(limits.check ? 'on' : 'off') }))),
      h('div', { class: 'far tags' }, this.steer.badges(),
        !mail && h('button', { type: 'button', class: 'icon-button', title: t('steer'), 'aria-label': t('steer'), 'aria-expanded': String(open), 'aria-controls': this.steering.id, 'data-testid': 'steer-toggle', onclick: () => this.steer.toggle() }, icon('sliders'))))
  }

  // steered shows what became known of the group's settings.
  #steered() {
    const { settings, bots } = this.steer.group ?? {}
    if (JSON.stringify(bots) !== JSON.stringify(this.view.bots)) {
      this.view.bots = bots
      const { conversation } = this
      for (const entry of this.flow.shown.slice(-LOOKED_AT)) if (entry === conversation.newest || conversation.lastOfPerson(entry) || conversation.outcomes(entry.message_id).some((o) => stateOf(o) === 'wait')) this.flow.update(entry)
    }
    if (settings && this.group && !isMail(this.group)) this.group = { ...this.group, limits: { max_depth: settings.limit, threshold: settings.threshold, check: settings.judge } }
    this.#limited()
    this.drawHead()
    this.#soon()
  }

  // limited shows other limits in the sentences that name them.
  #limited() {
    const { limits } = this.group ?? {}
    if (JSON.stringify(limits) === JSON.stringify(this.view.limits)) return
    this.view.limits = limits
    for (const entry of this.flow.shown) this.flow.update(entry)
  }

  #drawFind() {
    this.find.draw(this.conversation.agents(), this.flow.shown.length, isMail(this.conversation))
  }

  // name tells what the open group is called, and its limits.
  name(group) {
    this.group = group
    this.steer.learn(group.known)
    this.#steered()
  }

  // redraw shows everything again: in another language, or with other names.
  redraw() {
    const focused = document.activeElement?.closest('.message')?.dataset.messageId
    this.drawHead()
    this.steer.redraw()
    this.#filtered()
    if (focused) this.flow.article(focused)?.focus({ preventScroll: true })
    this.#showNewest()
    if (this.view.selected && !this.aside.hidden) this.#drawDetails(this.entry(this.view.selected))
  }

  entry(id) {
    return this.conversation.get(id) ?? this.view.found.find((e) => e.message_id === id)
  }

  #clicked(event) {
    const { target } = event
    const go = target.closest('[data-go]')
    const thread = target.closest('[data-thread-id]')
    const article = target.closest('.message')
    if (go) this.choose(go.dataset.go)
    else if (thread) this.find.set({ thread: thread.dataset.threadId })
    else if (article && !target.closest('button, a') && getSelection().isCollapsed) this.openDetails(article.dataset.messageId)
  }

  // choose selects a message and brings it into view.
  async choose(id) {
    const { conversation } = this
    if (!this.flow.article(id)) {
      this.find.reset()
      for (let i = 0; this.conversation === conversation && !conversation.get(id) && i < STEPS_BACK && await this.earlier();) i++
    }
    if (this.conversation !== conversation || !this.flow.article(id)) return false
    this.flow.reveal(id)
    this.select(id)
    return true
  }

  // select marks a message; it becomes the one that Tab and the arrows begin at.
  select(id) {
    this.unmark()
    this.view.selected = id
    const article = this.flow.article(id)
    if (article) choose(article)
    article?.focus({ preventScroll: true })
    this.depth.mark(id)
    const entry = this.entry(id)
    if (!this.aside.hidden && entry) {
      this.#drawDetails(entry)
      history.replaceState(null, '', hash(this.conversation.channel, this.conversation.chat, id))
    }
  }

  unmark() {
    for (const article of this.list.querySelectorAll('[aria-current]')) choose(article, false)
  }

  unselect() {
    this.unmark()
    this.view.selected = undefined
    this.aside.hidden = true
  }

  // step selects the next message, or the one before.
  step(by) {
    const { shown } = this.flow
    const at = shown.findIndex((e) => e.message_id === this.view.selected)
    const to = at < 0 ? this.flow.lastInView() : Math.max(0, Math.min(at + by, shown.length - 1))
    if (!shown[to]) return
    this.select(shown[to].message_id)
    this.flow.article(this.view.selected).scrollIntoView({ block: 'nearest' })
  }

  openDetails(id = this.view.selected) {
    if (id) location.hash = hash(this.conversation.channel, this.conversation.chat, id)
  }

  // showDetails is what the address of a message leads to.
  async showDetails(id) {
    const { href } = location
    await this.opened
    if (location.href !== href) return // one went on meanwhile
    const article = this.flow.article(id)
    if (article && inView(article, this.scroller)) this.select(id)
    else {
      const found = await this.choose(id)
      if (location.href !== href) return
      if (!found && !this.entry(id)) return fault(new Error(t('no.such.message')))
    }
    this.aside.hidden = false
    this.#drawDetails(this.entry(id))
    this.aside.scrollTop = 0
    this.flow.article(id)?.scrollIntoView({ block: 'nearest' }) // beside the details lines are shorter, so there are more
  }

  #drawDetails(entry) {
    keepFocus(this.aside, () => details(this.aside, this.conversation, entry, {
      limits: this.view.limits,
      bots: this.view.bots,
      close: () => this.closeDetails(),
      go: (id) => this.choose(id),
      show: (id) => {
        this.find.reset()
        if (covers(this.aside)) this.closeDetails()
        this.choose(id)
      },
      thread: (id) => this.find.set({ thread: id }),
    }))
  }

  // closeDetails returns whether they were open.
  closeDetails() {
    if (this.aside.hidden) return false
    location.hash = hash(this.conversation.channel, this.conversation.chat)
    return true
  }

  hideDetails() {
    if (this.aside.hidden) return
    this.aside.hidden = true
    this.flow.article(this.view.selected)?.focus({ preventScroll: true })
  }
}

// covers reports whether the details hide the conversation, as on a phone.
const covers = (aside) => aside.clientWidth > innerWidth / 2

function inView(element, scroller) {
  const a = element.getBoundingClientRect()
  const b = scroller.getBoundingClientRect()
  return a.bottom > b.top + 40 && a.top < b.bottom - 40
}
