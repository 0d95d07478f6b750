// Puts the page together.

import * as api from './api.js'
import { h, show, icon } from './h.js'
import { t, language, setLanguage } from './i18n.js'
import { remembered, remember } from './memory.js'
import { route, sections } from './route.js'
import { watch } from './live.js'
import { GroupList } from './groups.js'
import { Talk } from './talk.js'
import { Agents } from './agents.js'
import { Mailbox } from './mailbox.js'
import { System } from './system.js'
import { keys, showKeys } from './keys.js'
import { fault } from './notice.js'

const STATUS_EVERY = 15_000 // ms

const the = (id) => document.getElementById(id)
const panels = { agents: new Agents(the('agents')), mailbox: new Mailbox(the('mailbox')), system: new System(the('system')) }
const groups = new GroupList(the('group-list'), go)
const talk = new Talk({
  head: the('talk-head'), bar: the('talk-find'), picture: the('talk-depth'), scroller: the('talk-scroll'), top: the('talk-top'), list: the('talk-list'), newest: the('talk-newest'), aside: the('details'),
})
let status
let connection = { name: 'connecting' }

// go shows what the address says.
function go() {
  const at = route()
  document.body.dataset.section = at.section
  for (const name of sections) the(name).hidden = name !== at.section
  for (const [name, panel] of Object.entries(panels)) name === at.section ? panel.show() : panel.hide()
  if (at.section === 'groups') openGroup(at)
  drawRail()
  drawTitle(at)
}

function openGroup({ channel, chat, message }) {
  const group = groups.get(channel, chat)
  document.body.dataset.pane = message ? 'details' : chat ? 'talk' : 'list'
  the('talk').hidden = !chat
  the('no-talk').hidden = Boolean(chat)
  groups.opened(group)
  if (!chat) {
    talk.hideDetails()
    return
  }
  const { conversation } = talk
  if (!talk.group || conversation.channel !== channel || conversation.chat !== chat) talk.open(group ?? { channel, chat_id: chat })
  else if (group) {
    talk.group = group
    talk.drawHead()
  }
  if (message) talk.showDetails(message)
  else talk.hideDetails()
}

function drawTitle({ section, channel, chat }) {
  const place = section === 'groups' ? groups.get(channel, chat)?.name : t(section)
  document.title = [place, status?.identity.agent_name, 'feishu-relay'].filter(Boolean).join(' · ')
}

function drawRail() {
  const { section } = route()
  const item = (name) => h('a', {
    href: name === 'groups' ? '#/groups' : '#/' + name, 'data-testid': 'nav-' + name, 'aria-current': name === section ? 'page' : null, 'data-fault': name === 'system' && status && !status.ready,
  }, icon(name), h('span', null, t(name)))
  show(the('rail'),
    h('nav', { 'aria-label': t('sections') }, sections.map(item)),
    h('div', { class: 'tools' },
      h('span', { id: 'connection', role: 'status' }),
      h('button', { type: 'button', class: 'icon-button', onclick: toggleTheme, title: t('key.theme') + ' (t)', 'aria-label': t('key.theme'), 'data-testid': 'theme' }, icon('theme')),
      h('button', { type: 'button', class: 'icon-button', onclick: toggleLanguage, title: t('key.language') + ' (l)', 'aria-label': t('key.language'), 'data-testid': 'language' }, language() === 'zh' ? 'EN' : '中'),
      h('button', { type: 'button', class: 'icon-button', onclick: () => showKeys(), title: t('keys') + ' (?)', 'aria-label': t('keys'), 'data-testid': 'help' }, '?')))
  drawConnection()
}

function drawConnection() {
  const { name, at } = connection
  const seconds = at ? Math.max(0, Math.ceil((at - Date.now()) / 1000)) : 0
  const place = the('connection')
  place.dataset.state = name
  place.title = t('live.' + name + '.means', { n: seconds })
  place.dataset.testid = 'connection'
  show(place, h('i', null), h('span', null, t('live.' + name, { n: seconds })))
}

function redraw() {
  show(the('no-talk'), h('p', { class: 'empty' }, t('choose.group')))
  the('group-title').textContent = t('groups')
  the('talk-list').setAttribute('aria-label', t('messages'))
  the('details').setAttribute('aria-label', t('details'))
  drawRail()
  groups.draw()
  talk.redraw()
  for (const panel of Object.values(panels)) panel.redraw()
  drawTitle(route())
}

function toggleTheme() {
  const root = document.documentElement
  const dark = getComputedStyle(root).colorScheme === 'dark' || (!root.dataset.theme && matchMedia('(prefers-color-scheme: dark)').matches)
  root.dataset.theme = dark ? 'light' : 'dark'
  remember('theme', root.dataset.theme)
}

function toggleLanguage() {
  setLanguage(language() === 'zh' ? 'en' : 'zh')
  redraw()
}

async function readStatus() {
  try {
    status = await api.status()
    drawRail()
    drawTitle(route())
  } catch (error) {
    if (connection.name === 'live') fault(error)
  }
}

function beside(by) {
  const group = groups.beside(by)
  if (group) location.hash = `#/groups/${encodeURIComponent(group.channel)}/${encodeURIComponent(group.chat_id)}`
}

const inTalk = (act) => () => route().chat && act()

keys({
  next: inTalk(() => talk.step(1)),
  previous: inTalk(() => talk.step(-1)),
  details: inTalk(() => talk.openDetails()),
  end: inTalk(() => talk.flow.toEnd()),
  search: inTalk(() => talk.find.input.focus()),
  escape: inTalk(() => {
    if (document.activeElement === talk.find.input) talk.find.input.blur()
    if (!talk.closeDetails() && !talk.find.reset()) talk.unmark()
  }),
  beside,
  section: (name) => (location.hash = '#/' + name),
  theme: toggleTheme,
  language: toggleLanguage,
})

watch({
  events(list) {
    groups.take(list)
    talk.take(list)
    if (list.some((e) => e.type === 'mail')) for (const panel of [panels.mailbox, panels.agents]) panel.again()
  },
  state(now) {
    connection = now
    drawConnection()
  },
  again() {
    groups.load()
    talk.again()
    readStatus()
    for (const panel of Object.values(panels)) panel.again()
  },
})

addEventListener('hashchange', go)
document.addEventListener('visibilitychange', () => document.hidden || groups.opened(groups.get(route().channel, route().chat)))
setInterval(() => connection.at && drawConnection(), 1000)
setInterval(() => document.hidden || readStatus(), STATUS_EVERY)
if (remembered('theme')) document.documentElement.dataset.theme = remembered('theme')
redraw()
go()
readStatus()
groups.load()
