// Puts the page together.

import * as api from './api.js'
import { h, show, icon } from './h.js'
import { t, language, setLanguage } from './i18n.js'
import { remember } from './memory.js'
import { route, sections } from './route.js'
import { watch } from './live.js'
import { GroupList } from './groups.js'
import { Talk } from './talk.js'
import { Agents } from './agents.js'
import { Mailbox } from './mailbox.js'
import { System } from './system.js'
import { keys, showKeys } from './keys.js'
import { FROM, chatName, learn, onNames } from './names.js'
import { clean } from './text.js'
import { agentAvatar, botName, nameText } from './person.js'
import { empty } from './empty.js'
import { fault, say } from './notice.js'

const STATUS_EVERY = 15_000 // ms

const the = (id) => document.getElementById(id)
const panels = { agents: new Agents(the('agents')), mailbox: new Mailbox(the('mailbox')), system: new System(the('system')) }
const groups = new GroupList(the('group-list'), named)
const talk = new Talk({
  head: the('talk-head'), steering: the('talk-steer'), bar: the('talk-find'), picture: the('talk-depth'), scroller: the('talk-scroll'), top: the('talk-top'), list: the('talk-list'), newest: the('talk-newest'), aside: the('details'),
})
const wide = matchMedia('(min-width: 721px)') // as frame.css has it: list and conversation are side by side
let status
let latest // the group that was open last
let connection = { name: 'connecting' }

// place is what the address says. Where it names no group, a wide screen shows the one that was
// open last, else the newest.
function place() {
  const at = route()
  const group = latest ?? groups.groups[0]
  return at.section === 'groups' && !at.chat && wide.matches && group ? { ...at, channel: group.channel, chat: group.chat_id } : at
}

// go shows the place.
function go() {
  const at = place()
  document.body.dataset.section = at.section
  for (const name of sections) the(name).hidden = name !== at.section
  for (const [name, panel] of Object.entries(panels)) name === at.section ? panel.show() : panel.hide()
  if (at.section === 'groups') openGroup(at)
  markRail()
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
  latest = { channel, chat_id: chat }
  const { conversation } = talk
  if (!talk.group || conversation.channel !== channel || conversation.chat !== chat) talk.open(group ?? { channel, chat_id: chat })
  if (message) talk.showDetails(message)
  else talk.hideDetails()
}

// named shows what became known of the groups.
function named() {
  const at = place()
  if (at.section === 'groups' && at.chat && the('talk').hidden) return go()
  drawNoTalk()
  const group = groups.get(at.channel, at.chat)
  groups.opened(group)
  if (group) talk.name(group)
  drawTitle(at)
}

// drawNoTalk shows what to do where no conversation is open.
function drawNoTalk() {
  const none = groups.loaded && !groups.groups.length
  show(the('no-talk'), none ? empty('empty.groups', 'feishu-relay check') : h('p', { class: 'empty' }, t(groups.loaded ? 'choose.group' : 'loading')))
}

function drawTitle({ section, channel, chat }) {
  const group = groups.get(channel, chat)
  const place = section === 'groups' ? group && chatName(group) : t(section)
  document.title = [place && clean(place), status?.identity.agent_name, 'feishu-relay'].filter(Boolean).join(' · ')
}

function drawRail() {
  const item = (name) => h('a', { href: '#/' + name, 'data-testid': 'nav-' + name }, icon(name), h('span', null, t(name)))
  const tool = (name, act, key, picture) => h('button', { type: 'button', class: 'icon-button', onclick: act, title: `${t(name)} (${key})`, 'aria-label': t(name), 'data-testid': 'tool-' + name.replace('key.', '') }, picture)
  show(the('rail'),
    h('div', { id: 'whose', 'data-testid': 'whose' }),
    h('nav', { 'aria-label': t('sections') }, sections.map(item)),
    h('div', { class: 'tools' },
      h('span', { id: 'connection', 'data-testid': 'connection' }, h('i', null), h('span', null)),
      tool('key.theme', toggleTheme, 't', icon('theme')),
      tool('key.language', toggleLanguage, 'l', language() === 'zh' ? 'EN' : '中'),
      tool('keys', () => showKeys(), '?', '?')))
  drawWhose()
  markRail()
  drawConnection()
}

// drawWhose shows whose sidecar this is.
function drawWhose() {
  const agent = status?.identity.agent_name
  if (!agent) return
  const whose = the('whose')
  whose.title = t('whose', { name: nameText(agent) }) + ` (${clean(agent)})`
  show(whose, agentAvatar(agent), botName(agent))
  the('group-whose').textContent = t('whose', { name: nameText(agent) })
}

// markRail shows which section is open, and whether the system has a fault.
function markRail() {
  const { section } = route()
  for (const name of sections) {
    const item = the('rail').querySelector(`[data-testid=nav-${name}]`)
    if (name === section) item.setAttribute('aria-current', 'page')
    else item.removeAttribute('aria-current')
    item.toggleAttribute('data-fault', name === 'system' && status?.ready === false)
  }
}

function drawConnection() {
  const { name, at } = connection
  const seconds = at ? Math.max(0, Math.ceil((at - Date.now()) / 1000)) : 0
  const place = the('connection')
  place.dataset.state = name
  place.title = t(`live.${name}.means`, { n: seconds })
  place.lastChild.textContent = t('live.' + name, { n: seconds })
}

function redraw() {
  drawNoTalk()
  the('group-title').textContent = t('groups')
  drawWhose()
  the('talk-list').setAttribute('aria-label', t('messages'))
  the('details').setAttribute('aria-label', t('details'))
  drawRail()
  groups.draw()
  talk.redraw()
  for (const panel of Object.values(panels)) panel.redraw()
  drawTitle(place())
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
    const { agent_name, bot_name } = status.identity
    for (const { agent_name: agent, bot_name: name } of [{ agent_name, bot_name }, ...(status.agents ?? [])]) learn(agent, name, FROM.card)
    drawWhose()
    markRail()
    drawTitle(place())
  } catch (error) {
    if (connection.name === 'live') fault(error)
  }
}

function beside(by) {
  const group = groups.beside(by)
  if (group) location.hash = `#/groups/${encodeURIComponent(group.channel)}/${encodeURIComponent(group.chat_id)}`
}

const inTalk = (act) => () => place().chat && act()

keys({
  next: inTalk(() => talk.step(1)),
  previous: inTalk(() => talk.step(-1)),
  details: inTalk(() => talk.openDetails()),
  end: inTalk(() => talk.flow.toEnd()),
  search: inTalk(() => talk.find.input.focus()),
  escape: inTalk(() => {
    if (talk.steer.close()) return the('talk-head').querySelector('[data-testid=steer-toggle]').focus()
    if (document.activeElement === talk.find.input) talk.find.input.blur()
    if (!talk.closeDetails() && !talk.find.reset()) talk.unmark()
  }),
  beside,
  section: (name) => (location.hash = '#/' + name),
  theme: toggleTheme,
  language: toggleLanguage,
})

// A name that became known is shown everywhere, soon.
let renaming
onNames(() => {
  renaming ??= setTimeout(() => {
    renaming = undefined
    drawWhose()
    groups.draw()
    talk.redraw()
    for (const panel of Object.values(panels)) panel.redraw()
  })
})

redraw()
watch({
  events(list) {
    groups.take(list)
    talk.take(list)
    if (list.some((e) => e.type === 'mail')) {
      for (const panel of [panels.mailbox, panels.agents]) panel.again()
      groups.again() // mail is in no event
      talk.mailed()
    }
  },
  state(now) {
    if (now.name !== connection.name) say(t(`live.${now.name}.means`, { n: '' }))
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
wide.addEventListener('change', go)
document.addEventListener('visibilitychange', () => document.hidden || groups.opened(groups.get(place().channel, place().chat)))
setInterval(() => connection.at && drawConnection(), 1000)
setInterval(() => {
  if (document.hidden) return
  readStatus()
  groups.draw() // a pause may have ended by itself
}, STATUS_EVERY)
go()
readStatus()
groups.load()
